//! Who is ahead in a chart, and by how much.

use super::{Across, Better, Chart, Content, number, places};

/// One contender of ours beside the best of the others, at one place of a chart.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// The place along the horizontal axis.
    pub at: String,
    /// Our contender, and its figure.
    pub ours: (String, f64),
    /// The best of the others.
    pub theirs: (String, f64),
    /// Our figure as a multiple of theirs in goodness: 2 is twice as good. Above 1, we are ahead.
    pub factor: f64,
}

impl Chart {
    /// The verdict at each place where there is one of ours and one of theirs, both above 0. Ours is the first of `defaults`
    /// that is there, whatever its figure: a program cannot be the best of several ways at once.
    pub fn verdicts(&self, defaults: &[&str], is_ours: impl Fn(&str) -> bool) -> Vec<Verdict> {
        let better = self.figure.up.better;
        if better == Better::Neither {
            return Vec::new();
        }
        let verdict = |(at, found): (String, Vec<(String, f64)>)| {
            let of = |wanted: &&str| found.iter().find(|(name, _)| name == wanted);
            let order = |one: &&(String, f64), other: &&(String, f64)| match better {
                Better::More => other.1.total_cmp(&one.1),
                _ => one.1.total_cmp(&other.1),
            };
            let ours = defaults.iter().find_map(of)?.clone();
            let theirs = found.iter().filter(|(name, _)| !is_ours(name)).min_by(order)?.clone();
            let factor = match better {
                Better::More => ours.1 / theirs.1,
                _ => theirs.1 / ours.1,
            };
            Some(Verdict { at, ours, theirs, factor })
        };
        self.measured().into_iter().filter_map(verdict).collect()
    }

    /// The figures above 0 that were measured at each place, with their contenders.
    pub fn measured(&self) -> Vec<(String, Vec<(String, f64)>)> {
        let measured = |name: &str, value: f64| (value > 0.0).then(|| (name.to_owned(), value));
        match &self.content {
            Content::Curves(curves) => {
                let Across::Numbers { title, .. } = self.figure.across else { return Vec::new() };
                let of = |x: f64| {
                    let found = curves.iter().filter_map(|curve| measured(&curve.name, curve.at(x)?));
                    (format!("{title}: {}", number(x)), found.collect())
                };
                places(curves).into_iter().map(of).collect()
            }
            Content::Bars { names, bars } => {
                let of = |(at, name): (usize, &String)| {
                    let found = bars.iter().filter(|bars| !bars.published);
                    let found = found.filter_map(|bars| measured(&bars.name, bars.values[at]?));
                    (name.clone(), found.collect())
                };
                names.iter().enumerate().map(of).collect()
            }
            // Dots are ratios already.
            Content::Dots { .. } => Vec::new(),
        }
    }
}
