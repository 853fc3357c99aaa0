//! Tables on the terminal: plain text, so that they look the same in a file.

use comfy_table::{CellAlignment, LineStyle, Table, TableStyle};

/// One line below the header, and nothing else.
const STYLE: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// A table whose first `left` columns hold names; the others hold figures, aligned to the right.
pub(crate) fn of_figures(header: &[&str], left: usize) -> Table {
    let mut table = Table::new();
    table.load_style(STYLE).set_header(header.to_vec());
    for column in table.column_iter_mut().skip(left) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// The table without blanks at the ends of its lines.
pub(crate) fn text(table: &Table) -> String {
    table.trim_fmt()
}
