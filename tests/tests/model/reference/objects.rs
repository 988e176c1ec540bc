//! PutObject, GetObject, HeadObject, DeleteObject and DeleteObjects.

use bytes::Bytes;

use super::state::{
    ARGUMENT, BucketState, DENIED, Data, FAILED, NO_KEY, NOT_ALLOWED, Stored, Versioning,
    lock_faults, read_conditions, write_conditions,
};
use super::{Answer, Flaw, Model, input};
use crate::checksums::{DEFAULT, HEADERS, checksum};
use crate::expected::{Content, Expected, Outcome, Row, Text, VersionId};
use crate::operation::{
    Bucket, Conditions, Delete, DeleteMany, Description, Made, Put, Read, Retention, Step, Tag,
    Until, Version, etag,
};

impl Data {
    pub(super) fn of(bytes: Bytes, description: &Description) -> Self {
        Self {
            etag: etag(&bytes),
            bytes,
            metadata: description.metadata.clone(),
            content_type: description.content_type,
            tags: description.tags.clone().unwrap_or_default(),
            lock: description.lock.unwrap_or_default(),
            ..Self::default()
        }
    }

    /// Returns true if a removal of the version is refused
    /// (<https://docs.aws.amazon.com/AmazonS3/latest/userguide/object-lock.html>).
    fn is_locked(&self, bypass: bool) -> bool {
        let retained = self.lock.retention.is_some_and(|it| it.compliance || !bypass);
        retained || self.lock.hold == Some(true)
    }
}

impl Model {
    /// PutObject (<https://docs.aws.amazon.com/AmazonS3/latest/API/API_PutObject.html>).
    pub(super) fn put(&mut self, step: Step, put: &Put) -> Answer {
        let bucket = self.state.bucket(put.object.bucket)?;
        let mut faults = lock_faults(&put.description, bucket);
        faults.extend(self.judge(put.conditions, bucket.current_data(&put.object.key)));
        if !faults.is_empty() {
            return Ok(Expected::failure(faults));
        }
        let bytes = put.body.bytes();
        let mut data = Data::of(bytes.clone(), &put.description);
        let reply = Expected::success(200).header("etag", quoted(&data.etag));
        let algorithm = put.checksum.map_or(DEFAULT, |it| it.algorithm);
        let value = checksum(algorithm, &bytes);
        data.checksum = put.checksum.map(|_| (algorithm, value.clone()));
        let reply = reply.header(HEADERS[algorithm], value);
        let made = Made { step, index: 0 };
        let id = self.write(put.object.bucket, &put.object.key, made, data);
        Ok(with_version(reply, id))
    }

    /// Judges the conditions of a write.
    pub(super) fn judge(&self, mut conditions: Conditions, current: Option<&Data>) -> Vec<Outcome> {
        if self.flaw == Flaw::IgnoresNoneMatch {
            conditions.none_match = None;
        }
        write_conditions(conditions, current)
    }

    /// Writes a version, and returns the id that the reply names. While versions are suspended,
    /// the write replaces the null version, and the reply names none
    /// (<https://docs.aws.amazon.com/AmazonS3/latest/userguide/AddingObjectstoVersionSuspendedBuckets.html>).
    pub(super) fn write(
        &mut self,
        bucket: Bucket,
        key: &str,
        made: Made,
        mut data: Data,
    ) -> Option<VersionId> {
        let order = self.state.next_write();
        let bucket = self.state.bucket_mut(bucket).expect("the bucket was found");
        if bucket.default_retention {
            let tomorrow = Retention { compliance: false, until: Until::Tomorrow };
            data.lock.retention.get_or_insert(tomorrow);
        }
        let versions = bucket.keys.entry(key.to_owned()).or_default();
        let kept = bucket.versioning == Versioning::Enabled;
        let id = if kept { VersionId::Made(made) } else { VersionId::Null };
        versions.retain(|it| it.id != id);
        versions.insert(0, Stored { id, order, data: Some(data) });
        kept.then_some(id)
    }

    /// GetObject and HeadObject (<https://docs.aws.amazon.com/AmazonS3/latest/API/API_GetObject.html>).
    pub(super) fn read(&mut self, read: &Read) -> Answer {
        let bucket = self.state.bucket(read.object.bucket)?;
        let stored = bucket.find(&read.object.key, read.version)?;
        let Some(data) = &stored.data else {
            let outcome = if read.version == Version::Current { NO_KEY } else { NOT_ALLOWED };
            let reply = Expected::failure(vec![outcome]).header("x-amz-delete-marker", "true");
            return Ok(with_version(reply, bucket.shown(stored.id)));
        };
        match read_conditions(read.conditions) {
            Some(412) => return Err(FAILED),
            Some(status) => {
                return Ok(Expected::success(status).header("etag", quoted(&data.etag)));
            }
            None => {}
        }
        let (status, range) = match read.part {
            Some(number) => part_of(data, number)?,
            None => range_of(read.range, data.bytes.len())?,
        };
        let reply = Expected::success(status);
        let size = data.bytes.len();
        let reply = match (status, range.end.checked_sub(1)) {
            // The last part of an upload may be empty, and S3 documents no range of nothing.
            (206, _) if range.is_empty() => reply,
            (206, Some(last)) => {
                reply.header("content-range", format!("bytes {}-{last}/{size}", range.start))
            }
            _ => reply.header("content-range", Text::Absent),
        };
        Ok(read_headers(reply, bucket, stored, data)
            .header("content-length", range.len().to_string())
            .with(if read.head { Content::Any } else { Content::Bytes(data.bytes.slice(range)) }))
    }

