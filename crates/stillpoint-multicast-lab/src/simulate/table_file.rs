//! Rows as comma-separated values.

use stillpoint_harness::output::json::Row;

/// A line for each figure: scenario, contender, the parameter and its value, metric, value.
pub(super) fn text(rows: &[Row]) -> String {
    let mut text = String::from("scenario,contender,parameter,at,metric,value\n");
    for row in rows {
        for (parameter, at) in &row.params {
            for (metric, value) in &row.metrics {
                text += &format!("{},{},{parameter},{at},{metric},{value}\n", row.scenario, row.contender);
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Map;

    #[test]
    fn each_figure_is_a_line() {
        let row = Row {
            experiment: "simulate".into(),
            scenario: "receivers".to_owned(),
            contender: "tree".to_owned(),
            params: Map::from_iter([("receivers".to_owned(), 143.into())]),
            metrics: Map::from_iter([("a".to_owned(), 1.into()), ("b".to_owned(), 2.5.into())]),
            void: None,
        };
        let lines = "scenario,contender,parameter,at,metric,value\n\
                     receivers,tree,receivers,143,a,1\nreceivers,tree,receivers,143,b,2.5\n";
        assert_eq!(text(&[row]), lines);
    }
}
