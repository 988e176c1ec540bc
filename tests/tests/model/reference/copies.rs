//! CopyObject, and the source of every copy.

use bytes::Bytes;

use super::Model;
use super::objects::{quoted, with_version};
use super::state::{ARGUMENT, Data, FAILED, NO_KEY, REQUEST, lock_faults, read_conditions};
use crate::expected::{Expected, Outcome, Text, VersionId};
use crate::operation::{Conditions, Copy, Description, Made, Object, Step, Version};

/// Source of a copy.
pub(super) struct Source {
    pub(super) data: Data,
    /// Version that the reply names.
    pub(super) shown: Option<VersionId>,
}

impl Model {
    /// CopyObject (<https://docs.aws.amazon.com/AmazonS3/latest/API/API_CopyObject.html>).
    pub(super) fn copy(&mut self, step: Step, copy: &Copy) -> Expected {
        let mut faults = Vec::new();
        let source = self.source(&copy.source, copy.version, copy.source_conditions);
        if let Err(outcomes) = &source {
            faults.extend(outcomes);
        }
        let onto_itself = copy.source == copy.object && copy.version == Version::Current;
        if onto_itself && copy.replace.is_none() {
            faults.push(REQUEST);
        }
        let description = Description {
            tags: copy.tags.clone(),
            lock: copy.replace.as_ref().and_then(|it| it.lock),
            metadata: copy.replace.as_ref().map(|it| it.metadata.clone()).unwrap_or_default(),
            content_type: copy.replace.as_ref().and_then(|it| it.content_type),
        };
        match self.state.bucket(copy.object.bucket) {
            Ok(bucket) => {
                faults.extend(lock_faults(&description, bucket));
                let current = bucket.current_data(&copy.object.key);
                faults.extend(self.judge(copy.conditions, current));
            }
            Err(outcome) => faults.push(outcome),
        }
        let Ok(Source { data, shown }) = source else { return Expected::failure(faults) };
        if !faults.is_empty() {
            return Expected::failure(faults);
        }
        let mut new = Data::of(data.bytes, &description);
        if copy.replace.is_none() {
            (new.metadata, new.content_type) = (data.metadata, data.content_type);
        }
        if copy.tags.is_none() {
            new.tags = data.tags;
        }
        // A copy has a checksum of its source's algorithm.
        new.checksum = None;
        new.lock = description.lock.unwrap_or_default();
        let fields = vec![("ETag", quoted(&new.etag).into()), ("LastModified", Text::Present)];
        let made = Made { step, index: 0 };
        let id = self.write(copy.object.bucket, &copy.object.key, made, new);
        let reply = Expected::success(200)
            .header("x-amz-copy-source-version-id", shown.map_or(Text::Absent, Text::Version))
            .document(fields, Vec::new());
        with_version(reply, id)
    }

    /// Finds the source of a copy. A delete marker is 404 as the current version, and 400 by its
    /// id. A condition that doesn't hold is 412, never 304.
    pub(super) fn source(
        &self,
        source: &Object,
        version: Version,
        conditions: Conditions,
    ) -> Result<Source, Vec<Outcome>> {
        let found = self.state.bucket(source.bucket).and_then(|bucket| {
            let stored = bucket.find(&source.key, version)?;
            Ok((bucket, stored))
        });
        let (bucket, stored) = found.map_err(|it| vec![it])?;
        let Some(data) = &stored.data else {
            return Err(vec![if version == Version::Current { NO_KEY } else { REQUEST }]);
        };
        if read_conditions(conditions).is_some() {
            return Err(vec![FAILED]);
        }
        // A version that the request names is named in the reply, too.
        let shown =
            if version == Version::Null { Some(stored.id) } else { bucket.shown(stored.id) };
        Ok(Source { data: data.clone(), shown })
    }
}

/// Bytes that `x-amz-copy-source-range` names. Both ends are required and lie within the source
/// (<https://docs.aws.amazon.com/AmazonS3/latest/API/API_UploadPartCopy.html>). S3 requires a source
/// of over 5 MiB; here a source of any size has ranges (docs/S3.md, Limits).
pub(super) fn copied_range(range: Option<&str>, bytes: &Bytes) -> Result<Bytes, Vec<Outcome>> {
    let Some(range) = range else { return Ok(bytes.clone()) };
    match copy_ends(range) {
        Some((first, last)) if last < bytes.len() => Ok(bytes.slice(first..=last)),
        Some(_) => Err(vec![ARGUMENT, (416, "InvalidRange")]),
        None => Err(vec![ARGUMENT]),
    }
}

/// First and last byte of a range.
pub(super) fn copy_ends(range: &str) -> Option<(usize, usize)> {
    let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last).then_some((first, last))
}