    /// DeleteObject (<https://docs.aws.amazon.com/AmazonS3/latest/API/API_DeleteObject.html>).
    pub(super) fn delete(&mut self, step: Step, delete: &Delete) -> Answer {
        let (bucket, key) = (self.state.bucket(delete.object.bucket)?, &delete.object.key);
        let faults = delete_faults(bucket, key, delete);
        if !faults.is_empty() {
            return Ok(Expected::failure(faults));
        }
        let found = bucket.find(key, delete.version).ok().and_then(|it| it.data.as_ref());
        if found.is_none() && delete.matches.is_some() {
            return Ok(Expected::success(204));
        }
        let made = Made { step, index: 0 };
        let removed = self.remove(delete.object.bucket, key, delete.version, made);
        let marker = present(removed.marker, "true");
        let reply = Expected::success(204).header("x-amz-delete-marker", marker);
        if delete.version == Version::Missing {
            return Ok(reply.header("x-amz-version-id", Text::Present));
        }
        Ok(with_version(reply, removed.version))
    }

    /// Removes a version, or marks the key as deleted.
    fn remove(&mut self, bucket: Bucket, key: &str, version: Version, made: Made) -> Removed {
        let hides = self.flaw == Flaw::HidesOlderVersions;
        let order = self.state.next_write();
        let bucket = self.state.bucket_mut(bucket).expect("the bucket was found");
        let found = bucket.find(key, version).map(|it| (it.id, it.data.is_none())).ok();
        let versions = bucket.keys.entry(key.to_owned()).or_default();
        let removed = match (version, bucket.versioning) {
            (Version::Current, Versioning::Off) => {
                versions.clear();
                Removed::default()
            }
            (Version::Current, versioning) => {
                let kept = versioning == Versioning::Enabled;
                let id = if kept { VersionId::Made(made) } else { VersionId::Null };
                versions.retain(|it| it.id != id);
                versions.insert(0, Stored { id, order, data: None });
                Removed { marker: true, version: Some(id) }
            }
            (named, _) => {
                let was_current = versions.first().map(|it| it.id) == found.map(|it| it.0);
                versions.retain(|it| Some(it.id) != found.map(|it| it.0));
                if hides && was_current && found.is_some() && !versions.is_empty() {
                    versions.remove(0);
                }
                let version = match named {
                    Version::Null => Some(VersionId::Null),
                    Version::Of(made) => Some(VersionId::Made(made)),
                    _ => None,
                };
                Removed { marker: found.is_some_and(|it| it.1), version }
            }
        };
        if versions.is_empty() {
            bucket.keys.remove(key);
        }
        removed
    }

    /// DeleteObjects (<https://docs.aws.amazon.com/AmazonS3/latest/API/API_DeleteObjects.html>).
    pub(super) fn delete_many(&mut self, step: Step, delete: &DeleteMany) -> Answer {
        self.state.bucket(delete.bucket)?;
        let (mut deleted, mut errors) = (Vec::new(), Vec::new());
        for (index, (key, version)) in delete.objects.iter().enumerate() {
            let object = crate::operation::Object { bucket: delete.bucket, key: key.clone() };
            let one = Delete { object, version: *version, matches: None, bypass: delete.bypass };
            let bucket = self.state.bucket(delete.bucket)?;
            let mut faults = input::of_delete(&one);
            faults.extend(delete_faults(bucket, key, &one));
            if let Some((_, code)) = faults.first() {
                let fields = vec![("Key", key.as_str().into()), ("Code", (*code).into())];
                errors.push(Row { element: "Error", fields });
                continue;
            }
            let removed = self.remove(delete.bucket, key, *version, Made { step, index });
            if !delete.quiet {
                deleted.push(deleted_row(key, *version, &removed));
            }
        }
        Ok(Expected::success(200).document(Vec::new(), [deleted, errors].concat()))
    }
}

/// Outcome of a removal.
#[derive(Default)]
struct Removed {
    marker: bool,
    version: Option<VersionId>,
}

fn deleted_row(key: &str, version: Version, removed: &Removed) -> Row {
    let is_named = version != Version::Current;
    let shown =
        |id: Option<VersionId>, so: bool| id.filter(|_| so).map_or(Text::Absent, Text::Version);
    let named = match removed.version {
        None if is_named => Text::Present,
        id => shown(id, is_named),
    };
    let fields = vec![
        ("Key", key.into()),
        ("VersionId", named),
        ("DeleteMarker", present(removed.marker, "true")),
        ("DeleteMarkerVersionId", shown(removed.version, removed.marker)),
    ];
    Row { element: "Deleted", fields }
}

