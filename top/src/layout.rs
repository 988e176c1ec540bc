//! Regions of the screen, for drawing and for page keys.

use ratatui::layout::Rect;

use crate::facts;
use crate::view::View;

/// Width from which the overview has two halves.
const WIDE: u16 = 110;
/// Most rows of one chart.
const CHART_ROWS_MAX: u16 = 6;

/// Regions of each screen.
pub(crate) struct Regions {
    /// Names of the screens: one row.
    pub(crate) tabs: Rect,
    /// Condition of the process, or the reason for old figures: one row.
    pub(crate) status: Rect,
    /// Contents.
    pub(crate) body: Rect,
    /// Keys, or the filter that is typed: one row.
    pub(crate) footer: Rect,
}

/// Regions of the overview's body. Regions without room are empty.
pub(crate) struct OverviewLayout {
    pub(crate) facts: Rect,
    /// Charts of requests and of bytes.
    pub(crate) charts: [Rect; 2],
    pub(crate) operations: Rect,
    pub(crate) warnings: Rect,
}

impl Regions {
    /// Divides a screen. The body is the first to vanish.
    pub(crate) fn of(area: Rect) -> Self {
        let (tabs, rest) = split(area, 1);
        let (footer_and_body, status_rows) = (rest.height, u16::from(rest.height > 1));
        let (status, rest) = split(rest, status_rows);
        let footer_rows = u16::from(footer_and_body > 0);
        let (body, footer) = split(rest, rest.height.saturating_sub(footer_rows));
        Self { tabs, status, body, footer }
    }
}

/// Returns the rows of a table in a body: one row shows the counts, one the titles.
pub(crate) fn table_rows(body: Rect) -> u16 {
    body.height.saturating_sub(2)
}

impl OverviewLayout {
    /// Divides the body of the overview.
    pub(crate) fn of(body: Rect, view: &View) -> Self {
        let rates = view.history().rates.as_ref();
        let operations = rows_of(rates.map_or(0, |rates| rates.operations.len()));
        let facts = rows_of(facts::all(view).len());
        if body.width >= WIDE {
            wide(body, facts, operations)
        } else {
            narrow(body, facts, operations)
        }
    }

    /// Returns the rows of warnings below their title.
    pub(crate) fn warning_rows(&self) -> u16 {
        self.warnings.height.saturating_sub(1)
    }
}

fn wide(body: Rect, facts: u16, operations: u16) -> OverviewLayout {
    let left = Rect { width: body.width / 2, ..body };
    let right = Rect { x: left.right(), width: body.width - left.width, ..body };
    let (facts, rest) = split(left, facts);
    let rows = (rest.height / 2).min(CHART_ROWS_MAX);
    let (first, rest) = split(rest, rows);
    let (second, _) = split(rest, rows);
    let (operations, warnings) = split(right, with_title(operations).min(right.height / 2));
    OverviewLayout { facts, charts: [first, second], operations, warnings }
}

fn narrow(body: Rect, facts: u16, operations: u16) -> OverviewLayout {
    let (facts, rest) = split(body, facts);
    let charts = match rest.height {
        0..=2 => [0, 0],
        3..=7 => [1, 0],
        8..=13 => [3, 0],
        _ => [3, 3],
    };
    let (first, rest) = split(rest, charts[0]);
    let (second, rest) = split(rest, charts[1]);
    // At least half of the rest is for warnings, and no title stands alone.
    let rows = with_title(operations).min(rest.height / 2);
    let (operations, warnings) = split(rest, if rows < 2 { 0 } else { rows });
    OverviewLayout { facts, charts: [first, second], operations, warnings }
}

fn with_title(rows: u16) -> u16 {
    if rows == 0 { 0 } else { rows.saturating_add(1) }
}

fn rows_of(count: usize) -> u16 {
    u16::try_from(count).unwrap_or(u16::MAX)
}

/// Splits an area below its first rows.
fn split(area: Rect, rows: u16) -> (Rect, Rect) {
    let rows = rows.min(area.height);
    let above = Rect { height: rows, ..area };
    let below = Rect { y: area.y + rows, height: area.height - rows, ..area };
    (above, below)
}
