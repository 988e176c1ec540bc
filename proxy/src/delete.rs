//! Deletion of objects and versions.

use std::sync::Arc;

use martlet_protocol::backend::{RegisterView, Want};
use martlet_protocol::entry::{DeleteMarker, Value};
use martlet_protocol::limits::COMMIT_WINDOW_MS;
use martlet_protocol::{Version, VersionId, WriteId};

use crate::api::{DeleteConditions, Deleted};
use crate::bucket::{BucketCatalog, ObjectTarget, again_if_replaced, busy, object_of};
use crate::context::RequestContext;
use crate::error::{Error, Result};
use crate::index::{Intent, Proposal, RegisterClient, Step, WriteError, WriteOutcome};
use crate::quota::{Quotas, RequestedUsage};
use crate::versions::{New, VersionRemoval, VersionStore};

/// Deletion of objects and versions.
pub(crate) struct ObjectRemover {
    pub(crate) registers: Arc<RegisterClient>,
    pub(crate) catalog: Arc<BucketCatalog>,
    pub(crate) quotas: Arc<Quotas>,
    pub(crate) versions: Arc<VersionStore>,
}

impl ObjectRemover {
    /// Deletes an object; in a versioned bucket, adds a delete marker.
    pub(crate) async fn delete(
        &self,
        context: &RequestContext,
        bucket: &str,
        key: &str,
        conditions: &DeleteConditions,
    ) -> Result<Deleted> {
        again_if_replaced(|| self.delete_once(context, bucket, key, conditions)).await
    }

    async fn delete_once(
        &self,
        context: &RequestContext,
        bucket: &str,
        key: &str,
        conditions: &DeleteConditions,
    ) -> Result<Deleted> {
        let mut target = self.catalog.target(context, bucket, key).await?;
        let write_id = WriteId::random();
        for _ in 0..2 {
            let commit_by_ms = self.registers.stamps.now_ms() + COMMIT_WINDOW_MS;
            let intent = target.intent(write_id, commit_by_ms);
            let (landed, version) = if target.bucket.versioning().state.keeps_versions() {
                let charge =
                    Box::pin(self.quotas.charge(&target.bucket, RequestedUsage::marker(key)))
                        .await?;
                let put = self.put_marker(&target, intent, conditions).await;
                let put = self.or_replaced(&target, put).await?;
                if let WriteOutcome::At(_) = put.0 {
                    charge.written(self.registers.stamps.now_ms());
                }
                put
            } else if self.needs_no_tombstone(&target, conditions).await? {
                self.catalog.check_target(&target).await?;
                return Ok(Deleted { stamp: None, version: None, is_marker: false });
            } else {
                let put = self.put_tombstone(context, intent, conditions).await;
                (self.or_replaced(&target, put).await?, None)
            };
            let (version, is_marker) = (version.map(Version::name), version.is_some());
            match landed {
                WriteOutcome::At(stamp) => {
                    return Ok(Deleted { stamp: Some(stamp), version, is_marker });
                }
                WriteOutcome::Kept(_) => {
                    self.catalog.check_target(&target).await?;
                    return Ok(Deleted { stamp: None, version: None, is_marker: false });
                }
                WriteOutcome::Fenced => {
                    target.bucket = self.catalog.refreshed(context, bucket, &target.bucket).await?;
                }
            }
        }
        Err(busy())
    }

