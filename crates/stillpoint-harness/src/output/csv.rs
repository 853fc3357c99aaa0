//! Rows as comma-separated values (RFC 4180), for spreadsheets and data frames.

use serde_json::Value;

use super::each_once;
use super::json::Row;
use crate::error::Stop;

/// A header, and a line for each row: experiment, scenario and contender, then all parameters, all metrics, and why a row does
/// not count. Columns of parameters and metrics that a row does not have are empty.
///
/// # Errors
/// When the rows cannot be written as CSV, which is a defect.
pub fn text(rows: &[Row]) -> Result<String, Stop> {
    let metrics = rows.iter().flat_map(|row| row.metrics.keys());
    let names = each_once(rows.iter().flat_map(|row| row.params.keys()).chain(metrics).map(String::as_str));
    let mut writer = csv::Writer::from_writer(Vec::new());
    let header = ["experiment", "scenario", "contender"].into_iter().chain(names.iter().copied());
    let mut written = writer.write_record(header.chain(["void"]));
    for row in rows {
        let value = |name: &&str| match row.params.get(*name).or_else(|| row.metrics.get(*name)) {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(value) => value.to_string(),
        };
        let who = [row.experiment.clone().into_owned(), row.scenario.clone(), row.contender.clone()];
        let void = row.void.clone().unwrap_or_default();
        let line = who.into_iter().chain(names.iter().map(value)).chain([void]);
        written = written.and_then(|()| writer.write_record(line));
    }
    let failed =
        |error: &dyn std::fmt::Display| Stop::Failed(format!("the rows cannot be written as CSV: {error}"));
    written.map_err(|error| failed(&error))?;
    let bytes = writer.into_inner().map_err(|error| failed(&error))?;
    String::from_utf8(bytes).map_err(|error| failed(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_is_a_line_and_each_name_a_column() {
        let mut one = Row::new("pool", "plain", "dpdk/ring").with("get", 15).with("kind", "a,b");
        one.put("objects_per_s", 2.5, 1);
        let mut other = Row::new("pool", "plain", "stillpoint/pool").with("put", 1);
        other.void = Some("it \"lost\" one".to_owned());
        let lines = "experiment,scenario,contender,get,kind,put,objects_per_s,void\n\
                     pool,plain,dpdk/ring,15,\"a,b\",,2.5,\n\
                     pool,plain,stillpoint/pool,,,1,,\"it \"\"lost\"\" one\"\n";
        assert_eq!(text(&[one, other]).unwrap(), lines);
    }
}
