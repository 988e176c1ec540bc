//! Answers for people: bars and numbers.

use std::fmt::{self, Write};

/// Cells of a bar; a device that holds exactly its share fills those up to the mark.
const BAR_CELLS: u32 = 20;
const SHARE_CELLS: u32 = 14;

/// What is held against what should be, as a bar: `█████████████│      `. The mark stands at the
/// share; a bar that ends before it holds too little, one that goes beyond it too much.
pub(super) fn bar(held: f64, desired: f64) -> String {
    let filled = match (desired > 0.0, held > 0.0) {
        (true, _) => (held / desired * f64::from(SHARE_CELLS)).round().min(f64::from(BAR_CELLS)),
        (false, true) => f64::from(BAR_CELLS),
        (false, false) => 0.0,
    };
    let cell = |at: u32| match (f64::from(at) < filled, at == SHARE_CELLS) {
        (true, true) => '▓',
        (true, false) => '█',
        (false, true) => '│',
        (false, false) => ' ',
    };
    (0..=BAR_CELLS).map(cell).collect()
}

/// `+0.12 %`; nothing where it can't be said.
pub(super) fn deviation(balance: f64) -> String {
    if balance >= martlet_ring::BALANCE_WORST {
        return "should be empty".to_owned();
    }
    // No minus sign for what rounds to zero.
    let rounded = (balance * 100.0).round() / 100.0 + 0.0;
    format!("{rounded:+.2} %")
}

/// `1.5 TiB`.
#[expect(clippy::cast_precision_loss, reason = "for people")]
pub(super) fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let power = (0..UNITS.len()).rev().find(|power| bytes >> (10 * power) > 0).unwrap_or(0);
    let number = bytes as f64 / (1u64 << (10 * power)) as f64;
    if power == 0 { format!("{bytes} B") } else { format!("{number:.1} {}", UNITS[power]) }
}

/// `1,234,567`.
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 device`, `2 devices`.
pub(super) fn counted(number: u64, thing: &str) -> String {
    format!("{} {thing}{}", count(number), if number == 1 { "" } else { "s" })
}

/// Writes to the end of a text.
pub(super) fn say(text: &mut String, what: fmt::Arguments<'_>) {
    text.write_fmt(what).expect("a string takes all that is written");
}

/// A row of cells.
pub(super) fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}
