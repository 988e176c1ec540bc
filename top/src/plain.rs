//! Plain text of a reading: all screens one after the other, with all rows.

use std::fmt::Write;

use crate::facts;
use crate::listing::{Column, Listing};
use crate::schedule::Part;
use crate::screen::Screen;
use crate::text::{columns, count, padded};
use crate::view::View;

/// Returns the view as text. It has no control characters but line feeds.
pub fn plain(view: &View) -> String {
    let mut text = format!("martlet top of {}\n", view.address());
    if let Some(status) = view.status() {
        let _ = writeln!(text, "{}", facts::readiness(status).text);
    }
    for fact in facts::all(view) {
        let _ = writeln!(text, "{} {}", padded(fact.label, 9, false), fact.text);
    }
    if let Some(rates) = &view.history().rates {
        for it in &rates.operations {
            let (requests, errors) = (count(it.requests), count(it.errors));
            let _ = writeln!(text, "operation {} {requests}/s, errors {errors}/s", it.name);
        }
    }
    for part in Part::ALL {
        if let Some(reason) = &view.slot(part).error {
            let _ = writeln!(text, "{} failed: {reason}", part.name());
        }
    }
    let warnings = view.listing_of(Screen::Overview);
    let _ = writeln!(text, "\nWarnings: {}", warnings.len());
    for row in warnings.page(usize::MAX) {
        let _ = writeln!(text, "! {}", row[0].text());
    }
    for screen in Screen::ALL.into_iter().skip(1) {
        let listing = view.listing_of(screen);
        let _ = writeln!(text, "\n{}: {}", screen.title(), listing.len());
        table(&mut text, listing);
    }
    text
}

fn table(text: &mut String, listing: &Listing) {
    if listing.len() == 0 {
        return;
    }
    let titles = listing.columns();
    let mut widths: Vec<usize> = titles.iter().map(|it| columns(it.title)).collect();
    for row in listing.page(usize::MAX) {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(columns(&cell.text()));
        }
    }
    let titled = titles.iter().map(|it| it.title.to_owned());
    line(text, titles, &widths, titled);
    for row in listing.page(usize::MAX) {
        line(text, titles, &widths, row.iter().map(crate::cell::Cell::text));
    }
}

fn line(
    text: &mut String,
    titles: &[Column],
    widths: &[usize],
    cells: impl Iterator<Item = String>,
) {
    let padded = titles
        .iter()
        .zip(widths)
        .zip(cells)
        .map(|((column, width), cell)| padded(&cell, *width, column.is_figure));
    let line = padded.collect::<Vec<_>>().join("  ");
    text.push_str(line.trim_end());
    text.push('\n');
}
