//! Changes of objects without a request body: delete, tags, copy.

use std::sync::Arc;

use martlet_protocol::backend::{RegisterView, Want};
use martlet_protocol::entry::{
    ChecksumAlgorithm, ChecksumKind, DeleteMarker, ETag, Entry, Object, Value,
};
use martlet_protocol::limits::{COMMIT_WINDOW_MS, PUT_BYTES_MAX};
use martlet_protocol::lock::Bypass;
use martlet_protocol::{Version, VersionId, WriteId};

use crate::api::{
    CopyObject, DeleteConditions, Deleted, Incoming, ObjectName, ReadConditions, Selection, Written,
};
use crate::bucket::{again_if_replaced, busy};
use crate::encryption::Whose;
use crate::error::{Error, Result};
use crate::index::{Failed, Intent, Landed, Proposal, Step};
use crate::put::{Site, object_of};
use crate::quota::Asked;
use crate::store::{Inner, ObjectStore};
use crate::versions::New;

impl ObjectStore {
    /// Deletes an object; in a versioned bucket, adds a delete marker. Without conditions, a
    /// missing object is no error.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`], [`Error::PreconditionFailed`].
    pub async fn delete(
        &self,
        bucket: &str,
        key: &str,
        conditions: impl Into<DeleteConditions>,
    ) -> Result<Deleted> {
        let (inner, conditions) = (&self.inner(), &conditions.into());
        again_if_replaced(|| inner.delete(bucket, key, conditions)).await
    }

    /// Deletes one version of an object for good, unless it is locked. A missing version is no
    /// error.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`], [`Error::Locked`], or too few nodes replied.
    pub async fn delete_version(
        &self,
        bucket: &str,
        key: &str,
        version: VersionId,
    ) -> Result<Deleted> {
        let nothing = DeleteConditions::default();
        self.delete_version_past(bucket, (key, version), Bypass::Nothing, &nothing).await
    }

    /// Deletes a version like [`ObjectStore::delete_version`], with a bypass of governance locks
    /// and with conditions.
    ///
    /// # Errors
    /// As [`ObjectStore::delete_version`], and [`Error::PreconditionFailed`].
    pub async fn delete_version_past(
        &self,
        bucket: &str,
        (key, version): (&str, VersionId),
        bypass: Bypass,
        conditions: &DeleteConditions,
    ) -> Result<Deleted> {
        let inner = &self.inner();
        let what = (version, bypass);
        again_if_replaced(|| inner.delete_version(bucket, key, what, conditions)).await
    }

    /// Replaces the tags of an object. The entry is written anew; its bytes, extents and version
    /// stay. The extents keep the owner that wrote them.
    ///
    /// # Errors
    /// [`Error::NoSuchKey`], [`Error::NoSuchVersion`], [`Error::DeleteMarker`].
    pub async fn set_tags(
        &self,
        bucket: &str,
        name: impl Into<ObjectName<'_>>,
        tags: Vec<(String, String)>,
    ) -> Result<Written> {
        let mut change = |_: &Entry, object: &Object| {
            let mut object = object.clone();
            object.attributes.tags.clone_from(&tags);
            Ok(Some(object))
        };
        self.inner().revise_object(bucket, name.into(), &mut change).await
    }

    /// Copies an object. The copy has extents of its own (rule X1). The copied bytes are verified
    /// against the source's ETag and checksums.
    ///
    /// # Errors
    /// [`Error::NoSuchKey`], [`Error::PreconditionFailed`], [`Error::InvalidRequest`] for a copy
    /// onto itself that changes nothing, [`Error::EntityTooLarge`].
    pub async fn copy(&self, bucket: &str, key: &str, copy: CopyObject) -> Result<Written> {
        let (from_bucket, from_key) = (&copy.source.0, &copy.source.1);
        let unchanged = copy.attributes.is_none()
            && copy.tags.is_none()
            && copy.storage_class.is_none()
            && copy.checksum.is_none()
            && copy.source_version.is_none();
        let inner = self.inner();
        if unchanged && !inner.speaks_of_keys() && from_bucket == bucket && from_key == key {
            return Err(Error::InvalidRequest(
                "a copy of an object onto itself must change something".into(),
            ));
        }
        let site = inner.site(bucket, key).await?;
        let source = ObjectName { key: from_key, version: copy.source_version };
        let found = inner.find(from_bucket, source, Want::EntryAndInline).await;
        let found = found.map_err(no_source)?;
        let source: Arc<Object> = found.object.clone();
        let secret = inner.unlock(found.locked.as_ref(), Whose::Source)?;
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
            bytes: inner.open(&found, 0..source.size, secret).await?,
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
        attributes.marks = copy.marks;
        attributes.storage_class = copy.storage_class;
        let written = inner.put_at(site, key, body, attributes, &copy.conditions).await;
        let written = written.map(|it| Written { source_version: source.version, ..it });
        written.map_err(|error| match error {
            Error::BadDigest { .. } | Error::BadChecksum(_) | Error::Body(_) => {
                martlet_protocol::Error::corrupt("the source of the copy is corrupt").into()
            }
            other => other,
        })
    }
}

