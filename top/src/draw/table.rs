//! Drawing of a table: counts, titles, and the rows that the screen has room for.

use std::fmt::Write;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::style::style;
use crate::cell::Cell;
use crate::layout::table_rows;
use crate::listing::{Column, Listing};
use crate::text::{columns, padded, span};
use crate::view::View;

/// Columns of space between two cells.
const GAP: usize = 2;
/// Width to which wide columns shrink before others are left out.
const WIDE: usize = 24;
/// Least width of a column.
const LEAST: usize = 4;

/// Draws the table of the present screen.
pub(super) fn draw(frame: &mut Frame<'_>, body: Rect, view: &View) {
    let listing = view.listing();
    let height = usize::from(table_rows(body));
    let width = usize::from(body.width);
    let page: Vec<&[Cell]> = listing.page(height).collect();
    let mut lines = vec![Line::raw(padded(&counts(view, height), width, false))];
    if listing.total() > 0 {
        let shown = shown(listing, &page, width);
        lines.push(titles(listing, &shown));
        lines.extend(page.iter().map(|row| cells(row, &shown, view)));
    }
    frame.render_widget(Paragraph::new(lines), body);
}

/// Returns the number of rows, the sort and the filter as a sentence.
fn counts(view: &View, height: usize) -> String {
    let listing = view.listing();
    let title = view.screen.title();
    let part = View::part_of(view.screen);
    let Some(age_ms) = view.age_ms(part) else {
        return match &view.slot(part).error {
            Some(reason) => format!("{title}: {reason}"),
            None => format!("{title}: waiting for the first reply"),
        };
    };
    let (first, all) = (listing.first_of_page(height), listing.len());
    let last = (first + height).min(all);
    let mut text = match all {
        0 => format!("{title}: none"),
        _ => format!("{title} {} to {last} of {all}", first + 1),
    };
    if !listing.filter().is_empty() {
        let _ = write!(text, " with \"{}\", of {} in all", listing.filter(), listing.total());
    }
    if let Some(column) = listing.sort.and_then(|column| listing.columns().get(column)) {
        let _ = write!(text, ", by {}", column.title);
    }
    if age_ms >= 1000 {
        let _ = write!(text, ", {} old", span(age_ms / 1000));
    }
    text
}

/// Column that is shown, with its width.
struct Shown {
    at: usize,
    column: Column,
    width: usize,
}

/// Returns the columns that fit. Their widths are those of the visible cells.
fn shown(listing: &Listing, page: &[&[Cell]], width: usize) -> Vec<Shown> {
    let widest = |at: usize, title: &str| {
        let cells = page.iter().filter_map(|row| row.get(at)).map(|cell| columns(&cell.text()));
        // A mark shows the sort beside the title.
        cells.max().unwrap_or(0).max(columns(title) + 1)
    };
    let all = listing.columns().iter().enumerate();
    let mut shown: Vec<Shown> = all
        .map(|(at, column)| Shown { at, column: *column, width: widest(at, column.title) })
        .collect();
    let surplus = |shown: &[Shown]| {
        let taken = shown.iter().map(|it| it.width + GAP).sum::<usize>();
        taken.saturating_sub(GAP + width)
    };
    shrink(&mut shown, &surplus, WIDE);
    while surplus(&shown) > 0 {
        let highest = shown.iter().map(|it| it.column.rank).max().unwrap_or(0);
        if highest == 0 {
            break;
        }
        shown.retain(|it| it.column.rank < highest);
    }
    shrink(&mut shown, &surplus, LEAST);
    shown
}

/// Shrinks the widest columns by the surplus, each to `least` at most.
fn shrink(shown: &mut [Shown], surplus: &impl Fn(&[Shown]) -> usize, least: usize) {
    loop {
        let too_much = surplus(shown);
        let widest = shown.iter_mut().max_by_key(|it| it.width);
        match widest {
            Some(widest) if too_much > 0 && widest.width > least => {
                widest.width = widest.width.saturating_sub(too_much).max(least);
            }
            _ => return,
        }
    }
}

fn titles(listing: &Listing, shown: &[Shown]) -> Line<'static> {
    let title = |it: &Shown| {
        let mark = match (listing.sort == Some(it.at), listing.is_descending) {
            (true, true) => "▼",
            (true, false) => "▲",
            (false, _) => "",
        };
        let text = format!("{}{mark}", it.column.title);
        padded(&text, it.width, it.column.is_figure) + &" ".repeat(GAP)
    };
    let text: String = shown.iter().map(title).collect();
    Line::styled(text, Style::new().add_modifier(Modifier::BOLD))
}

fn cells(row: &[Cell], shown: &[Shown], view: &View) -> Line<'static> {
    let cell = |it: &Shown| {
        let cell = row.get(it.at)?;
        let text = padded(&cell.text(), it.width, it.column.is_figure) + &" ".repeat(GAP);
        Some(Span::styled(text, style(cell.tone(), view)))
    };
    Line::from(shown.iter().filter_map(cell).collect::<Vec<_>>())
}
