//! Text output: bars, sizes and rows.

use std::fmt::{self, Write};

/// Length of a bar in cells. A device that holds exactly its share fills `SHARE_CELLS` of them.
const BAR_CELLS: u32 = 20;
const SHARE_CELLS: u32 = 14;

/// Draws held against desired replicas as a bar: `█████████████│      `. The mark stands at the
/// share. A shorter bar holds too little, a longer one too much.
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

/// Formats a balance such as `+0.12 %`, or `should be empty` for a device without a share.
pub(super) fn deviation(balance: f64) -> String {
    if balance >= martlet_ring::BALANCE_WORST {
        return "should be empty".to_owned();
    }
    // Adding 0.0 removes the minus sign of a value that rounds to zero.
    let rounded = (balance * 100.0).round() / 100.0 + 0.0;
    format!("{rounded:+.2} %")
}

/// Formats a size such as `1.5 TiB`.
#[expect(clippy::cast_precision_loss, reason = "displayed with one decimal")]
pub(super) fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let power = (0..UNITS.len()).rev().find(|power| bytes >> (10 * power) > 0).unwrap_or(0);
    let number = bytes as f64 / (1u64 << (10 * power)) as f64;
    if power == 0 { format!("{bytes} B") } else { format!("{number:.1} {}", UNITS[power]) }
}

/// Appends formatted text.
pub(super) fn append_line(text: &mut String, what: fmt::Arguments<'_>) {
    text.write_fmt(what).expect("writing to a String can't fail");
}

/// Makes a table row of cells.
pub(super) fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}
