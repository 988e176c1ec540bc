//! Styles of tones. A terminal without colours has weights alone, and the texts carry the meaning.

use ratatui::style::{Color, Modifier, Style};

use crate::cell::Tone;
use crate::view::View;

/// Returns the style of a tone.
pub(super) fn style(tone: Tone, view: &View) -> Style {
    let weight = match tone {
        Tone::Bad => Style::new().add_modifier(Modifier::BOLD),
        _ => Style::new(),
    };
    let colour = match tone {
        Tone::Bad => Color::Red,
        Tone::Warn => Color::Yellow,
        Tone::Busy => Color::Cyan,
        Tone::Good => Color::Green,
        Tone::Calm => return weight,
    };
    if view.has_colour() { weight.fg(colour) } else { weight }
}
