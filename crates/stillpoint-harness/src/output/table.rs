//! Tables on the terminal: plain text, so that they look the same in a file.

use comfy_table::{CellAlignment, LineStyle, Table, TableStyle};

use super::json::Row;
use super::{heading, say};

/// One line below the header, and no other lines.
const STYLE: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// A column: its header, and what it shows of a row.
pub type Column<'a> = (&'a str, &'a dyn Fn(&Row) -> String);

/// Prints a caption, and below it a table with a line for each row. The first `left` columns hold names.
pub fn of_rows<'r>(
    caption: &str,
    columns: &[Column<'_>],
    left: usize,
    rows: impl IntoIterator<Item = &'r Row>,
) {
    let header: Vec<&str> = columns.iter().map(|&(header, _)| header).collect();
    let cells = |row| columns.iter().map(|(_, cell)| cell(row)).collect::<Vec<String>>();
    of_lines(caption, &header, left, rows.into_iter().map(cells));
}

/// The same for lines of cells.
pub fn of_lines(
    caption: &str,
    header: &[&str],
    left: usize,
    lines: impl IntoIterator<Item = impl Into<comfy_table::Row>>,
) {
    let mut table = of_figures(header, left);
    for line in lines {
        table.add_row(line);
    }
    heading(caption);
    say(text(&table));
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
