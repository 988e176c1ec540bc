//! Listing: a table with its filter, order of rows and scroll position.

use std::cmp::Reverse;

use crate::cell::Cell;

/// Maximum number of characters of a filter.
const FILTER_MAX: usize = 64;

/// Column of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    /// Title.
    pub(crate) title: &'static str,
    /// True for figures, which are aligned at the right.
    pub(crate) is_figure: bool,
    /// Columns of the highest rank are left out first on narrow screens. Rank 0 always stays.
    pub(crate) rank: u8,
}

/// Rows of a table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    pub(crate) columns: &'static [Column],
    pub(crate) rows: Vec<Vec<Cell>>,
}

/// Table of a screen, as its user arranged it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Listing {
    table: Table,
    /// Indices of the rows that the filter keeps, in their order.
    order: Vec<usize>,
    /// Column that orders the rows. `None` keeps the order of the table.
    pub(crate) sort: Option<usize>,
    /// True if the greatest value comes first.
    pub(crate) is_descending: bool,
    filter: String,
    offset: usize,
}

impl Listing {
    /// Replaces the rows.
    pub(crate) fn replace(&mut self, table: Table) {
        self.table = table;
        self.arrange();
    }

    /// Returns the columns.
    pub(crate) fn columns(&self) -> &'static [Column] {
        self.table.columns
    }

    /// Returns the number of rows that the filter keeps.
    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    /// Returns the number of all rows.
    pub(crate) fn total(&self) -> usize {
        self.table.rows.len()
    }

    /// Returns the first visible row of a page of `height` rows. The last page is full.
    pub(crate) fn first_of_page(&self, height: usize) -> usize {
        self.offset.min(self.len().saturating_sub(height))
    }

    /// Returns the visible rows of a page.
    pub(crate) fn page(&self, height: usize) -> impl Iterator<Item = &[Cell]> {
        let rows = self.order.iter().skip(self.first_of_page(height)).take(height);
        rows.map(|at| self.table.rows[*at].as_slice())
    }

    /// Returns the filter.
    pub(crate) fn filter(&self) -> &str {
        &self.filter
    }

    /// Sets the filter: rows stay if one of their texts contains it, in any case.
    pub(crate) fn set_filter(&mut self, filter: &str) {
        self.filter = filter.chars().filter(|it| !it.is_control()).take(FILTER_MAX).collect();
        self.offset = 0;
        self.arrange();
    }

    /// Orders the rows by the next column; after the last column, by the order of the table.
    pub(crate) fn sort_by_next(&mut self) {
        let next = self.sort.map_or(0, |column| column + 1);
        self.sort = Some(next).filter(|next| *next < self.table.columns.len());
        // The greatest figure is of interest, and the first name.
        let column = self.sort.and_then(|column| self.table.columns.get(column));
        self.is_descending = column.is_some_and(|column| column.is_figure);
        self.arrange();
    }

    /// Reverses the order.
    pub(crate) fn reverse(&mut self) {
        self.is_descending = !self.is_descending;
        self.arrange();
    }

    /// Scrolls by rows, up to the last page of `height` rows.
    pub(crate) fn scroll(&mut self, by: isize, height: usize) {
        self.offset = self.first_of_page(height).saturating_add_signed(by);
        self.offset = self.first_of_page(height);
    }

    fn arrange(&mut self) {
        let rows = &self.table.rows;
        let needle = self.filter.to_lowercase();
        let stays = |row: &[Cell]| needle.is_empty() || row.iter().any(|it| it.matches(&needle));
        self.order = (0..rows.len()).filter(|at| stays(&rows[*at])).collect();
        match (self.sort, self.is_descending) {
            (None, false) => {}
            (None, true) => self.order.sort_by_key(|at| Reverse(*at)),
            (Some(column), is_descending) => self.order.sort_by(|a, b| {
                let order = match (rows[*a].get(column), rows[*b].get(column)) {
                    (Some(a), Some(b)) => a.order(b),
                    _ => std::cmp::Ordering::Equal,
                };
                if is_descending { order.reverse() } else { order }
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: &[Column] = &[
        Column { title: "name", is_figure: false, rank: 0 },
        Column { title: "bytes", is_figure: true, rank: 0 },
    ];

    fn listing(rows: u64) -> Listing {
        let row = |at: u64| vec![Cell::Text(format!("N{at}")), Cell::Bytes(at * 7 % 10)];
        let mut listing = Listing::default();
        listing.replace(Table { columns: COLUMNS, rows: (0..rows).map(row).collect() });
        listing
    }

    fn names(listing: &Listing, height: usize) -> Vec<String> {
        listing.page(height).map(|row| row[0].text()).collect()
    }

    #[test]
    fn rows_are_ordered_by_one_column_after_the_other() {
        let mut listing = listing(4);
        listing.sort_by_next();
        assert_eq!(names(&listing, 9), ["N0", "N1", "N2", "N3"]);
        listing.sort_by_next();
        assert_eq!(names(&listing, 9), ["N1", "N2", "N3", "N0"], "the greatest figure first");
        listing.reverse();
        assert_eq!(names(&listing, 9), ["N0", "N3", "N2", "N1"]);
        listing.sort_by_next();
        assert_eq!((listing.sort, names(&listing, 2)), (None, vec!["N0".into(), "N1".into()]));
        listing.reverse();
        assert_eq!(names(&listing, 2), ["N3", "N2"]);
    }

    #[test]
    fn a_filter_keeps_rows_in_any_case_and_survives_new_rows() {
        let mut all = listing(200);
        all.set_filter("n19");
        assert_eq!((all.len(), all.total()), (11, 200));
        assert_eq!(names(&all, 2), ["N19", "N190"]);
        all.replace(listing(20).table);
        assert_eq!(names(&all, 9), ["N19"]);
        all.set_filter("nothing");
        assert_eq!((all.len(), names(&all, 9).len()), (0, 0));
        all.set_filter(&"x\u{1b}".repeat(500));
        assert_eq!(all.filter(), "x".repeat(64));
    }

    #[test]
    fn scrolling_ends_at_both_ends() {
        let mut all = listing(60_000);
        all.scroll(-5, 10);
        assert_eq!(all.first_of_page(10), 0);
        all.scroll(isize::MAX, 10);
        assert_eq!(names(&all, 10).last().unwrap(), "N59999");
        all.scroll(-1, 10);
        assert_eq!(all.first_of_page(10), 59_989);
        assert_eq!(all.first_of_page(100), 59_900, "a taller screen keeps its last page full");
        all.replace(listing(3).table);
        assert_eq!(names(&all, 10).len(), 3);
        all.scroll(1, 10);
        assert_eq!(all.first_of_page(10), 0);
    }
}
