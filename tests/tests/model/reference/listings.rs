//! ListObjects, `ListObjectsV2`, `ListObjectVersions` and `ListMultipartUploads`.

use super::objects::quoted;
use super::state::{ARGUMENT, BucketState};
use super::{Answer, Flaw, Model};
use crate::expected::{Content, Expected, Outcome, Row, Text};
use crate::operation::{List, Listed};

/// Longest page.
pub(crate) const LIMIT_MAX: usize = 1000;

/// Reads the limit of a page. More than S3's limit counts as that.
pub(super) fn limit_of(limit: Option<&str>) -> Result<usize, Outcome> {
    let Some(text) = limit else { return Ok(LIMIT_MAX) };
    let limit: i32 = text.parse().map_err(|_| ARGUMENT)?;
    Ok(usize::try_from(limit).map_err(|_| ARGUMENT)?.min(LIMIT_MAX))
}

/// An entry of a listing, by its key.
struct Entry {
    key: String,
    row: Row,
}

impl Model {
    pub(super) fn list(&mut self, list: &List) -> Answer {
        let (mut rows, limit) = (self.rows(list)?, limit_of(list.limit)?);
        // An empty page is never truncated.
        let is_truncated = limit > 0 && rows.len() > limit;
        rows.truncate(limit);
        let count = rows.len();
        let max = match list.listed {
            Listed::Uploads => "MaxUploads",
            _ => "MaxKeys",
        };
        let mut fields = vec![
            ("IsTruncated", is_truncated.to_string().into()),
            ("Prefix", Text::from(list.prefix.as_str())),
            (max, limit.to_string().into()),
        ];
        if !list.delimiter.is_empty() {
            fields.push(("Delimiter", list.delimiter.as_str().into()));
        }
        if list.listed == Listed::ObjectsV2 {
            fields.push(("KeyCount", count.to_string().into()));
        }
        Ok(Expected::success(200).with(Content::Document { fields, rows }))
    }

    /// All rows of a listing behind its marker: the entries, and the prefixes that they are folded
    /// to.
    pub(crate) fn rows(&self, list: &List) -> Result<Vec<Row>, Outcome> {
        let bucket = self.state.bucket(list.bucket)?;
        let entries = match list.listed {
            Listed::Objects | Listed::ObjectsV2 => objects(bucket),
            Listed::Versions => versions(bucket),
            Listed::Uploads => uploads(bucket),
        };
        let after = list.marker.as_deref().unwrap_or_default();
        let is_listed = |it: &Entry| it.key.starts_with(&list.prefix) && it.key.as_str() > after;
        let mut rows: Vec<Row> = Vec::new();
        for entry in entries.into_iter().filter(is_listed) {
            let row = match self.folded(list, &entry.key) {
                Some(prefix) => {
                    Row { element: "CommonPrefixes", fields: vec![("Prefix", prefix.into())] }
                }
                None => entry.row,
            };
            if row.element != "CommonPrefixes" || rows.last() != Some(&row) {
                rows.push(row);
            }
        }
        Ok(rows)
    }

    fn folded(&self, list: &List, key: &str) -> Option<String> {
        if list.delimiter.is_empty() || self.has_flaw(Flaw::IgnoresDelimiters) {
            return None;
        }
        let at = key[list.prefix.len()..].find(&list.delimiter)?;
        Some(key[..list.prefix.len() + at + list.delimiter.len()].to_owned())
    }

    pub(super) fn has_flaw(&self, flaw: Flaw) -> bool {
        self.flaw == flaw
    }
}

/// Current objects (<https://docs.aws.amazon.com/AmazonS3/latest/API/API_ListObjectsV2.html>), in
/// the order of UTF-8.
fn objects(bucket: &BucketState) -> Vec<Entry> {
    let keys = bucket.keys.keys().filter_map(|key| Some((key, bucket.current_data(key)?)));
    keys.map(|(key, data)| {
        let fields = vec![
            ("Key", key.as_str().into()),
            ("ETag", quoted(&data.etag).into()),
            ("Size", data.bytes.len().to_string().into()),
            ("StorageClass", "STANDARD".into()),
        ];
        Entry { key: key.clone(), row: Row { element: "Contents", fields } }
    })
    .collect()
}

/// Versions and delete markers
/// (<https://docs.aws.amazon.com/AmazonS3/latest/API/API_ListObjectVersions.html>), newest first
/// within a key.
fn versions(bucket: &BucketState) -> Vec<Entry> {
    let mut entries = Vec::new();
    for (key, versions) in &bucket.keys {
        for (at, stored) in versions.iter().enumerate() {
            let mut fields = vec![
                ("Key", Text::from(key.as_str())),
                ("VersionId", Text::Version(stored.id)),
                ("IsLatest", (at == 0).to_string().into()),
            ];
            let element = if let Some(data) = &stored.data {
                fields.push(("ETag", quoted(&data.etag).into()));
                fields.push(("Size", data.bytes.len().to_string().into()));
                "Version"
            } else {
                "DeleteMarker"
            };
            entries.push(Entry { key: key.clone(), row: Row { element, fields } });
        }
    }
    entries
}

/// Open uploads (<https://docs.aws.amazon.com/AmazonS3/latest/API/API_ListMultipartUploads.html>),
/// by key and then by the time when they began.
fn uploads(bucket: &BucketState) -> Vec<Entry> {
    let open = bucket.uploads.iter().filter(|(_, it)| it.completed.is_none());
    let mut entries: Vec<Entry> = open
        .map(|(step, upload)| {
            let fields =
                vec![("Key", upload.key.as_str().into()), ("UploadId", Text::Upload(*step))];
            Entry { key: upload.key.clone(), row: Row { element: "Upload", fields } }
        })
        .collect();
    entries.sort_by(|one, other| one.key.cmp(&other.key));
    entries
}
