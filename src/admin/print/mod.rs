//! Output of answers, as text or as JSON.
//!
//! * [`cells`]: sizes, time spans, shares and rows of tables.
//! * [`mod@status`]: status of a process and its cluster. [`mod@workers`]: the background workers.
//! * [`editions`]: rings of several processes, compared.
//! * [`forecast`]: capacity and dispersion. [`mod@census`]: results of a census.

mod cells;
mod census;
mod editions;
mod forecast;
mod status;
mod workers;

use martlet_admin_api::{BucketLine, ObjectExtents};
use serde::Serialize;

use self::cells::row;
pub(crate) use self::cells::{size, span, time};
pub(crate) use self::census::census;
pub(crate) use self::editions::NewestRings;
pub(crate) use self::forecast::{capacity, dispersion};
pub(crate) use self::status::{memory_split, status};
pub(crate) use self::workers::workers;
use crate::columns::table;

/// Prints an answer as text or as JSON.
pub(crate) fn show<T: Serialize>(answer: &T, json: bool, text: impl Fn(&T) -> String) {
    if json {
        let json = serde_json::to_string_pretty(answer).expect("plain data can be encoded");
        println!("{json}");
    } else {
        print!("{}", text(answer));
    }
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
    let BucketLine { bucket, id, index_shards, consistency, storage_policy, etags } = line;
    format!(
        "{bucket}: consistency {consistency}, storage policy {storage_policy}, ETags {etags}, \
         id {id}, {index_shards} shards\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inline_objects_are_printed_as_inline() {
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
