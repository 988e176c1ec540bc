//! Cells of tables: values that are formatted when they are drawn, and compared when they are
//! sorted.

use std::cmp::Ordering;

use crate::text::{bar, count, float, percent, size, span};

/// Characters of a bar.
const BAR_CELLS: u16 = 10;

/// Weight of a state. Its text has the meaning; a colour repeats it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tone {
    /// Fault.
    Bad,
    /// Warning.
    Warn,
    /// Work under way.
    Busy,
    /// As it should be.
    Good,
    /// Without a weight.
    #[default]
    Calm,
}

/// Value of a table. Texts are escaped.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cell {
    /// Escaped text.
    Text(String),
    /// Escaped name of a state.
    State(String, Tone),
    /// Number.
    Number(u64),
    /// Number of items per second.
    Pace(f64),
    /// Bytes.
    Bytes(u64),
    /// Share from 0 to 1, as a percentage.
    Share(Option<f64>),
    /// Percentage.
    Percent(f64),
    /// Share from 0 to 1 and its high-water mark, as a bar.
    Bar(f64, f64),
    /// Span in seconds.
    Span(Option<u64>),
    /// Milliseconds by which a clock leads.
    Clock(Option<i64>),
}

/// Text of a value that is unknown or does not apply.
const NONE: &str = "-";

impl Cell {
    /// Formats the value.
    pub(crate) fn text(&self) -> String {
        let or_none = |text: Option<String>| text.unwrap_or_else(|| NONE.to_owned());
        match self {
            Self::Text(text) | Self::State(text, _) => text.clone(),
            Self::Number(number) => count(float(*number)),
            Self::Pace(rate) => format!("{}/s", count(*rate)),
            Self::Bytes(bytes) => size(float(*bytes)),
            Self::Share(share) => or_none(share.map(percent)),
            Self::Percent(number) => format!("{number:.2} %"),
            Self::Bar(share, mark) => bar(*share, *mark, BAR_CELLS),
            Self::Span(seconds) => or_none(seconds.map(span)),
            Self::Clock(ms) => or_none(ms.map(|ms| format!("{ms:+} ms"))),
        }
    }

    /// Returns the weight of the value.
    pub(crate) fn tone(&self) -> Tone {
        match self {
            Self::State(_, tone) => *tone,
            _ => Tone::Calm,
        }
    }

    /// Returns true if the text contains `needle`, which is in lower case. Figures don't match.
    pub(crate) fn matches(&self, needle: &str) -> bool {
        match self {
            Self::Text(text) | Self::State(text, _) => text.to_lowercase().contains(needle),
            _ => false,
        }
    }

    /// Compares cells of a column. Unknown values are the least.
    pub(crate) fn order(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Text(a), Self::Text(b)) => natural(a, b),
            (Self::State(a, tone), Self::State(b, other)) => tone.cmp(other).then(natural(a, b)),
            (Self::Number(a), Self::Number(b)) | (Self::Bytes(a), Self::Bytes(b)) => a.cmp(b),
            (Self::Span(a), Self::Span(b)) => a.cmp(b),
            (Self::Clock(a), Self::Clock(b)) => a.cmp(b),
            (Self::Share(a), Self::Share(b)) => {
                let number = |share: &Option<f64>| share.unwrap_or(f64::NEG_INFINITY);
                number(a).total_cmp(&number(b))
            }
            (Self::Pace(a), Self::Pace(b))
            | (Self::Percent(a), Self::Percent(b))
            | (Self::Bar(a, _), Self::Bar(b, _)) => a.total_cmp(b),
            _ => Ordering::Equal,
        }
    }
}

/// Compares texts, and digits in them as numbers: `n2` comes before `n10`.
fn natural(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a, b);
    loop {
        let (head_a, rest_a) = run(a);
        let (head_b, rest_b) = run(b);
        let is_number = |head: &str| head.starts_with(|it: char| it.is_ascii_digit());
        let order = if is_number(head_a) && is_number(head_b) {
            let (x, y) = (head_a.trim_start_matches('0'), head_b.trim_start_matches('0'));
            x.len().cmp(&y.len()).then_with(|| x.cmp(y))
        } else {
            head_a.cmp(head_b)
        };
        if order.is_ne() || (rest_a.is_empty() && rest_b.is_empty()) {
            return order;
        }
        (a, b) = (rest_a, rest_b);
    }
}

/// Splits a text after its first run of digits, or of other characters.
fn run(text: &str) -> (&str, &str) {
    let is_digit = |it: char| it.is_ascii_digit();
    let begins_with_digit = text.starts_with(is_digit);
    let end = text.find(|it| is_digit(it) != begins_with_digit).unwrap_or(text.len());
    text.split_at(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_compared_as_numbers() {
        let mut names = ["n10", "n2", "n", "", "n2/d10", "n2/d9", "n002", "m"];
        names.sort_by(|a, b| natural(a, b));
        assert_eq!(names, ["", "m", "n", "n2", "n002", "n2/d9", "n2/d10", "n10"]);
    }

    #[test]
    fn unknown_values_come_first() {
        assert!(Cell::Span(None).order(&Cell::Span(Some(0))).is_lt());
        assert!(Cell::Share(None).order(&Cell::Share(Some(0.0))).is_lt());
        assert!(Cell::Clock(Some(-3)).order(&Cell::Clock(Some(2))).is_lt());
        let state = |text: &str, tone| Cell::State(text.to_owned(), tone);
        assert!(state("ready", Tone::Good).order(&state("offline", Tone::Bad)).is_gt());
    }
}
