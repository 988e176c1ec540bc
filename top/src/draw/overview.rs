//! Drawing of the overview: facts, charts of the last minutes, operations and warnings.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Sparkline, SparklineBar};

use super::style::style;
use crate::cell::Tone;
use crate::facts;
use crate::layout::OverviewLayout;
use crate::metrics::Point;
use crate::text::{count, padded, size};
use crate::view::View;

/// Width of labels.
const LABEL: u16 = 10;

/// Chart of the history.
struct Chart {
    label: &'static str,
    value: fn(&Point) -> Option<f64>,
    text: fn(f64) -> String,
}

const CHARTS: [Chart; 2] = [
    Chart { label: "requests", value: |point| point.requests, text: count },
    Chart { label: "bytes out", value: |point| point.bytes_out, text: size },
];

/// Draws the body of the overview.
pub(super) fn draw(frame: &mut Frame<'_>, body: Rect, view: &View) {
    let layout = OverviewLayout::of(body, view);
    let width = usize::from(layout.facts.width.saturating_sub(LABEL));
    let lines = facts::all(view).into_iter().map(|fact| {
        let label = padded(fact.label, usize::from(LABEL), false);
        let text = padded(&fact.text, width, false);
        Line::from(vec![Span::raw(label), Span::styled(text, style(fact.tone, view))])
    });
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), layout.facts);
    for (chart, area) in CHARTS.iter().zip(layout.charts) {
        draw_chart(frame, area, view, chart);
    }
    draw_operations(frame, layout.operations, view);
    draw_warnings(frame, &layout, view);
}

fn draw_chart(frame: &mut Frame<'_>, area: Rect, view: &View, chart: &Chart) {
    if area.is_empty() || area.width <= LABEL {
        return;
    }
    let label_area = Rect { width: LABEL, ..area };
    let bars = Rect { x: label_area.right(), width: area.width - LABEL, ..area };
    let points = &view.history().points;
    let skipped = points.len().saturating_sub(usize::from(bars.width));
    let values: Vec<Option<f64>> = points.iter().skip(skipped).map(chart.value).collect();
    let peak = values.iter().flatten().copied().fold(0.0, f64::max);
    let peak_text = format!("{}/s", (chart.text)(peak));
    let label = [chart.label.to_owned(), "peak".to_owned(), peak_text];
    let label = label.map(|text| Line::raw(padded(&text, usize::from(LABEL - 1), false)));
    frame.render_widget(Paragraph::new(label.to_vec()), label_area);
    let bar = |value: &Option<f64>| SparklineBar::from(value.map(|it| thousandths(it, peak)));
    let sparkline = Sparkline::default()
        .data(values.iter().map(bar))
        .max(1000)
        .absent_value_symbol("·")
        .style(style(Tone::Busy, view));
    frame.render_widget(sparkline, bars);
}

/// Returns a value in thousandths of the peak.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the result is from 0 to 1000"
)]
fn thousandths(value: f64, peak: f64) -> u64 {
    if peak > 0.0 { (value / peak * 1000.0).clamp(0.0, 1000.0) as u64 } else { 0 }
}

fn draw_operations(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let Some(rates) = &view.history().rates else { return };
    let rows = usize::from(area.height.saturating_sub(1));
    let row = |name: &str, requests: &str, errors: &str| {
        padded(name, 30.min(usize::from(area.width / 2)), false)
            + &padded(requests, 10, true)
            + &padded(errors, 10, true)
    };
    let mut lines = vec![Line::styled(row("operation", "requests", "errors"), bold())];
    lines.extend(rates.operations.iter().take(rows).map(|it| {
        let tone = if it.errors > 0.0 { Tone::Bad } else { Tone::Calm };
        let per_second = |rate: f64| format!("{}/s", count(rate));
        let text = row(&it.name, &per_second(it.requests), &per_second(it.errors));
        Line::styled(text, style(tone, view))
    }));
    frame.render_widget(Paragraph::new(lines), area);
}

fn draw_warnings(frame: &mut Frame<'_>, layout: &OverviewLayout, view: &View) {
    let listing = view.listing();
    let height = usize::from(layout.warning_rows());
    let (first, all) = (listing.first_of_page(height), listing.len());
    let title = match all {
        _ if view.status().is_none() => "warnings: unknown yet".to_owned(),
        0 => "warnings: none".to_owned(),
        _ => format!("warnings {} to {} of {all}", first + 1, (first + height).min(all)),
    };
    let with = match listing.filter() {
        "" => String::new(),
        filter => format!(" with \"{filter}\", of {} in all", listing.total()),
    };
    let width = usize::from(layout.warnings.width);
    let mut lines = vec![Line::styled(padded(&(title + &with), width, false), bold())];
    lines.extend(listing.page(height).filter_map(|row| row.first()).map(|cell| {
        Line::styled(padded(&format!("! {}", cell.text()), width, false), style(cell.tone(), view))
    }));
    frame.render_widget(Paragraph::new(lines), layout.warnings);
}

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}