/// Faults of a removal. A condition of one version is judged on that version. One that finds no
/// object is met unless it is `*`, and nothing is done; a delete marker meets none (docs/S3.md,
/// Conditions and Versions).
fn delete_faults(bucket: &BucketState, key: &str, delete: &Delete) -> Vec<Outcome> {
    let mut faults = Vec::new();
    let stored = bucket.find(key, delete.version).ok();
    let found = stored.and_then(|it| it.data.as_ref());
    match (delete.matches, found) {
        (Some(Tag::Wrong), Some(_)) | (Some(Tag::Any), None) => faults.push(FAILED),
        (Some(_), None) if stored.is_some() => faults.push(FAILED),
        _ => {}
    }
    let removes = delete.version != Version::Current;
    if removes && found.is_some_and(|data| data.is_locked(delete.bypass)) {
        faults.push(DENIED);
    }
    faults
}

pub(super) fn quoted(etag: &str) -> String {
    format!("\"{etag}\"")
}

fn present(is_so: bool, text: &str) -> Text {
    if is_so { text.into() } else { Text::Absent }
}

/// Adds the version that a reply names.
pub(super) fn with_version(reply: Expected, id: Option<VersionId>) -> Expected {
    reply.header("x-amz-version-id", id.map_or(Text::Absent, Text::Version))
}

fn read_headers(reply: Expected, bucket: &BucketState, stored: &Stored, data: &Data) -> Expected {
    let mut reply = with_version(reply, bucket.shown(stored.id))
        .header("etag", quoted(&data.etag))
        .header("accept-ranges", "bytes")
        .header("last-modified", Text::Modified(stored.order))
        .header("content-type", data.content_type.unwrap_or("binary/octet-stream"));
    let count = data.tags.len();
    reply = reply.header("x-amz-tagging-count", present(count > 0, &count.to_string()));
    // A checksum of the whole goes with the whole.
    let is_whole = reply.outcomes == [(200, "")];
    if let Some((algorithm, value)) = data.checksum.as_ref().filter(|_| is_whole) {
        reply = reply.header(HEADERS[*algorithm], Text::Is(value.clone()));
    }
    if let Some(hold) = data.lock.hold {
        let text = if hold { "ON" } else { "OFF" };
        reply = reply.header("x-amz-object-lock-legal-hold", text);
    }
    let mode =
        data.lock.retention.map(|it| if it.compliance { "COMPLIANCE" } else { "GOVERNANCE" });
    reply = reply.header("x-amz-object-lock-mode", mode.map_or(Text::Absent, Text::from));
    for name in ["x-amz-meta-a", "x-amz-meta-b"] {
        let value = data.metadata.iter().find(|it| name.ends_with(&format!("-{}", it.0)));
        reply.headers.push((name, value.map_or(Text::Absent, |it| it.1.as_str().into())));
    }
    reply
}

/// Status and bytes of a part. An object that was put at once has one part.
fn part_of(data: &Data, number: i32) -> Result<(u16, std::ops::Range<usize>), Outcome> {
    let at = usize::try_from(number - 1).map_err(|_| ARGUMENT)?;
    if data.part_ends.is_empty() && at == 0 {
        // Nothing is no range.
        return Ok((if data.bytes.is_empty() { 200 } else { 206 }, 0..data.bytes.len()));
    }
    let end = data.part_ends.get(at).ok_or((416, "InvalidPartNumber"))?;
    let start = at.checked_sub(1).map_or(0, |before| data.part_ends[before]);
    Ok((206, start..*end))
}

/// Status and bytes of a `Range`. An invalid range, and several ranges, give the whole object.
pub(super) fn range_of(
    range: Option<&str>,
    size: usize,
) -> Result<(u16, std::ops::Range<usize>), Outcome> {
    let beyond: Outcome = (416, "InvalidRange");
    let whole = Ok((200, 0..size));
    let Some((first, last)) = range.and_then(|it| it.strip_prefix("bytes=")?.split_once('-'))
    else {
        return whole;
    };
    match (first.parse::<usize>(), last.parse::<usize>()) {
        (Ok(first), Ok(last)) if first > last => whole,
        (Ok(first), _) if first >= size && (last.is_empty() || last.parse::<usize>().is_ok()) => {
            Err(beyond)
        }
        (Ok(first), Ok(last)) => Ok((206, first..size.min(last + 1))),
        (Ok(first), _) if last.is_empty() => Ok((206, first..size)),
        (_, Ok(0)) if first.is_empty() => Err(beyond),
        // The end of an empty object is the whole of it (docs/S3.md, Limits).
        (_, Ok(_)) if first.is_empty() && size == 0 => whole,
        (_, Ok(length)) if first.is_empty() => Ok((206, size.saturating_sub(length)..size)),
        _ => whole,
    }
}
