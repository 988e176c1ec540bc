//! PutObject: a body is stored, verified, and committed by its entry.

use std::sync::Arc;

use bytes::Bytes;
use martlet_protocol::backend::RegisterView;
use martlet_protocol::entry::{Attributes, Body, Mark, Object, Value};
use martlet_protocol::extent::{BodyFacts, ExtentRole};
use martlet_protocol::limits::{COMMIT_WINDOW_MS, INLINE_BYTES_MAX};
use martlet_protocol::usage::Usage;
use martlet_protocol::{Stamp, Version, WriteId};

use crate::api::{NewBody, WriteConditions, WrittenObject};
use crate::bucket::{BucketCatalog, ObjectTarget, busy, object_of};
use crate::error::{Error, Result};
use crate::index::{Intent, Proposal, RegisterClient, Step, WriteError, WriteOutcome};
use crate::keyring::Vault;
use crate::lock::completed;
use crate::policy::object_policy;
use crate::quota::{Quotas, RequestedUsage};
use crate::upload::{BodyWriter, Destination, StoredBody};
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

/// An entry to write, and its stored body.
struct NewEntry<'a> {
    key: &'a str,
    write_id: WriteId,
    commit_by_ms: u64,
    value: &'a Value,
    body: StoredBody,
}

impl ObjectWriter {
    /// Writes an object to its register.
    pub(crate) async fn put_at(
        &self,
        target: ObjectTarget<'_>,
        key: &str,
        body: NewBody,
        mut attributes: Attributes,
        conditions: &WriteConditions,
    ) -> Result<WrittenObject> {
        self.catalog.check_new_lock(target.context, target.name, &attributes.marks).await?;
        let secret = target.context.keys.encrypt_new(
            &self.vault,
            &target.bucket,
            key,
            &mut attributes,
            false,
        )?;
        let requested = RequestedUsage::object(key, &attributes, body.size);
        let mut charge = Box::pin(self.quotas.charge(&target.bucket, requested)).await?;
        let write_id = WriteId::random();
        let commit_by_ms = self.registers.stamps.now_ms() + COMMIT_WINDOW_MS;
        let destination = Destination {
            bucket: target.bucket.id,
            key,
            write_id,
            upload: None,
            role: ExtentRole::Data,
            offset: 0,
            facts: Some(BodyFacts { is_encrypted: secret.is_some(), ..BodyFacts::default() }),
            policy: object_policy(&target.context.cluster, &target.bucket, &attributes)?,
            inline_bytes_max: INLINE_BYTES_MAX,
            etags: target.bucket.etags(),
        };
        let mut stored = self.writer.store(body, destination, secret.as_ref()).await?;
        let (body, _spilled) = self.writer.body_for(&mut stored, destination).await?;
        let object = Object {
            size: stored.size,
            etag: destination.etags.whole(stored.tag),
            modified_ms: self.registers.stamps.now_ms(),
            attributes,
            checksums: std::mem::take(&mut stored.checksums),
            upload: None,
            body,
            version: None,
        };
        charge.came_to(Usage::of_object(key, &object))?;
        let value = Value::Object(Box::new(object));
        let entry = NewEntry { key, write_id, commit_by_ms, value: &value, body: stored };
        let (stamp, version) = self.commit(target, entry, conditions).await?;
        charge.written(self.registers.stamps.now_ms());
        match value {
            Value::Object(object) => {
                let object = Object { version, ..*object };
                Ok(WrittenObject::new(object, stamp))
            }
            _ => unreachable!("an object was made above"),
        }
    }

    /// Writes the entry that makes a body visible.
    async fn commit(
        &self,
        mut target: ObjectTarget<'_>,
        entry: NewEntry<'_>,
        conditions: &WriteConditions,
    ) -> Result<(Stamp, Option<Version>)> {
        let context = target.context;
        let NewEntry { key, write_id, commit_by_ms, value, body: stored } = entry;
        let inline = stored.inline.as_ref();
        for _ in 0..2 {
            let claim = Some(stored.orphans.claim());
            let intent = Intent { claim, ..target.intent(write_id, commit_by_ms) };
            let landed = self.write_new(&target, intent, New { value, inline }, conditions).await;
            match landed {
                Ok((WriteOutcome::At(stamp), version)) => return Ok((stamp, version)),
                Ok((WriteOutcome::Fenced | WriteOutcome::Kept(_), _)) => {
                    let refreshed = self.catalog.refreshed(context, target.name, &target.bucket);
                    match Box::pin(refreshed).await {
                        Ok(bucket) => target.bucket = bucket,
                        Err(Error::BucketReplaced) if is_of_no_bucket(value) => {
                            let again = self.catalog.target(context, target.name, key);
                            target = Box::pin(again).await?;
                        }
                        Err(error) => {
                            stored.orphans.release();
                            return Err(error);
                        }
                    }
                }
                Err(WriteError { error, maybe_written, fenced, .. }) => {
                    if fenced {
                        self.catalog.forget(target.name);
                    }
                    if !maybe_written {
                        stored.orphans.release();
                    }
                    return Err(self
                        .catalog
                        .check_absence(context, error, target.name, &target.bucket, target.began)
                        .await);
                }
            }
        }
        stored.orphans.release();
        Err(busy())
    }

    /// Writes an object; in a versioned bucket, as a new version, which is returned.
    async fn write_new(
        &self,
        target: &ObjectTarget<'_>,
        intent: Intent<'_>,
        New { value, inline }: New<'_>,
        conditions: &WriteConditions,
    ) -> Result<(WriteOutcome, Option<Version>), WriteError> {
        let (context, bucket) = (target.context, &*target.bucket);
        if conditions.if_match.is_some()
            && Box::pin(self.registers.absence(context, intent.key)).await.is_some()
        {
            conditions.check(None).map_err(WriteError::clean)?;
        }
        let value = &*completed(bucket, value).map_err(WriteError::clean)?;
        if bucket.versioning().state.keeps_versions() {
            let mut check = |view: &RegisterView| {
                conditions.check(object_of(view))?;
                Ok(true)
            };
            let new = New { value, inline };
            let appended = self.versions.append(context, bucket, intent, new, &mut check);
            let appended = Box::pin(appended).await;
            let is_plain = conditions.is_empty();
            return appended.map_err(|it| if is_plain { it } else { it.of_conditions() });
        }
        let landed = if conditions.is_empty() {
            self.registers.write(context, intent, value, inline, false).await
        } else {
            Box::pin(self.write_if(intent, value, inline, conditions)).await
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
