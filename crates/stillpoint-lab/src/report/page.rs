//! The page.

use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde_json::{Value, json};
use stillpoint_harness::error::Stop;
use stillpoint_harness::experiment::show::disturbance;
use stillpoint_harness::output::figures::{Figure, Ground, charts, svg};
use stillpoint_harness::output::format::{bytes, hertz, number_of};
use stillpoint_harness::output::json::Read;
use stillpoint_harness::results::INTERRUPTED;

use crate::reclaim;

use super::sections::{self, Section, Shown, Standing};

/// The whole page.
pub(super) fn text(read: &[Read], figures: &[&'static Figure]) -> Result<String, Stop> {
    let sections = sections::of(read, figures);
    let mut drawn = Vec::new();
    for section in &sections {
        drawn.push(of_section(section)?);
    }
    let answers: Vec<String> = read.iter().filter_map(|read| reclaim::answer(&read.rows)).collect();
    let best = read.iter().map(|read| reclaim::of_libraries(&read.rows)).find(|rows| !rows.is_empty());
    let chart = best.and_then(|rows| charts(&[&reclaim::BEST], &rows).into_iter().next());
    let best = chart.map(Shown::of);
    let picture = best.as_ref().map(of_chart).transpose()?;
    let best = best.map(|best| best.chart.by_contender());
    let data: Vec<Value> = read
        .iter()
        .map(|read| json!({ "command": read.command, "machine": read.machine, "rows": read.rows }))
        .collect();
    // A script ends at the first `</`, even inside a string; in JSON the slash may be escaped.
    let data = serde_json::to_string(&data)
        .map_err(|error| Stop::Failed(format!("the rows cannot be written as JSON: {error}")))?
        .replace("</", "<\\/")
        .replace("<!--", "<\\u0021--");
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                // An empty icon, or the browser asks the host for one.
                link rel="icon" href="data:,";
                title { "stillpoint: report" }
                style { (PreEscaped(include_str!("page.css"))) }
            }
            body {
                main {
                    h1 { @if answers.is_empty() { "stillpoint beside others, on this machine" } @else { (reclaim::QUESTION) } }
                    @for line in &answers { p { strong { (line) } } }
                    @for line in read.iter().flat_map(warnings) { p.behind { (line) } }
                    @if let Some((header, lines)) = best { (grid("Mean delays", "", &header, &lines)) }
                    @if let Some(picture) = picture { (picture) }
                    details open[answers.is_empty()] {
                        summary { "All figures, verdicts and machines" }
                        (verdicts(&sections))
                        @for section in drawn { (section) }
                        (machines(read))
                    }
                }
                script type="application/json" id="results" { (PreEscaped(data)) }
            }
        }
    };
    Ok(page.into_string())
}

/// What spoils a result.
pub(super) fn warnings(read: &Read) -> impl Iterator<Item = String> {
    let interrupted = read
        .left_out
        .iter()
        .find(|line| line.starts_with(INTERRUPTED))
        .map(|line| format!("This run was {line}."));
    let void = read.rows.iter().filter(|row| row.void.is_some()).count();
    let void = (void > 0).then(|| {
        format!("{void} of {} do not count; the reasons are below.", number_of(read.rows.len() as u64, "row"))
    });
    interrupted.into_iter().chain(void).chain(disturbance(&read.rows))
}

