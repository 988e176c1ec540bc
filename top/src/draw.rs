//! Drawing of the screens.

mod overview;
mod style;
mod table;

use std::fmt::Write;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Paragraph};

use self::style::style;
use crate::cell::Tone;
use crate::facts::{self, Fact};
use crate::keys::HELP;
use crate::layout::Regions;
use crate::schedule::Part;
use crate::screen::Screen;
use crate::text::{columns, padded, span};
use crate::view::{Mode, View};

/// Age from which the figures of a status are marked as old.
const OLD_MS: u64 = 10_000;

/// Draws the view. A frame of any size is filled, and costs its own cells alone.
pub fn draw(frame: &mut Frame<'_>, view: &View) {
    let area = frame.area();
    if area.is_empty() {
        return;
    }
    let Regions { tabs, status, body, footer } = Regions::of(area);
    frame.render_widget(Paragraph::new(names(view, tabs.width)), tabs);
    let condition = condition(view);
    let text = padded(&condition.text, usize::from(status.width), false);
    frame.render_widget(Paragraph::new(Span::styled(text, style(condition.tone, view))), status);
    match view.screen {
        Screen::Overview => overview::draw(frame, body, view),
        _ => table::draw(frame, body, view),
    }
    frame.render_widget(Paragraph::new(last_line(view, footer.width)), footer);
    if view.mode == Mode::Help {
        help(frame, area);
    }
}

/// Returns the names of the screens, the present one marked; on narrow terminals the other screens
/// are numbers.
fn names(view: &View, width: u16) -> Line<'static> {
    let titles: usize = Screen::ALL.iter().map(|it| it.title().len() + 4).sum();
    let is_narrow = titles > usize::from(width);
    let mut spans: Vec<Span<'static>> = Vec::new();
    for screen in Screen::ALL {
        let number = screen.index() + 1;
        let is_present = screen == view.screen;
        let text = match (is_present, is_narrow) {
            (true, _) => format!("[{number} {}]", screen.title()),
            (false, true) => format!(" {number} "),
            (false, false) => format!(" {number} {} ", screen.title()),
        };
        let weight = if is_present { Modifier::BOLD } else { Modifier::empty() };
        spans.push(Span::styled(text, Style::new().add_modifier(weight)));
    }
    let taken: usize = spans.iter().map(|span| columns(&span.content)).sum();
    let left = usize::from(width).saturating_sub(taken);
    if left > columns(view.address()) {
        spans.push(Span::raw(padded(view.address(), left, true)));
    }
    Line::from(spans)
}

/// Returns the condition of the queried process, or the reason why its figures are old.
fn condition(view: &View) -> Fact {
    let parts = [Part::Status, View::part_of(view.screen), Part::Metrics];
    let failed = parts.into_iter().find_map(|part| Some((part, view.slot(part).error.as_ref()?)));
    if let Some((part, reason)) = failed {
        let age = view.age_ms(part).map(|ms| span(ms / 1000));
        let text = match age {
            Some(age) => format!("OLD FIGURES, of {age} ago: {reason}"),
            None => format!("NO FIGURES: {reason}"),
        };
        return Fact { label: "", text, tone: Tone::Bad };
    }
    let Some(status) = view.status() else {
        let text = format!("waiting for the first reply of {}", view.address());
        return Fact { label: "", text, tone: Tone::Busy };
    };
    let mut condition = facts::readiness(status);
    let age_ms = view.age_ms(Part::Status).unwrap_or_default();
    if view.is_paused {
        condition.text =
            format!("PAUSED, figures of {} ago; {}", span(age_ms / 1000), condition.text);
    } else if age_ms >= OLD_MS {
        let _ = write!(condition.text, ", figures of {} ago", span(age_ms / 1000));
    }
    condition
}

fn last_line(view: &View, width: u16) -> Line<'static> {
    let text = if view.mode == Mode::Filter {
        format!("filter: {}_   Enter keeps it, Esc removes it", view.listing().filter())
    } else {
        "q quit  ? help  1-6 screens  p pause  / filter  s sort".to_owned()
    };
    Line::from(Span::styled(
        padded(&text, usize::from(width), false),
        Style::new().add_modifier(Modifier::REVERSED),
    ))
}

fn help(frame: &mut Frame<'_>, area: Rect) {
    let lines = HELP
        .iter()
        .map(|(keys, effect)| Line::raw(format!("{} {effect}", padded(keys, 17, false))));
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), area);
}
