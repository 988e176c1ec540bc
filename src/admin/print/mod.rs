//! Output of answers, as text or as JSON.
//!
//! * [`mod@status`]: status of a process and its cluster. [`mod@workers`]: the background workers.
//! * [`forecast`]: capacity and dispersion. [`mod@census`]: results of a census.

mod census;
mod forecast;
mod status;
mod workers;

use martlet_admin_api::{BucketLine, ObjectExtents};
use serde::Serialize;

pub(crate) use self::census::census;
pub(crate) use self::forecast::{capacity, dispersion};
pub(crate) use self::status::status;
pub(crate) use self::workers::workers;
use crate::columns::table;

/// Length of a bar in cells.
const BAR_CELLS: u32 = 20;

/// Prints an answer as text or as JSON.
pub(crate) fn show<T: Serialize>(answer: &T, json: bool, text: impl Fn(&T) -> String) {
    if json {
        let json = serde_json::to_string_pretty(answer).expect("plain data can be encoded");
        println!("{json}");
    } else {
        print!("{}", text(answer));
    }
}

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

/// Draws a share from 0 to 1 as a bar: `████████▌···········`. Cells above `mark` use another
/// character, and `│` shows the mark in an empty cell.
pub(crate) fn bar(share: f64, mark: f64) -> String {
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
fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

/// Formats the extents of an object, with their files.
pub(crate) fn extents(object: &ObjectExtents) -> String {
    let ObjectExtents { bucket, key, size: bytes, etag, stored, extents } = object;
    let head = format!("{bucket}/{key}  {bytes} bytes  ETag {etag}\n");
    match stored.as_str() {
        "extents" => {}
        "inline" => return head + "inline: stored in the index, without an extent\n",
        _ => return head + "empty: no bytes\n",
    }
    let mut rows =
        vec![row(["object offset", "device", "file offset", "length", "BLAKE3", "file"])];
    rows.extend(extents.iter().map(|extent| {
        vec![
            extent.object_offset.to_string(),
            format!("d{}", extent.device),
            extent.offset.to_string(),
            extent.length.to_string(),
            extent.blake3.clone(),
            extent.path.display().to_string(),
        ]
    }));
    head + &table(&rows, &[])
}

/// Formats the settings of a bucket.
pub(crate) fn bucket(line: &BucketLine) -> String {
    let BucketLine { bucket, id, index_shards, consistency, storage_policy } = line;
    format!(
        "{bucket}: consistency {consistency}, storage policy {storage_policy}, id {id}, \
         {index_shards} shards\n"
    )
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

    #[test]
    fn inline_objects_say_so() {
        let object = ObjectExtents {
            bucket: "b".into(),
            key: "k".into(),
            size: 3,
            etag: "e".into(),
            stored: "inline".into(),
            extents: Vec::new(),
        };
        assert!(extents(&object).contains("inline: stored in the index"));
    }
}
