//! What changes an object without bringing bytes: delete, tags, copy.

use std::sync::Arc;

use martlet_protocol::WriteId;
use martlet_protocol::backend::{RegisterView, Want};
use martlet_protocol::entry::{ChecksumAlgorithm, ChecksumKind, ETag, Object, Value};
use martlet_protocol::limits::{COMMIT_WINDOW_MS, PUT_BYTES_MAX};

use crate::api::{
    CopyObject, Deleted, Incoming, ReadConditions, Selection, WriteConditions, Written,
};
use crate::bucket::busy;
use crate::error::{Error, Result};
use crate::index::{Failed, Landed, Proposal, Step};
use crate::put::object_of;
use crate::store::{Inner, ObjectStore};

impl ObjectStore {
    /// Deletes an object. Without conditions, one that isn't there is no error.
    ///
    /// # Errors
    /// [`Error::PreconditionFailed`].
    pub async fn delete(
        &self,
        bucket: &str,
        key: &str,
        conditions: &WriteConditions,
    ) -> Result<Deleted> {
        let inner = &self.inner();
        let mut site = inner.site(bucket, key).await?;
        if conditions.is_empty() && inner.cluster.index().replicas() == 1 {
            // A key that isn't there needs no tombstone. With more replicas there may be one that
            // is out and has it, or a hint that was not delivered yet.
            let view = inner.read(&site.key, Want::Entry, inner.level(&site.bucket)).await?;
            if object_of(&view).is_none() {
                return Ok(Deleted { stamp: None });
            }
        }
        let write_id = WriteId::random();
        for _ in 0..2 {
            let commit_by_ms = inner.stamps.now_ms() + COMMIT_WINDOW_MS;
            let intent = site.intent(write_id, commit_by_ms);
            let landed = if conditions.is_empty() {
                inner.write(intent, &Value::Tombstone, None, false).await?
            } else {
                let mut evaluate = |view: &RegisterView| {
                    let object = object_of(view);
                    conditions.check_delete(object)?;
                    Ok(match object {
                        Some(_) => Step::Write(Proposal::of(Value::Tombstone)),
                        None => Step::Keep,
                    })
                };
                let decided = inner.decide(intent, &mut evaluate).await;
                decided.map_err(Failed::of_conditions)?
            };
            match landed {
                Landed::At(stamp) => return Ok(Deleted { stamp: Some(stamp) }),
                Landed::Kept(_) => return Ok(Deleted { stamp: None }),
                Landed::Fenced => site.bucket = inner.refreshed(bucket, &site.bucket).await?,
            }
        }
        Err(busy())
    }

    /// Gives an object other tags. Its bytes stay where they are: the entry is a new write, and the
    /// extents stay those of the write that brought them.
    ///
    /// # Errors
    /// [`Error::NoSuchKey`].
    pub async fn set_tags(
        &self,
        bucket: &str,
        key: &str,
        tags: Vec<(String, String)>,
    ) -> Result<Written> {
        let inner = &self.inner();
        let mut site = inner.site(bucket, key).await?;
        let write_id = WriteId::random();
        let mut tagged: Option<Object> = None;
        for _ in 0..2 {
            let commit_by_ms = inner.stamps.now_ms() + COMMIT_WINDOW_MS;
            let mut evaluate = |view: &RegisterView| {
                let mut object = object_of(view).ok_or(Error::NoSuchKey)?.clone();
                object.attributes.tags.clone_from(&tags);
                tagged = Some(object.clone());
                let value = Value::Object(Box::new(object));
                Ok(Step::Write(Proposal { value, inline: view.inline.clone(), keep_body: true }))
            };
            let landed = inner.decide(site.intent(write_id, commit_by_ms), &mut evaluate).await?;
            match (landed, tagged.take()) {
                (Landed::At(stamp), Some(object)) => return Ok(Written { object, stamp }),
                _ => site.bucket = inner.refreshed(bucket, &site.bucket).await?,
            }
        }
        Err(busy())
    }

    /// Copies an object. The copy has extents of its own (rule X1); its bytes are checked against
    /// the source's ETag on the way.
    ///
    /// # Errors
    /// [`Error::NoSuchKey`], [`Error::PreconditionFailed`], [`Error::InvalidRequest`] for a copy
    /// onto itself that changes nothing, [`Error::EntityTooLarge`].
    pub async fn copy(&self, bucket: &str, key: &str, copy: CopyObject) -> Result<Written> {
        let (from_bucket, from_key) = (&copy.source.0, &copy.source.1);
        let unchanged = copy.attributes.is_none()
            && copy.tags.is_none()
            && copy.storage_class.is_none()
            && copy.checksum.is_none();
        if unchanged && from_bucket == bucket && from_key == key {
            return Err(Error::InvalidRequest(
                "a copy of an object onto itself has to change something about it".into(),
            ));
        }
        let inner = self.inner();
        let site = inner.site(bucket, key).await?;
        let found = inner.find(from_bucket, from_key, Want::EntryAndInline).await?;
        let source: Arc<Object> = found.object.clone();
        copy.source_conditions.check_source(&source)?;
        if source.size > PUT_BYTES_MAX {
            return Err(Error::EntityTooLarge { size: source.size, maximum: PUT_BYTES_MAX });
        }
        let compute = match copy.checksum {
            Some(algorithm) => vec![algorithm],
            None => source.checksums.iter().map(|sum| sum.algorithm).collect(),
        };
        let expected = expected(&source, &compute);
        let body = Incoming {
            bytes: inner.open(&found, 0..source.size).await?,
            size: Some(source.size),
            md5: match source.etag {
                ETag::Md5(md5) => Some(md5),
                ETag::Multipart { .. } => None,
            },
            compute,
            expected: Box::new(move || Ok(expected)),
        };
        let tags = copy.tags.unwrap_or_else(|| source.attributes.tags.clone());
        let mut attributes = copy.attributes.unwrap_or_else(|| {
            let mut attributes = source.attributes.clone();
            attributes.website_redirect = None;
            attributes
        });
        attributes.tags = tags;
        attributes.storage_class = copy.storage_class;
        let written = inner.put_at(site, key, body, attributes, &copy.conditions).await;
        written.map_err(|error| match error {
            Error::BadDigest | Error::BadChecksum(_) | Error::Body(_) => {
                martlet_protocol::Error::corrupt("the source of the copy is not what was written")
                    .into()
            }
            other => other,
        })
    }
}

impl Inner {
    /// Selected bytes of an object as a body of its own.
    pub(crate) async fn source_of(
        self: &Arc<Self>,
        source: &(String, String),
        conditions: &ReadConditions,
        selection: Selection,
    ) -> Result<Incoming> {
        let found = self.find(&source.0, &source.1, Want::EntryAndInline).await?;
        conditions.check_source(&found.object)?;
        let selected = self.select(&found.object, selection).await?;
        let size = selected.range.end - selected.range.start;
        Ok(Incoming {
            bytes: self.open(&found, selected.range).await?,
            size: Some(size),
            md5: None,
            compute: Vec::new(),
            expected: Box::new(|| Ok(Vec::new())),
        })
    }
}

/// The checksums of all the bytes that a copy computes again, and must find as they were.
fn expected(source: &Object, compute: &[ChecksumAlgorithm]) -> Vec<(ChecksumAlgorithm, Vec<u8>)> {
    let whole = source.checksums.iter().filter(|sum| sum.kind == ChecksumKind::FullObject);
    let again = whole.filter(|sum| compute.contains(&sum.algorithm));
    again.map(|sum| (sum.algorithm, sum.value.clone())).collect()
}
