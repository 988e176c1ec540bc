//! PutObject: a body is stored, verified, and committed by its entry.

use std::sync::Arc;

use bytes::Bytes;
use martlet_protocol::backend::RegisterView;
use martlet_protocol::entry::{Attributes, Body, Bucket, ETag, Manifest, Mark, Object, Value};
use martlet_protocol::extent::ExtentRole;
use martlet_protocol::limits::{COMMIT_WINDOW_MS, INLINE_BYTES_MAX};
use martlet_protocol::usage::Usage;
use martlet_protocol::{Level, RegisterKey, Stamp, Version, WriteId};
use tokio::time::Instant;

use crate::api::{Incoming, PutObject, WriteConditions, Written};
use crate::bucket::busy;
use crate::digest::crc32c;
use crate::error::{Error, Result};
use crate::index::{Failed, Intent, Landed, Proposal, Step};
use crate::ingest::{Destination, Ingested};
use crate::lock::completed;
use crate::quota::Asked;
use crate::store::{Inner, ObjectStore, check_key};
use crate::unclaimed::Unclaimed;
use crate::versions::New;

/// Register of an object, and its bucket as last read.
pub(crate) struct Site<'a> {
    pub(crate) name: &'a str,
    pub(crate) bucket: Arc<Bucket>,
    pub(crate) key: RegisterKey,
    /// Level of the request, if it names one.
    asked: Option<Level>,
    /// A time at or before the start of the operation.
    pub(crate) began: Instant,
}

impl Inner {
    /// Register and bucket of an object to write.
    pub(crate) async fn site<'a>(&self, name: &'a str, key: &str) -> Result<Site<'a>> {
        check_key(key)?;
        let began = Instant::now();
        let bucket = self.open_bucket(name).await?;
        let key = RegisterKey::object(bucket.id, bucket.index_shards, key);
        Ok(Site { name, bucket, key, asked: self.ask.level, began })
    }

    /// Refuses to report an absence if the site's bucket was replaced.
    pub(crate) async fn check_site(&self, site: &Site<'_>) -> Result<()> {
        self.check_not_replaced(site.name, &site.bucket, site.began).await
    }
}

impl Site<'_> {
    pub(crate) fn intent(&self, write_id: WriteId, commit_by_ms: u64) -> Intent<'_> {
        Intent {
            key: &self.key,
            write_id,
            generation: self.bucket.generation,
            commit_by_ms,
            level: self.asked.unwrap_or(self.bucket.consistency),
            claim: None,
        }
    }
}

/// The object in a view, if it holds one.
pub(crate) fn object_of(view: &RegisterView) -> Option<&Object> {
    match &view.entry.as_ref()?.value {
        Value::Object(object) => Some(object),
        _ => None,
    }
}

impl ObjectStore {
    /// Writes an object.
    ///
    /// # Errors
    /// An error of the body, a checksum mismatch, a failed condition, [`Error::QuotaExceeded`]. No
    /// extents are left behind then.
    pub async fn put(&self, bucket: &str, key: &str, put: PutObject) -> Result<Written> {
        let inner = self.inner();
        let site = inner.site(bucket, key).await?;
        inner.put_at(site, key, put.body, put.attributes, &put.conditions).await
    }
}

impl Inner {
    /// Writes an object at a site.
    pub(crate) async fn put_at(
        self: &Arc<Self>,
        site: Site<'_>,
        key: &str,
        body: Incoming,
        mut attributes: Attributes,
        conditions: &WriteConditions,
    ) -> Result<Written> {
        self.check_new_lock(site.name, &attributes.marks).await?;
        let secret = self.encrypt_new(&site.bucket, key, &mut attributes, false)?;
        let asked = Asked::object(key, &attributes, body.size);
        let mut charge = Box::pin(self.charge(&site.bucket, asked)).await?;
        let write_id = WriteId::random();
        let commit_by_ms = self.stamps.now_ms() + COMMIT_WINDOW_MS;
        let destination = Destination {
            bucket: site.bucket.id,
            key,
            write_id,
            upload: None,
            role: ExtentRole::Data,
            offset: 0,
            policy: self.policy_of(&site.bucket, &attributes)?,
            inline_bytes_max: INLINE_BYTES_MAX,
        };
        let mut ingested = self.ingest_as(body, destination, secret.as_ref()).await?;
        let (body, _spilled) = self.body_for(&mut ingested, destination).await?;
        let object = Object {
            size: ingested.size,
            etag: ETag::Md5(ingested.md5),
            modified_ms: self.stamps.now_ms(),
            attributes,
            checksums: std::mem::take(&mut ingested.checksums),
            upload: None,
            body,
            version: None,
        };
        charge.came_to(Usage::of_object(key, &object))?;
        let value = Value::Object(Box::new(object));
        let (stamp, version) =
            self.commit((site, key), write_id, commit_by_ms, &value, ingested, conditions).await?;
        charge.written(self.stamps.now_ms());
        match value {
            Value::Object(object) => {
                let object = Object { version, ..*object };
                Ok(Written { object, stamp, source_version: None })
            }
            _ => unreachable!("an object was made above"),
        }
    }

