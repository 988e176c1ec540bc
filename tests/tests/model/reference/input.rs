//! Faults of a request by itself, whatever the buckets hold.

use super::copies::copy_ends;
use super::listings::limit_of;
use super::objects::range_of;
use super::settings::{DOCUMENTS, LOCK_CONFIGURATIONS};
use super::state::{ARGUMENT, MALFORMED, NO_VERSION, REQUEST, key_faults, tag_faults};
use crate::expected::Outcome;
use crate::operation::{
    Announced, Conditions, Delete, DeleteMany, Description, Digested, Object, Operation, Shape,
    Since, Tag, Until, Version,
};

/// Longest user metadata, in bytes of names and values
/// (<https://docs.aws.amazon.com/AmazonS3/latest/userguide/UsingMetadata.html>).
const METADATA_MAX: usize = 2048;

/// Faults of an operation's values.
pub(super) fn faults(operation: &Operation) -> Vec<Outcome> {
    match operation {
        Operation::CreateNamed { valid: false, .. } => vec![(400, "InvalidBucketName")],
        Operation::Put(put) => [
            key_faults(&put.object),
            of_description(&put.description),
            of_conditions(put.conditions),
            of_dates(put.conditions),
            of_md5(put.md5),
            of_checksum(put.checksum),
        ]
        .concat(),
        Operation::Read(read) => {
            let part = read.part.map_or_else(Vec::new, of_number);
            // An invalid range counts as none.
            let range =
                read.range.filter(|it| !matches!(range_of(Some(it), 1 << 40), Ok((200, _))));
            let both = read.part.and(range).map(|_| REQUEST);
            [of_object(&read.object, read.version), part, both.into_iter().collect()].concat()
        }
        Operation::Delete(delete) => of_delete(delete),
        Operation::DeleteMany(delete) => of_many(delete),
        Operation::Copy(copy) => [
            key_faults(&copy.object),
            of_source(&copy.source, copy.version),
            copy.replace.as_ref().map_or_else(Vec::new, of_description),
            copy.tags.as_ref().map_or_else(Vec::new, |tags| tag_faults(tags, true)),
            of_conditions(copy.conditions),
            of_dates(copy.conditions),
            of_conditions(copy.source_conditions),
            of_dates(copy.source_conditions),
        ]
        .concat(),
        Operation::List(list) => {
            let encoding = list.encoding.filter(|it| *it != "url").map(|_| ARGUMENT);
            limit_of(list.limit).err().into_iter().chain(encoding).collect()
        }
        Operation::SetVersioning { status, .. } => match *status {
            "Enabled" | "Suspended" => Vec::new(),
            "" => vec![(400, "IllegalVersioningConfigurationException")],
            _ => vec![MALFORMED],
        },
        Operation::PutLockConfiguration { variant, .. } => {
            LOCK_CONFIGURATIONS[*variant].fault.into_iter().collect()
        }
        Operation::PutDocument { kind, variant, .. } => {
            DOCUMENTS[*kind].variants[*variant].fault.into_iter().collect()
        }
        other => [of_upload(other), of_version(other)].concat(),
    }
}

fn of_upload(operation: &Operation) -> Vec<Outcome> {
    match operation {
        Operation::CreateUpload { object, description } => {
            [key_faults(object), of_description(description)].concat()
        }
        Operation::UploadPart { upload, number, md5, .. } => {
            [key_faults(&upload.object), of_number(*number), of_md5(*md5)].concat()
        }
        Operation::CopyPart(copy) => [
            key_faults(&copy.upload.object),
            of_number(copy.number),
            of_source(&copy.source, copy.version),
            copy.range.filter(|it| copy_ends(it).is_none()).map(|_| ARGUMENT).into_iter().collect(),
        ]
        .concat(),
        Operation::Complete { upload, parts, conditions } => [
            key_faults(&upload.object),
            parts.iter().flat_map(|(number, _)| of_number(*number)).collect(),
            of_order(parts),
            of_conditions(*conditions),
            of_dates(*conditions),
        ]
        .concat(),
        Operation::Abort { upload } => key_faults(&upload.object),
        Operation::ListParts { upload, limit, .. } => {
            let limit = limit_of(*limit).err();
            [key_faults(&upload.object), limit.into_iter().collect()].concat()
        }
        _ => Vec::new(),
    }
}

