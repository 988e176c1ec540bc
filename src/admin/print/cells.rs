//! Cells of tables: sizes, time spans, shares as bars and percentages.

/// Length of a bar in cells.
const BAR_CELLS: u32 = 20;

/// Formats a size such as `1.5 GiB`.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let power = (0..UNITS.len()).rev().find(|power| bytes >> (10 * power) > 0).unwrap_or(0);
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    let number = bytes as f64 / (1u64 << (10 * power)) as f64;
    if power == 0 { format!("{bytes} B") } else { format!("{number:.1} {}", UNITS[power]) }
}

/// Formats a span such as `45 s`, `3 min`, `2 h` or `5 d`.
pub(crate) fn span(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7_199 => format!("{} min", seconds / 60),
        7_200..=172_799 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// Formats a time such as `2026-11-28 02:30:00Z`.
pub(crate) fn time(ms: u64) -> String {
    let format =
        time::macros::format_description!("[year]-[month]-[day] [hour]:[minute]:[second]Z");
    let seconds = i64::try_from(ms / 1000).ok();
    let time = seconds.and_then(|seconds| time::OffsetDateTime::from_unix_timestamp(seconds).ok());
    time.and_then(|time| time.format(&format).ok()).unwrap_or_else(|| format!("{ms} ms"))
}

/// Draws a share from 0 to 1 as a bar: `████████▌···········`. Cells above `mark` use another
/// character, and `│` shows the mark in an empty cell.
pub(super) fn bar(share: f64, mark: f64) -> String {
    let cells = |share: f64| share.clamp(0.0, 1.0) * f64::from(BAR_CELLS);
    let (filled, mark) = (cells(share), cells(mark));
    let cell = |at: u32| {
        let at = f64::from(at);
        let is_mark = at <= mark && mark < at + 1.0;
        match filled - at {
            part if part >= 0.75 && at >= mark => '▓',
            part if part >= 0.75 => '█',
            part if part >= 0.25 => '▌',
            _ if is_mark => '│',
            _ => '·',
        }
    };
    (0..BAR_CELLS).map(cell).collect()
}

/// Formats a percentage such as `42.1 %`.
pub(super) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// Returns cells as a row of a table.
pub(super) fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_well() {
        assert_eq!(size(0), "0 B");
        assert_eq!(size(1023), "1023 B");
        assert_eq!(size(1536), "1.5 KiB");
        assert_eq!(size(5 << 30), "5.0 GiB");
    }

    #[test]
    fn spans_read_well() {
        let read = [(0, "0 s"), (119_999, "119 s"), (180_000, "3 min"), (7_200_000, "2 h")];
        for (ms, text) in read {
            assert_eq!(span(ms), text);
        }
        assert_eq!(span(3 * 86_400_000), "3 d");
    }

    #[test]
    fn bars_show_how_full_and_where_the_mark_is() {
        assert_eq!(bar(0.0, 1.0), "·".repeat(20));
        assert_eq!(bar(0.5, 0.9), "██████████········│·");
        assert_eq!(bar(0.525, 0.9), "██████████▌·······│·");
        assert_eq!(bar(1.0, 0.9), "██████████████████▓▓");
        assert_eq!(bar(7.0, 1.0), "█".repeat(20));
    }
}
