//! Rows as comma-separated values (RFC 4180).

use serde_json::Value;
use stillpoint_harness::output::json::Row;

/// A line for each figure: scenario, contender, the parameters and their values, metric, value. Where there are several
/// parameters, or values, a semicolon is between them.
pub(super) fn text(rows: &[Row]) -> String {
    let mut text = String::from("scenario,contender,parameter,at,metric,value\n");
    for row in rows {
        let names: Vec<&str> = row.params.keys().map(String::as_str).collect();
        let at: Vec<String> = row.params.values().map(plain).collect();
        for (metric, value) in &row.metrics {
            let cells =
                [&row.scenario, &row.contender, &names.join(";"), &at.join(";"), metric, &plain(value)];
            text += &(cells.map(|cell| quoted(cell)).join(",") + "\n");
        }
    }
    text
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(plain).collect::<Vec<_>>().join(";"),
        other => other.to_string(),
    }
}

/// A cell in quotes, where it needs them.
fn quoted(cell: &str) -> String {
    if cell.contains([',', '"', '\n']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_figure_is_a_line() {
        let mut row = Row::new("simulate", "receivers", "tree").with("receivers", 143);
        row.put("a", 1.0, 0);
        row.put("b", 2.5, 1);
        let lines = "scenario,contender,parameter,at,metric,value\n\
                     receivers,tree,receivers,143,a,1\nreceivers,tree,receivers,143,b,2.5\n";
        assert_eq!(text(&[row]), lines);
    }

    #[test]
    fn commas_and_quotes_within_a_cell_stay_within_it() {
        let mut row =
            Row::new("simulate", "sensitivity", "tree, cluster").with("input", "a \"b\"").with("factor", 0.5);
        row.metrics.insert("values".to_owned(), json!([1, 2]));
        let lines = text(&[row]);
        assert_eq!(
            lines.lines().nth(1),
            Some("sensitivity,\"tree, cluster\",input;factor,\"a \"\"b\"\";0.5\",values,1;2")
        );
    }
}