fn of_version(operation: &Operation) -> Vec<Outcome> {
    match operation {
        Operation::PutTags { object, version, tags } => {
            [of_object(object, *version), tag_faults(tags, false)].concat()
        }
        Operation::PutRetention { object, version, retention, .. } => {
            let is_past = retention.is_some_and(|it| it.until == Until::Past);
            [of_object(object, *version), is_past.then_some(ARGUMENT).into_iter().collect()]
                .concat()
        }
        Operation::GetTags { object, version }
        | Operation::DeleteTags { object, version }
        | Operation::GetRetention { object, version }
        | Operation::PutHold { object, version, .. }
        | Operation::GetHold { object, version } => of_object(object, *version),
        _ => Vec::new(),
    }
}

/// Faults of a key and a version. S3 doesn't document the look of an id: one that has no look of
/// an id may be an unknown one.
fn of_object(object: &Object, version: Version) -> Vec<Outcome> {
    let mut faults = key_faults(object);
    if version == Version::Malformed {
        faults.extend([ARGUMENT, NO_VERSION]);
    }
    faults
}

/// Faults of a copy's source. A key that is too long is no value of its header.
fn of_source(source: &Object, version: Version) -> Vec<Outcome> {
    let mut faults = of_object(source, version);
    if !key_faults(source).is_empty() {
        faults.push(ARGUMENT);
    }
    faults
}

/// Faults of a list of parts.
fn of_order(parts: &[(i32, Tag)]) -> Vec<Outcome> {
    if parts.is_empty() {
        return vec![MALFORMED];
    }
    let is_out_of_order = parts.windows(2).any(|pair| pair[0].0 >= pair[1].0);
    if is_out_of_order { vec![(400, "InvalidPartOrder")] } else { Vec::new() }
}

fn of_description(description: &Description) -> Vec<Outcome> {
    let mut faults = Vec::new();
    let bytes = description.metadata.iter().map(|(name, value)| name.len() + value.len());
    if bytes.sum::<usize>() > METADATA_MAX {
        faults.push((400, "MetadataTooLarge"));
    }
    if let Some(tags) = &description.tags {
        faults.extend(tag_faults(tags, true));
    }
    let retention = description.lock.and_then(|it| it.retention);
    if retention.is_some_and(|it| it.until == Until::Past) {
        faults.push(ARGUMENT);
    }
    faults
}

/// A condition that can't be read is never taken for none (docs/S3.md, Conditions).
fn of_conditions(conditions: Conditions) -> Vec<Outcome> {
    let given = [conditions.matches, conditions.none_match];
    if given.contains(&Some(Tag::Empty)) { vec![ARGUMENT] } else { Vec::new() }
}

/// A date that can't be read is ignored by reads alone.
fn of_dates(conditions: Conditions) -> Vec<Outcome> {
    let given = [conditions.modified, conditions.unmodified];
    if given.contains(&Some(Since::Malformed)) { vec![ARGUMENT] } else { Vec::new() }
}

fn of_md5(md5: Option<Digested>) -> Vec<Outcome> {
    match md5 {
        Some(Digested::Wrong) => vec![(400, "BadDigest")],
        Some(Digested::Malformed) => vec![(400, "InvalidDigest")],
        _ => Vec::new(),
    }
}

fn of_checksum(checksum: Option<Announced>) -> Vec<Outcome> {
    match checksum.map(|it| it.value) {
        Some(Digested::Wrong) => vec![(400, "BadDigest")],
        Some(Digested::Malformed) => vec![REQUEST],
        _ => Vec::new(),
    }
}

fn of_number(number: i32) -> Vec<Outcome> {
    if (1..=10_000).contains(&number) { Vec::new() } else { vec![ARGUMENT] }
}

/// Faults of one removal.
pub(super) fn of_delete(delete: &Delete) -> Vec<Outcome> {
    let mut faults = key_faults(&delete.object);
    if delete.version == Version::Malformed || delete.matches == Some(Tag::Empty) {
        faults.push(ARGUMENT);
    }
    faults
}

fn of_many(delete: &DeleteMany) -> Vec<Outcome> {
    let mut faults = match delete.shape {
        Shape::Good => Vec::new(),
        Shape::TooMany | Shape::Malformed => vec![MALFORMED],
        Shape::Undigested => vec![REQUEST],
    };
    if delete.objects.is_empty() {
        faults.push(MALFORMED);
    }
    faults
}
