//! Tables on the terminal: plain text, so that they look the same in a file.

use comfy_table::{CellAlignment, LineStyle, Table, TableStyle};

use super::format::{of_metric, plain};
use super::json::Row;
use super::{WIDTH, heading, say};

/// One line below the header, and no other lines.
const STYLE: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// Prints a caption, and below it a table with a line for each of `lines`. The first `left` columns hold names. A table that
/// is too wide is continued below itself.
pub fn of_lines<L: IntoIterator<Item: ToString>>(
    caption: &str,
    header: &[impl AsRef<str>],
    left: usize,
    lines: impl IntoIterator<Item = L>,
) {
    let header: Vec<String> = header.iter().map(|cell| cell.as_ref().to_owned()).collect();
    let cells = |line: L| line.into_iter().map(|cell| cell.to_string()).collect();
    let lines: Vec<Vec<String>> = lines.into_iter().map(cells).collect();
    let width = |at: usize| {
        let cells = lines.iter().filter_map(|line| line.get(at)).chain([&header[at]]);
        3 + cells.map(|cell| cell.chars().count()).max().unwrap_or_default()
    };
    heading(caption);
    let names: usize = (0..left).map(width).sum();
    let (mut from, end) = (left, header.len());
    loop {
        let (mut to, mut used) = (from, names);
        while to < header.len() && (to == from || used + width(to) <= WIDTH) {
            used += width(to);
            to += 1;
        }
        let is_shown = |at: usize| at < left || (from..to).contains(&at);
        let of_part = |line: &Vec<String>| -> Vec<String> {
            line.iter().enumerate().filter(|(at, _)| is_shown(*at)).map(|(_, cell)| cell.clone()).collect()
        };
        let shown = of_part(&header);
        let mut table = of_figures(&shown.iter().map(String::as_str).collect::<Vec<_>>(), left);
        let has_cells =
            |line: &&Vec<String>| from == left || line[from..to].iter().any(|cell| !cell.is_empty());
        table.add_rows(lines.iter().filter(has_cells).map(of_part));
        say(text(&table));
        if to == end {
            break;
        }
        from = to;
    }
}

/// A table whose first `left` columns hold names; the others hold figures, aligned to the right.
pub fn of_figures(header: &[&str], left: usize) -> Table {
    let mut table = Table::new();
    table.load_style(STYLE).set_header(header.to_vec());
    for column in table.column_iter_mut().skip(left) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Prints every metric of the rows: tables for each scenario, with a line for each row.
pub fn of_everything(rows: &[Row]) {
    let mut rest: Vec<&Row> = rows.iter().collect();
    while let Some(&first) = rest.first() {
        let same = |row: &Row| (&row.experiment, &row.scenario) == (&first.experiment, &first.scenario);
        let (of_it, others): (Vec<&Row>, Vec<&Row>) = rest.into_iter().partition(|row| same(row));
        rest = others;
        let mut params: Vec<&String> = of_it.iter().flat_map(|row| row.params.keys()).collect();
        let mut metrics: Vec<&String> = of_it.iter().flat_map(|row| row.metrics.keys()).collect();
        for names in [&mut params, &mut metrics] {
            names.sort();
            names.dedup();
        }
        // A parameter that is the same in all rows is in the caption.
        let (constant, params): (Vec<&String>, Vec<&String>) = params
            .into_iter()
            .partition(|name| of_it.iter().all(|row| row.params.get(*name) == first.params.get(*name)));
        let constant: Vec<String> =
            constant.into_iter().map(|name| format!("{name} {}", plain(&first.params[name]))).collect();
        let header = ["contender"].into_iter().chain(params.iter().chain(&metrics).map(|name| name.as_str()));
        let void = of_it.iter().any(|row| row.void.is_some()).then_some("void");
        let header: Vec<&str> = header.chain(void).collect();
        let line = |row: &Row| {
            let params = params.iter().map(|name| row.params.get(*name).map(plain).unwrap_or_default());
            let metric = |name: &&String| {
                row.metrics.get(*name).map_or_else(String::new, |value| {
                    value.as_f64().map_or_else(|| plain(value), |value| of_metric(name, value))
                })
            };
            let params: Vec<String> = params.chain(metrics.iter().map(metric)).collect();
            let void = void.map(|_| row.void.clone().unwrap_or_default());
            std::iter::once(row.contender.clone()).chain(params).chain(void).collect::<Vec<String>>()
        };
        let caption = format!("{} {} ({})", first.experiment, first.scenario, constant.join(", "));
        of_lines(&caption, &header, 1 + params.len(), of_it.into_iter().map(line));
    }
}

/// A table in Markdown: the first line is its header.
pub fn markdown(lines: &[Vec<String>]) -> String {
    let line = |cells: &Vec<String>| {
        let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let [header, lines @ ..] = lines else { return String::new() };
    let rule = "|---".repeat(header.len()) + "|\n";
    line(header) + &rule + &lines.iter().map(line).collect::<String>()
}

/// The table, without blanks at the ends of its lines.
pub fn text(table: &Table) -> String {
    table.trim_fmt()
}