/// The verdict on each figure, the worst for us first.
fn verdicts(sections: &[Section<'_>]) -> Markup {
    let mut all: Vec<(Standing, &Shown)> = sections
        .iter()
        .flat_map(|section| &section.charts)
        .filter_map(|shown| Some((shown.standing()?, shown)))
        .collect();
    let worst = |shown: &Shown| shown.ends().map_or(1.0, |(worst, _)| worst.factor);
    all.sort_by(|one, other| one.0.cmp(&other.0).then(worst(one.1).total_cmp(&worst(other.1))));
    let count = |wanted| all.iter().filter(|(standing, _)| *standing == wanted).count();
    html! {
        section aria-labelledby="verdict" {
            h2 id="verdict" { "Verdict" }
            @if all.is_empty() {
                p { "No figure has both a contender of this library and another one." }
            } @else {
                p {
                    "Figures that compare this library with others: " (all.len()) ". In " (count(Standing::Behind)) " of them it is "
                    strong.behind { "behind" } " at some place, in " (count(Standing::Even)) " it is even, and in "
                    (count(Standing::Ahead)) " it is " strong.ahead { "ahead" } " at some place, and behind at none. "
                    @if count(Standing::Undecided) > 0 {
                        (count(Standing::Undecided)) " are undecided at all places, since other programs ran meanwhile. "
                    }
                    "Each place compares one contender of this library, the default, with the best of the others. "
                    "A factor of 2 means twice as good as the best of the others; 0.5 half as good, and 1/20 a twentieth as good. "
                    "Figures within 5 % count as even. If a contender that was measured twice differed from itself by more, figures within that difference do."
                }
                div.wide tabindex="0" role="region" aria-label="Verdicts" {
                    table.verdicts {
                        thead { tr { th scope="col" { "figure" } th scope="col" { "we are" } th scope="col" { "worst factor" } th scope="col" { "where" } th scope="col" { "best factor" } th scope="col" { "where" } } }
                        tbody {
                            @for (standing, shown) in &all {
                                @if let Some((worst, best)) = shown.ends() {
                                    tr {
                                        td { a href={ "#" (shown.id) } { (shown.chart.title()) } }
                                        td class=(standing.name()) { (standing.name()) }
                                        td { (factor(worst.factor)) } td { (worst.at) }
                                        td { (factor(best.factor)) } td { (best.at) }
                                    }
                                } @else {
                                    tr { td { a href={ "#" (shown.id) } { (shown.chart.title()) } } td { (standing.name()) } td {} td {} td {} td {} }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

pub(super) fn factor(factor: f64) -> String {
    match factor {
        ..0.1 => format!("1/{:.0}", 1.0 / factor),
        100.0.. => format!("{factor:.0}x"),
        _ => format!("{factor:.2}x"),
    }
}

fn of_section(section: &Section<'_>) -> Result<Markup, Stop> {
    let mut figures = Vec::new();
    for shown in &section.charts {
        figures.push(of_chart(shown)?);
    }
    let heading = format!(
        "{}-{}",
        section.experiment,
        section.charts.first().map_or("none", |shown| shown.id.as_str())
    );
    Ok(html! {
        section aria-labelledby=(heading) {
            h2 id=(heading) { (section.experiment) }
            p { "To repeat it: " }
            pre { code { (section.read.command.replacen("stillpoint", "cargo run --release --", 1)) } }
            @if figures.is_empty() && section.tables.is_empty() { p { "There are no figures for its rows." } }
            @for figure in figures { (figure) }
            @for table in &section.tables {
                h3 { (table.caption) }
                (grid(table.caption, "words", table.header, &table.lines))
            }
            @let named = section.names();
            @if !named.is_empty() {
                h3 { "Names" }
                dl { @for (name, words) in named { dt { (name) } dd { (words) } } }
            }
            @if !section.left_out.is_empty() {
                h3 { "Left out of this run" }
                ul { @for line in section.left_out { li { (line) } } }
            }
            @if !section.void.is_empty() {
                h3 { "Rows that do not count" }
                @let void: Vec<[&str; 2]> = section.void.iter().map(|(row, why)| [row.as_str(), why.as_str()]).collect();
                (grid("Rows that do not count", "words", &["row", "why"], &void))
            }
        }
    })
}

/// A table; the first cell of each line names it.
fn grid<L: AsRef<[S]>, S: AsRef<str>>(
    caption: &str,
    class: &str,
    header: &[impl AsRef<str>],
    lines: &[L],
) -> Markup {
    html! {
        div.wide tabindex="0" role="region" aria-label=(caption) {
            table class=(class) {
                thead { tr { @for name in header { th scope="col" { (name.as_ref()) } } } }
                tbody {
                    @for line in lines {
                        tr {
                            @for (at, cell) in line.as_ref().iter().enumerate() {
                                @if at == 0 { th scope="row" { (cell.as_ref()) } } @else { td { (cell.as_ref()) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn of_chart(shown: &Shown) -> Result<Markup, Stop> {
    let chart = &shown.chart;
    let title = chart.title();
    let (light, dark) = (svg(chart, Ground::Light)?, svg(chart, Ground::Dark)?);
    let (header, lines) = chart.table();
    Ok(html! {
        figure id=(shown.id) {
            h3 { (title) }
            div.wide tabindex="0" role="img" aria-label={ (title) ". The numbers are in the table below." } {
                div.light { (PreEscaped(light)) }
                div.dark { (PreEscaped(dark)) }
            }
            figcaption {
                @if !chart.figure.words.is_empty() { p { (chart.figure.words) } }
                @if let Some(noise) = shown.noise() { p { (noise) } }
                @if !shown.verdicts.is_empty() {
                    @if let Some(places) = shown.undecided() { p { (places) } }
                    p { "This library's default beside the best of the others, " (chart.figure.up.title) ":" }
                    ul {
                        @for verdict in &shown.verdicts {
                            li {
                                (verdict.at) ": "
                                strong class=(shown.standing_of(verdict).name()) { (factor(verdict.factor)) }
                                ", " (verdict.ours.0) " " (chart.figure.amount(verdict.ours.1))
                                " beside " (verdict.theirs.0) " " (chart.figure.amount(verdict.theirs.1))
                            }
                        }
                    }
                }
            }
            details {
                summary { "The numbers: " (chart.figure.up.title) }
                (grid(&format!("Numbers of: {title}"), "", &header, &lines))
            }
        }
    })
}

/// A fact about a machine: its name and its value in words.
pub(super) fn fact(name: &str, value: &Value) -> [String; 2] {
    let (name, value) = match (name.strip_suffix("_bytes"), name.strip_suffix("_hz"), value.as_u64()) {
        (Some(name), _, Some(size)) => (name, bytes(size)),
        (_, Some(name), Some(frequency)) => (name, hertz(frequency)),
        _ => (name, in_words(value)),
    };
    [name.replace('_', " "), value]
}

fn in_words(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Object(map) => map
            .iter()
            .map(|(name, value)| format!("{name} {}", value.as_str().unwrap_or_default()))
            .collect::<Vec<_>>()
            .join(", "),
        value => value.to_string(),
    }
}

/// The machine of each result.
fn machines(read: &[Read]) -> Markup {
    html! {
        section aria-labelledby="machines" {
            h2 id="machines" { "Machines" }
            @for read in read {
                h3 { code { (read.command) } }
                @let facts: Vec<[String; 2]> = read.machine.iter().map(|(name, value)| fact(name, value)).collect();
                (grid(&format!("The machine of: {}", read.command), "words", &[""; 0], &facts))
            }
        }
    }
}