    /// The stored bytes as the entry's body. A manifest that is too long is stored first, in
    /// extents that are claimed together with the bytes.
    pub(crate) async fn body_for(
        self: &Arc<Self>,
        ingested: &mut Ingested,
        to: Destination<'_>,
    ) -> Result<(Body, Option<Unclaimed>)> {
        match body_of(ingested, to) {
            Body::Extents(manifest) => {
                let (body, mut spilled) = self.store_manifest(manifest, to).await?;
                spilled.claimed_with(&ingested.unclaimed);
                Ok((body, Some(spilled)))
            }
            body => Ok((body, None)),
        }
    }

    /// Writes the entry that makes a body visible.
    async fn commit(
        &self,
        (mut site, key): (Site<'_>, &str),
        write_id: WriteId,
        commit_by_ms: u64,
        value: &Value,
        ingested: Ingested,
        conditions: &WriteConditions,
    ) -> Result<(Stamp, Option<Version>)> {
        let inline = ingested.inline.as_ref();
        for _ in 0..2 {
            let claim = Some(ingested.unclaimed.claim());
            let intent = Intent { claim, ..site.intent(write_id, commit_by_ms) };
            let landed = self.write_new(&site.bucket, intent, (value, inline), conditions).await;
            match landed {
                Ok((Landed::At(stamp), version)) => return Ok((stamp, version)),
                Ok((Landed::Fenced | Landed::Kept(_), _)) => {
                    match self.refreshed(site.name, &site.bucket).await {
                        Ok(bucket) => site.bucket = bucket,
                        Err(Error::BucketReplaced) if is_of_no_bucket(value) => {
                            site = self.site(site.name, key).await?;
                        }
                        Err(error) => {
                            ingested.unclaimed.release();
                            return Err(error);
                        }
                    }
                }
                Err(Failed { error, maybe_written, fenced, .. }) => {
                    if fenced {
                        self.buckets.forget(site.name);
                    }
                    if !maybe_written {
                        ingested.unclaimed.release();
                    }
                    let at = (site.name, &*site.bucket);
                    return Err(self.check_absence(error, at, site.began).await);
                }
            }
        }
        ingested.unclaimed.release();
        Err(busy())
    }

    /// Writes an object; in a versioned bucket, as a new version, which is returned.
    async fn write_new(
        &self,
        bucket: &Bucket,
        intent: Intent<'_>,
        (value, inline): (&Value, Option<&Bytes>),
        conditions: &WriteConditions,
    ) -> Result<(Landed, Option<Version>), Failed> {
        if conditions.if_match.is_some() && self.absence(intent.key).await.is_some() {
            conditions.check(None).map_err(Failed::clean)?;
        }
        let value = &*completed(bucket, value).map_err(Failed::clean)?;
        if bucket.versioning().state.keeps_versions() {
            let mut check = |view: &RegisterView| {
                conditions.check(object_of(view))?;
                Ok(true)
            };
            let appended = self.append(bucket, intent, New { value, inline }, &mut check).await;
            let is_plain = conditions.is_empty();
            return appended.map_err(|it| if is_plain { it } else { it.of_conditions() });
        }
        let landed = if conditions.is_empty() {
            self.write(intent, value, inline, false).await
        } else {
            self.write_if(intent, value, inline, conditions).await
        };
        Ok((landed?, None))
    }

    async fn write_if(
        &self,
        intent: Intent<'_>,
        value: &Value,
        inline: Option<&Bytes>,
        conditions: &WriteConditions,
    ) -> Result<Landed, Failed> {
        let mut evaluate = |view: &RegisterView| {
            conditions.check(object_of(view))?;
            let inline = inline.cloned();
            Ok(Step::Write(Proposal { value: value.clone(), inline, keep_body: false }))
        };
        self.decide(intent, &mut evaluate).await.map_err(Failed::of_conditions)
    }
}

/// Returns true if an object may move to another bucket than its body was sent for: it has no
/// extents, and isn't encrypted.
fn is_of_no_bucket(value: &Value) -> bool {
    let Value::Object(object) = value else { return false };
    matches!(object.body, Body::Empty | Body::Inline { .. })
        && object.attributes.marks.get(Mark::Encryption).is_none()
}

/// The stored bytes as an entry's body.
pub(crate) fn body_of(ingested: &mut Ingested, to: Destination<'_>) -> Body {
    if let Some(inline) = &ingested.inline {
        return Body::Inline { crc32c: crc32c(inline) };
    }
    if ingested.extents.is_empty() {
        return Body::Empty;
    }
    let extents = std::mem::take(&mut ingested.extents);
    Body::Extents(Manifest {
        policy: to.policy,
        extents,
        parts: Vec::new(),
        part_checksums: Vec::new(),
    })
}
