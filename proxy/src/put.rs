//! PutObject: a body is stored, verified, and committed by its entry.

use std::sync::Arc;

use bytes::Bytes;
use martlet_protocol::backend::RegisterView;
use martlet_protocol::entry::{Attributes, Body, ETag, Mark, Object, Value};
use martlet_protocol::extent::ExtentRole;
use martlet_protocol::limits::{COMMIT_WINDOW_MS, INLINE_BYTES_MAX};
use martlet_protocol::usage::Usage;
use martlet_protocol::{Stamp, Version, WriteId};

use crate::api::{Incoming, WriteConditions, Written};
use crate::bucket::{BucketCatalog, Site, busy, object_of};
use crate::error::{Error, Result};
use crate::index::{Intent, Proposal, RegisterClient, Step, WriteError, WriteOutcome};
use crate::keyring::Vault;
use crate::lock::completed;
use crate::policy::object_policy;
use crate::quota::{Asked, Quotas};
use crate::upload::{BodyWriter, Destination, Ingested};
use crate::versions::{New, VersionStore};

/// Writes of objects.
pub(crate) struct ObjectWriter {
    pub(crate) registers: Arc<RegisterClient>,
    pub(crate) catalog: Arc<BucketCatalog>,
    pub(crate) quotas: Arc<Quotas>,
    pub(crate) versions: Arc<VersionStore>,
    pub(crate) writer: Arc<BodyWriter>,
    pub(crate) vault: Arc<Vault>,
}

impl ObjectWriter {
    /// Writes an object at a site.
    pub(crate) async fn put_at(
        &self,
        site: Site<'_>,
        key: &str,
        body: Incoming,
        mut attributes: Attributes,
        conditions: &WriteConditions,
    ) -> Result<Written> {
        self.catalog.check_new_lock(site.context, site.name, &attributes.marks).await?;
        let secret = site.context.keys.encrypt_new(
            &self.vault,
            &site.bucket,
            key,
            &mut attributes,
            false,
        )?;
        let asked = Asked::object(key, &attributes, body.size);
        let mut charge = Box::pin(self.quotas.charge(&site.bucket, asked)).await?;
        let write_id = WriteId::random();
        let commit_by_ms = self.registers.stamps.now_ms() + COMMIT_WINDOW_MS;
        let destination = Destination {
            bucket: site.bucket.id,
            key,
            write_id,
            upload: None,
            role: ExtentRole::Data,
            offset: 0,
            policy: object_policy(&site.context.cluster, &site.bucket, &attributes)?,
            inline_bytes_max: INLINE_BYTES_MAX,
        };
        let mut ingested = self.writer.ingest_as(body, destination, secret.as_ref()).await?;
        let (body, _spilled) = self.writer.body_for(&mut ingested, destination).await?;
        let object = Object {
            size: ingested.size,
            etag: ETag::Md5(ingested.md5),
            modified_ms: self.registers.stamps.now_ms(),
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
        charge.written(self.registers.stamps.now_ms());
        match value {
            Value::Object(object) => {
                let object = Object { version, ..*object };
                Ok(Written { object, stamp, source_version: None })
            }
            _ => unreachable!("an object was made above"),
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
        let context = site.context;
        let inline = ingested.inline.as_ref();
        for _ in 0..2 {
            let claim = Some(ingested.orphans.claim());
            let intent = Intent { claim, ..site.intent(write_id, commit_by_ms) };
            let landed = self.write_new(&site, intent, (value, inline), conditions).await;
            match landed {
                Ok((WriteOutcome::At(stamp), version)) => return Ok((stamp, version)),
                Ok((WriteOutcome::Fenced | WriteOutcome::Kept(_), _)) => {
                    match self.catalog.refreshed(context, site.name, &site.bucket).await {
                        Ok(bucket) => site.bucket = bucket,
                        Err(Error::BucketReplaced) if is_of_no_bucket(value) => {
                            site = self.catalog.site(context, site.name, key).await?;
                        }
                        Err(error) => {
                            ingested.orphans.release();
                            return Err(error);
                        }
                    }
                }
                Err(WriteError { error, maybe_written, fenced, .. }) => {
                    if fenced {
                        self.catalog.forget(site.name);
                    }
                    if !maybe_written {
                        ingested.orphans.release();
                    }
                    let at = (site.name, &*site.bucket);
                    return Err(self.catalog.check_absence(context, error, at, site.began).await);
                }
            }
        }
        ingested.orphans.release();
        Err(busy())
    }

    /// Writes an object; in a versioned bucket, as a new version, which is returned.
    async fn write_new(
        &self,
        site: &Site<'_>,
        intent: Intent<'_>,
        (value, inline): (&Value, Option<&Bytes>),
        conditions: &WriteConditions,
    ) -> Result<(WriteOutcome, Option<Version>), WriteError> {
        let (context, bucket) = (site.context, &*site.bucket);
        if conditions.if_match.is_some()
            && self.registers.absence(context, intent.key).await.is_some()
        {
            conditions.check(None).map_err(WriteError::clean)?;
        }
        let value = &*completed(bucket, value).map_err(WriteError::clean)?;
        if bucket.versioning().state.keeps_versions() {
            let mut check = |view: &RegisterView| {
                conditions.check(object_of(view))?;
                Ok(true)
            };
            let appended = self
                .versions
                .append(context, bucket, intent, New { value, inline }, &mut check)
                .await;
            let is_plain = conditions.is_empty();
            return appended.map_err(|it| if is_plain { it } else { it.of_conditions() });
        }
        let landed = if conditions.is_empty() {
            self.registers.write(context, intent, value, inline, false).await
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
    ) -> Result<WriteOutcome, WriteError> {
        let mut evaluate = |view: &RegisterView| {
            conditions.check(object_of(view))?;
            let inline = inline.cloned();
            Ok(Step::Write(Proposal { value: value.clone(), inline, keep_body: false }))
        };
        self.registers
            .ballots
            .decide(intent, &mut evaluate)
            .await
            .map_err(WriteError::of_conditions)
    }
}

/// Returns true if an object may move to another bucket than its body was sent for: it has no
/// extents, and isn't encrypted.
fn is_of_no_bucket(value: &Value) -> bool {
    let Value::Object(object) = value else { return false };
    matches!(object.body, Body::Empty | Body::Inline { .. })
        && object.attributes.marks.get(Mark::Encryption).is_none()
}
