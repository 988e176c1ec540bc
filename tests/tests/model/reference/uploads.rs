//! Multipart uploads, by <https://docs.aws.amazon.com/AmazonS3/latest/userguide/mpuoverview.html>.

use std::collections::BTreeMap;

use bytes::Bytes;
use md5::{Digest, Md5};

use super::copies::copied_range;
use super::listings::{LIMIT_MAX, limit_of};
use super::objects::{quoted, with_version};
use super::state::{Completion, Data, NO_UPLOAD, UploadState, lock_faults};
use super::{Answer, Flaw, Model};
use crate::expected::{Expected, Outcome, Row, Text};
use crate::operation::{
    Conditions, CopyPart, Description, Made, Object, Operation, Step, Tag, Upload, etag,
};

/// Smallest part that is not the last, in bytes.
const PART_MIN: usize = 5 << 20;
/// ETag that no part has.
pub(crate) const WRONG: &str = "0123456789abcdef0123456789abcdef";

impl Model {
    pub(super) fn upload(&mut self, step: Step, operation: &Operation) -> Answer {
        match operation {
            Operation::CreateUpload { object, description } => {
                self.create_upload(step, object, description)
            }
            Operation::UploadPart { upload, number, body, .. } => {
                Ok(self.part(upload, *number, Ok(body.bytes())))
            }
            Operation::CopyPart(copy) => Ok(self.copy_part(copy)),
            Operation::Complete { upload, parts, conditions } => {
                self.complete(step, upload, parts, *conditions)
            }
            Operation::Abort { upload } => {
                self.open(upload)?;
                let bucket = self.state.bucket_mut(upload.object.bucket)?;
                bucket.uploads.remove(&upload.begun.expect("it was found"));
                Ok(Expected::success(204))
            }
            Operation::ListParts { upload, marker, limit } => {
                self.list_parts(upload, *marker, *limit)
            }
            other => unreachable!("{other:?} is of another part of the model"),
        }
    }

    fn create_upload(&mut self, step: Step, object: &Object, description: &Description) -> Answer {
        let faults = lock_faults(description, self.state.bucket(object.bucket)?);
        if !faults.is_empty() {
            return Ok(Expected::failure(faults));
        }
        let description = description.clone();
        let (key, parts) = (object.key.clone(), BTreeMap::new());
        let upload = UploadState { key, description, parts, completed: None };
        self.state.bucket_mut(object.bucket)?.uploads.insert(step, upload);
        let fields = vec![("Key", object.key.as_str().into()), ("UploadId", Text::Upload(step))];
        Ok(Expected::success(200).document(fields, Vec::new()))
    }

    /// Finds an upload that takes parts.
    fn open(&mut self, upload: &Upload) -> Result<&mut UploadState, Outcome> {
        let bucket = self.state.bucket_mut(upload.object.bucket)?;
        let begun = upload.begun.ok_or(NO_UPLOAD)?;
        let found = bucket.uploads.get_mut(&begun).filter(|it| it.key == upload.object.key);
        found.filter(|it| it.completed.is_none()).ok_or(NO_UPLOAD)
    }

    fn part(
        &mut self,
        upload: &Upload,
        number: i32,
        bytes: Result<Bytes, Vec<Outcome>>,
    ) -> Expected {
        let (open, bytes) = match (self.open(upload), bytes) {
            (Ok(open), Ok(bytes)) => (open, bytes),
            (open, bytes) => {
                let faults = open.err().into_iter().chain(bytes.err().unwrap_or_default());
                return Expected::failure(faults.collect());
            }
        };
        let reply = Expected::success(200).header("etag", quoted(&etag(&bytes)));
        open.parts.insert(number, bytes);
        reply
    }

    fn copy_part(&mut self, copy: &CopyPart) -> Expected {
        let source = self.source(&copy.source, copy.version, Conditions::default());
        let shown = source.as_ref().ok().and_then(|it| it.shown);
        let bytes = source.and_then(|source| copied_range(copy.range, &source.data.bytes));
        let etag = bytes.as_ref().map(|it| etag(it)).unwrap_or_default();
        let mut reply = self.part(&copy.upload, copy.number, bytes);
        if reply.is_success() {
            reply.headers.clear();
            let shown = shown.map_or(Text::Absent, Text::Version);
            let fields = vec![("ETag", quoted(&etag).into()), ("LastModified", Text::Present)];
            reply =
                reply.header("x-amz-copy-source-version-id", shown).document(fields, Vec::new());
        }
        reply
    }

