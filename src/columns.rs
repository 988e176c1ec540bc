//! Plain-text tables with aligned columns.

/// Formats rows of cells as aligned columns; the first row holds the column names. Columns whose
/// indices are in `right` are right-aligned.
pub(crate) fn table(rows: &[Vec<String>], right: &[usize]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|it| it.chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let pad = " ".repeat(widths[column] - cell.chars().count());
            if right.contains(&column) {
                line += &pad;
                line += cell;
            } else {
                line += cell;
                line += &pad;
            }
            line += "  ";
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [vec!["name".into(), "n".into()], vec!["größe".into(), "12".into()]];
        assert_eq!(table(&rows, &[]), "name   n\ngröße  12\n");
        assert_eq!(table(&rows, &[1]), "name    n\ngröße  12\n");
    }
}
