//! Aligns columns of text. Pure.

/// Aligns `rows` under `head`, with two spaces between columns and none at the end.
pub fn align<const N: usize>(head: [&str; N], rows: &[[String; N]]) -> String {
    let mut widths = head.map(|cell| cell.chars().count());
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    let head = head.map(str::to_owned);
    for row in std::iter::once(&head).chain(rows) {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            line.push_str(cell);
            line.push_str(&" ".repeat(width + 2 - cell.chars().count()));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::align;

    #[test]
    fn columns_line_up_and_lines_end_clean() {
        let rows = [["web".to_owned(), "ü".to_owned()], ["a-long-name".to_owned(), String::new()]];
        assert_eq!(
            align(["NAME", "STATE"], &rows),
            "NAME         STATE\nweb          ü\na-long-name\n"
        );
    }
}