impl Inner {
    async fn delete(
        &self,
        bucket: &str,
        key: &str,
        conditions: &DeleteConditions,
    ) -> Result<Deleted> {
        let mut site = self.site(bucket, key).await?;
        let write_id = WriteId::random();
        for _ in 0..2 {
            let commit_by_ms = self.stamps.now_ms() + COMMIT_WINDOW_MS;
            let intent = site.intent(write_id, commit_by_ms);
            let (landed, version) = if site.bucket.versioning().state.keeps_versions() {
                let charge = Box::pin(self.charge(&site.bucket, Asked::marker(key))).await?;
                let put = self.put_marker(&site, intent, conditions).await;
                let put = self.or_replaced(&site, put).await?;
                if let Landed::At(_) = put.0 {
                    charge.written(self.stamps.now_ms());
                }
                put
            } else if self.needs_no_tombstone(&site, conditions).await? {
                self.check_site(&site).await?;
                return Ok(Deleted { stamp: None, version: None, is_marker: false });
            } else {
                let put = self.put_tombstone(intent, conditions).await;
                (self.or_replaced(&site, put).await?, None)
            };
            let (version, is_marker) = (version.map(Version::name), version.is_some());
            match landed {
                Landed::At(stamp) => return Ok(Deleted { stamp: Some(stamp), version, is_marker }),
                Landed::Kept(_) => {
                    self.check_site(&site).await?;
                    return Ok(Deleted { stamp: None, version: None, is_marker: false });
                }
                Landed::Fenced => site.bucket = self.refreshed(bucket, &site.bucket).await?,
            }
        }
        Err(busy())
    }

    async fn delete_version(
        &self,
        bucket: &str,
        key: &str,
        (version, bypass): (VersionId, Bypass),
        conditions: &DeleteConditions,
    ) -> Result<Deleted> {
        let gone = |stamp, is_marker| Deleted { stamp, version: Some(version), is_marker };
        if matches!(version, VersionId::Numbered { .. })
            && !self.bucket_with_versions(bucket).await?.versioning().state.keeps_versions()
        {
            return Ok(gone(None, false));
        }
        let mut site = self.site(bucket, key).await?;
        let write_id = WriteId::random();
        for _ in 0..2 {
            let commit_by_ms = self.stamps.now_ms() + COMMIT_WINDOW_MS;
            let intent = site.intent(write_id, commit_by_ms);
            let (landed, was_marker) = if site.bucket.versioning().state.keeps_versions() {
                let what = (version, bypass);
                let removed = self.remove_version(&site, intent, what, conditions).await;
                self.or_replaced(&site, removed).await?
            } else {
                let put = self.put_tombstone(intent, conditions).await;
                (self.or_replaced(&site, put).await?, false)
            };
            match landed {
                Landed::At(stamp) => return Ok(gone(Some(stamp), was_marker)),
                Landed::Kept(_) => {
                    self.check_site(&site).await?;
                    return Ok(gone(None, false));
                }
                Landed::Fenced => site.bucket = self.refreshed(bucket, &site.bucket).await?,
            }
        }
        Err(busy())
    }

    /// Returns `outcome`. For a failed precondition, first checks that the bucket wasn't replaced.
    async fn or_replaced<T>(&self, site: &Site<'_>, outcome: Result<T, Failed>) -> Result<T> {
        let is_condition = |failed: &Failed| matches!(failed.error, Error::PreconditionFailed(_));
        if outcome.as_ref().is_err_and(is_condition) {
            self.check_site(site).await?;
        }
        Ok(outcome?)
    }