    /// CompleteMultipartUpload
    /// (<https://docs.aws.amazon.com/AmazonS3/latest/API/API_CompleteMultipartUpload.html>). A
    /// repetition with the same parts gives the same answer.
    fn complete(
        &mut self,
        step: Step,
        upload: &Upload,
        parts: &[(i32, Tag)],
        conditions: Conditions,
    ) -> Answer {
        let bucket = self.state.bucket(upload.object.bucket)?;
        let found = upload.begun.and_then(|begun| bucket.uploads.get(&begun));
        let Some(found) = found.filter(|it| it.key == upload.object.key) else {
            let judged = self.judge(conditions, bucket.current_data(&upload.object.key));
            return Ok(Expected::failure([vec![NO_UPLOAD], judged].concat()));
        };
        let named = named(found, parts);
        if let Some(completed) = &found.completed {
            return Ok(repeated(completed, &named, conditions));
        }
        let mut faults = part_faults(found, &named);
        faults.extend(self.judge(conditions, bucket.current_data(&upload.object.key)));
        if !faults.is_empty() {
            return Ok(Expected::failure(faults));
        }
        let chosen: Vec<Bytes> = named.iter().map(|it| found.parts[&it.0].clone()).collect();
        let mut data = Data::of(chosen.concat().into(), &found.description);
        if !self.has_flaw(Flaw::HashesWholeUploads) {
            data.etag = joined_etag(&chosen);
        }
        data.part_ends = ends(&chosen);
        let etag = data.etag.clone();
        let made = Made { step, index: 0 };
        let version = self.write(upload.object.bucket, &upload.object.key, made, data);
        let completion = Completion { parts: named, etag, version };
        let reply = completed(&completion);
        let bucket = self.state.bucket_mut(upload.object.bucket)?;
        let begun = upload.begun.expect("it was found");
        let state = bucket.uploads.get_mut(&begun).expect("it was found");
        state.completed = Some(completion);
        Ok(reply)
    }

    /// `ListParts` (<https://docs.aws.amazon.com/AmazonS3/latest/API/API_ListParts.html>).
    fn list_parts(&mut self, upload: &Upload, marker: Option<i32>, limit: Option<&str>) -> Answer {
        let (open, limit) = (self.open(upload)?, limit_of(limit)?);
        let after = marker.unwrap_or(0);
        let row = |(number, bytes): (&i32, &Bytes)| {
            let fields = vec![
                ("PartNumber", number.to_string().into()),
                ("ETag", quoted(&etag(bytes)).into()),
                ("Size", bytes.len().to_string().into()),
            ];
            Row { element: "Part", fields }
        };
        let mut rows: Vec<Row> = open.parts.iter().filter(|it| *it.0 > after).map(row).collect();
        let is_truncated = limit > 0 && rows.len() > limit;
        rows.truncate(limit);
        let fields = vec![
            ("IsTruncated", is_truncated.to_string().into()),
            ("MaxParts", limit.min(LIMIT_MAX).to_string().into()),
            ("Key", upload.object.key.as_str().into()),
        ];
        Ok(Expected::success(200).document(fields, rows))
    }
}

/// ETag of each named part: of the part that is stored, or one that is not.
fn named(upload: &UploadState, parts: &[(i32, Tag)]) -> Vec<(i32, String)> {
    let tag = |(number, tag): &(i32, Tag)| {
        let stored = upload.parts.get(number).filter(|_| *tag == Tag::Right);
        (*number, stored.map_or_else(|| WRONG.to_owned(), |bytes| etag(bytes)))
    };
    parts.iter().map(tag).collect()
}

fn part_faults(upload: &UploadState, named: &[(i32, String)]) -> Vec<Outcome> {
    let mut faults = Vec::new();
    let is_stored = |(number, tag): &(i32, String)| {
        upload.parts.get(number).is_some_and(|bytes| etag(bytes) == *tag)
    };
    if !named.iter().all(is_stored) {
        faults.push((400, "InvalidPart"));
    }
    let before_last = &named[..named.len().saturating_sub(1)];
    let is_small = |number| upload.parts.get(number).is_some_and(|it| it.len() < PART_MIN);
    if before_last.iter().any(|(number, _)| is_small(number)) {
        faults.push((400, "EntityTooSmall"));
    }
    faults
}

fn completed(completion: &Completion) -> Expected {
    let fields = vec![("ETag", quoted(&completion.etag).into())];
    with_version(Expected::success(200).document(fields, Vec::new()), completion.version)
}

/// Reply to a repetition. Of a repetition with conditions S3 documents nothing.
fn repeated(completion: &Completion, named: &[(i32, String)], conditions: Conditions) -> Expected {
    if conditions != Conditions::default() {
        let any = [
            (200, ""),
            NO_UPLOAD,
            (412, "PreconditionFailed"),
            (501, "NotImplemented"),
            (404, "NoSuchKey"),
            (400, "InvalidArgument"),
        ];
        return Expected::failure(any.to_vec());
    }
    if completion.parts == named {
        let mut reply = completed(completion);
        // The version may be gone by then.
        reply.headers.clear();
        return reply;
    }
    Expected::failure(vec![NO_UPLOAD])
}

fn joined_etag(parts: &[Bytes]) -> String {
    let digests: Vec<u8> = parts.iter().flat_map(Md5::digest).collect();
    format!("{}-{}", etag(&digests), parts.len())
}

fn ends(parts: &[Bytes]) -> Vec<usize> {
    let end = |at: &mut usize, part: &Bytes| {
        *at += part.len();
        Some(*at)
    };
    parts.iter().scan(0, end).collect()
}