    /// Deletes one version of an object for good, unless a lock protects it that the removal
    /// doesn't bypass.
    ///
    /// # Errors
    /// [`Error::BucketReplaced`] if another bucket has the name: the caller repeats the call.
    pub(crate) async fn delete_version(
        &self,
        context: &RequestContext,
        bucket: &str,
        key: &str,
        removal: VersionRemoval,
        conditions: &DeleteConditions,
    ) -> Result<Deleted> {
        let version = removal.version;
        let gone = |stamp, is_marker| Deleted { stamp, version: Some(version), is_marker };
        if matches!(version, VersionId::Numbered { .. })
            && !self
                .catalog
                .bucket_with_versions(context, bucket)
                .await?
                .versioning()
                .state
                .keeps_versions()
        {
            // No object has that version.
            conditions.check(None)?;
            return Ok(gone(None, false));
        }
        let mut target = self.catalog.target(context, bucket, key).await?;
        let write_id = WriteId::random();
        for _ in 0..2 {
            let commit_by_ms = self.registers.stamps.now_ms() + COMMIT_WINDOW_MS;
            let intent = target.intent(write_id, commit_by_ms);
            let (landed, was_marker) = if target.bucket.versioning().state.keeps_versions() {
                let removed =
                    self.versions.remove_version(&target, intent, removal, conditions).await;
                self.or_replaced(&target, removed).await?
            } else {
                let put = self.put_tombstone(context, intent, conditions).await;
                (self.or_replaced(&target, put).await?, false)
            };
            match landed {
                WriteOutcome::At(stamp) => return Ok(gone(Some(stamp), was_marker)),
                WriteOutcome::Kept(_) => {
                    self.catalog.check_target(&target).await?;
                    return Ok(gone(None, false));
                }
                WriteOutcome::Fenced => {
                    target.bucket = self.catalog.refreshed(context, bucket, &target.bucket).await?;
                }
            }
        }
        Err(busy())
    }

    /// Returns `outcome`. For a failed precondition, first checks that the bucket wasn't replaced.
    async fn or_replaced<T>(
        &self,
        target: &ObjectTarget<'_>,
        outcome: Result<T, WriteError>,
    ) -> Result<T> {
        let is_condition =
            |failed: &WriteError| matches!(failed.error, Error::PreconditionFailed(_));
        if outcome.as_ref().is_err_and(is_condition) {
            self.catalog.check_target(target).await?;
        }
        Ok(outcome?)
    }

    /// Returns true if deleting a missing key needs no tombstone. Only with one device in the index:
    /// with more, an unreachable replica may hold the key, or a handoff its pending hint.
    async fn needs_no_tombstone(
        &self,
        target: &ObjectTarget<'_>,
        conditions: &DeleteConditions,
    ) -> Result<bool> {
        let context = target.context;
        if !conditions.is_empty() || context.cluster.index().devices().len() > 1 {
            return Ok(false);
        }
        let view = self
            .registers
            .read(context, &target.key, Want::Entry, context.level(&target.bucket))
            .await?;
        Ok(object_of(&view).is_none())
    }

    async fn put_tombstone(
        &self,
        context: &RequestContext,
        intent: Intent<'_>,
        conditions: &DeleteConditions,
    ) -> Result<WriteOutcome, WriteError> {
        if conditions.is_empty() {
            return self.registers.write(context, intent, &Value::Tombstone, None, false).await;
        }
        if let Some(view) = self.registers.absence(context, intent.key).await {
            conditions.check(None).map_err(WriteError::clean)?;
            return Ok(WriteOutcome::Kept(view));
        }
        let mut evaluate = |view: &RegisterView| {
            conditions.check(view.entry.as_ref().map(|entry| &entry.value))?;
            Ok(match object_of(view) {
                Some(_) => Step::Write(Proposal::of(Value::Tombstone)),
                None => Step::Keep,
            })
        };
        self.registers
            .ballots
            .decide(intent, &mut evaluate)
            .await
            .map_err(WriteError::of_conditions)
    }

    /// Adds a delete marker. A missing object gets a marker too, unless the request has conditions.
    async fn put_marker(
        &self,
        target: &ObjectTarget<'_>,
        intent: Intent<'_>,
        conditions: &DeleteConditions,
    ) -> Result<(WriteOutcome, Option<Version>), WriteError> {
        if !conditions.is_empty()
            && let Some(view) = self.registers.absence(target.context, intent.key).await
        {
            conditions.check(None).map_err(WriteError::clean)?;
            return Ok((WriteOutcome::Kept(view), None));
        }
        let modified_ms = self.registers.stamps.now_ms();
        let value = &Value::DeleteMarker(Box::new(DeleteMarker { modified_ms, version: None }));
        let mut check = |view: &RegisterView| {
            conditions.check(view.entry.as_ref().map(|entry| &entry.value))?;
            Ok(conditions.is_empty() || object_of(view).is_some())
        };
        let new = New { value, inline: None };
        let appended =
            self.versions.append(target.context, &target.bucket, intent, new, &mut check).await;
        let is_plain = conditions.is_empty();
        appended.map_err(|it| if is_plain { it } else { it.of_conditions() })
    }
}