    /// Returns true if deleting a missing key needs no tombstone. Only with one replica: with more,
    /// an unreachable replica or a pending hint may hold the key.
    async fn needs_no_tombstone(
        &self,
        site: &Site<'_>,
        conditions: &DeleteConditions,
    ) -> Result<bool> {
        if !conditions.is_empty() || self.cluster.index().replicas() > 1 {
            return Ok(false);
        }
        let view = self.read(&site.key, Want::Entry, self.level(&site.bucket)).await?;
        Ok(object_of(&view).is_none())
    }

    async fn put_tombstone(
        &self,
        intent: Intent<'_>,
        conditions: &DeleteConditions,
    ) -> Result<Landed, Failed> {
        if conditions.is_empty() {
            return self.write(intent, &Value::Tombstone, None, false).await;
        }
        if let Some(view) = self.absence(intent.key).await {
            conditions.check(None).map_err(Failed::clean)?;
            return Ok(Landed::Kept(view));
        }
        let mut evaluate = |view: &RegisterView| {
            conditions.check(view.entry.as_ref().map(|entry| &entry.value))?;
            Ok(match object_of(view) {
                Some(_) => Step::Write(Proposal::of(Value::Tombstone)),
                None => Step::Keep,
            })
        };
        self.decide(intent, &mut evaluate).await.map_err(Failed::of_conditions)
    }

    /// Adds a delete marker. A missing object gets a marker too, unless the request has conditions.
    async fn put_marker(
        &self,
        site: &Site<'_>,
        intent: Intent<'_>,
        conditions: &DeleteConditions,
    ) -> Result<(Landed, Option<Version>), Failed> {
        if !conditions.is_empty()
            && let Some(view) = self.absence(intent.key).await
        {
            conditions.check(None).map_err(Failed::clean)?;
            return Ok((Landed::Kept(view), None));
        }
        let modified_ms = self.stamps.now_ms();
        let value = &Value::DeleteMarker(Box::new(DeleteMarker { modified_ms, version: None }));
        let mut check = |view: &RegisterView| {
            conditions.check(view.entry.as_ref().map(|entry| &entry.value))?;
            Ok(conditions.is_empty() || object_of(view).is_some())
        };
        let new = New { value, inline: None };
        let appended = self.append(&site.bucket, intent, new, &mut check).await;
        let is_plain = conditions.is_empty();
        appended.map_err(|it| if is_plain { it } else { it.of_conditions() })
    }

    /// Selected bytes of a copy's source as a request body, and the version of the source.
    pub(crate) async fn source_of(
        self: &Arc<Self>,
        (bucket, source): (&str, ObjectName<'_>),
        conditions: &ReadConditions,
        selection: Selection,
    ) -> Result<(Incoming, Option<Version>)> {
        let found = self.find(bucket, source, Want::EntryAndInline).await.map_err(no_source)?;
        let secret = self.unlock(found.locked.as_ref(), Whose::Source)?;
        conditions.check_source(&found.object)?;
        let selected = self.select(&found.object, selection).await?;
        let size = selected.range.end - selected.range.start;
        let incoming = Incoming {
            bytes: self.open(&found, selected.range, secret).await?,
            size: Some(size),
            md5: None,
            compute: Vec::new(),
            expected: Box::new(|| Ok(Vec::new())),
        };
        Ok((incoming, found.object.version))
    }
}

/// Maps the error of a missing copy source to S3's.
fn no_source(error: Error) -> Error {
    match error {
        Error::DeleteMarker { was_asked_for: false, .. } => Error::NoSuchKey,
        Error::DeleteMarker { was_asked_for: true, .. } => Error::InvalidRequest(
            "The source of a copy request may not specifically refer to a delete marker by \
             version id."
                .into(),
        ),
        other => other,
    }
}

/// Checksums of the source that the copy computes again. They must be equal.
fn expected(source: &Object, compute: &[ChecksumAlgorithm]) -> Vec<(ChecksumAlgorithm, Vec<u8>)> {
    let whole = source.checksums.iter().filter(|sum| sum.kind == ChecksumKind::FullObject);
    let again = whole.filter(|sum| compute.contains(&sum.algorithm));
    again.map(|sum| (sum.algorithm, sum.value.clone())).collect()
}
