//! Execution of an upload's decided completion, by any proxy (rule M1).
//!
//! The decision fixes the object's order above all acknowledged writes of its key. A driver finds
//! the write at the key, or writes it if nothing came between.
//!
//! If an entry above that order exists, the result depends on the driver. A driver that isn't the
//! decider first takes over the turn, by a write to the upload's register. So the decider can prove
//! with another such write that no other proxy has driven, and that the object was never written.
//! Then it decides anew above the entry found, or refuses if a condition fails.
//!
//! The decision records the write that it follows. While that write is the key's, at any order, every driver knows that the
//! object was never written, and writes the object. Above another entry, drivers other than the decider can't know, so they
//! don't write: an object that was completed, read and overwritten stays overwritten.
//!
//! In a bucket that kept versions at the time of the decision every driver knows then too. The object is found among
//! the noncurrent versions, or its tombstone if it was removed. Without either it was never written, and an
//! entry that is older than the decision, but has a later order, is followed.
//!
//! Absence shows that the object was never written only for [`UNDRIVEN_MS_MAX`] after the decision: later
//! its tombstone may have been collected. The decider proves then by its turn that no other proxy has driven. Another driver
//! opens the upload again: its parts are there, and a client that completes it once more decides anew.

use std::sync::Arc;

use martlet_protocol::backend::{RegisterView, Want};
use martlet_protocol::entry::{Body, Bucket, ETag, Object, Upload, UploadState, Value};
use martlet_protocol::limits::COMMIT_WINDOW_MS;
use martlet_protocol::{Level, Stamp, UploadId, Version, Versioning, WriteId};
use tokio::sync::Semaphore;

use super::decision::{Decision, Driver, decided_alike};
use super::part::PartStore;
use super::upload_target::{UploadName, UploadTarget, attributes_of};
use super::uploads::UploadRegisters;
use crate::api::{WriteConditions, WrittenObject};
use crate::bucket::{BucketCatalog, busy, object_of};
use crate::context::RequestContext;
use crate::error::{Error, Result};
use crate::index::{Intent, Proposal, RegisterClient, Step, WriteError, WriteOutcome};
use crate::lock::completed;
use crate::versions::{CompletedVersion, New, Trace, VersionStore};

/// Completed uploads whose parts one proxy frees concurrently.
const FREEING_MAX: usize = 8;
/// Maximum number of decisions of one completion.
const TURNS: usize = 8;

/// Result of driving a decision.
pub(super) enum Driven {
    /// The object is written.
    Completed(Box<WrittenObject>),
    /// The upload is open again: a condition of the key failed.
    Reopened(Error),
}

/// Outcome of a driver's write.
enum Landing {
    /// The object is written, as this version.
    Written(Stamp, Option<Version>),
    /// The condition of the key fails, and the object was never written.
    Refused {
        error: Error,
        /// True if no driver can write the object any more: the entry has a later order than the decision, and only drivers
        /// that know this entry follow it.
        is_final: bool,
    },
    /// The object was never written. The key has this write, which is older than the decision.
    NeverWritten(WriteId),
    /// An entry above the decision shows nothing of the object.
    MaybeReplaced,
    /// Nothing shows the object any more.
    MaybeCollected,
}

/// Order and version of the object at a key, if it is this upload's, also after a change of its
/// metadata.
fn written_by(view: &RegisterView, upload: UploadId) -> Option<(Stamp, Option<Version>)> {
    let object = object_of(view).filter(|object| object.upload == Some(upload))?;
    view.entry.as_ref().map(|entry| (entry.order, object.version))
}

fn unknown_outcome() -> Error {
    martlet_protocol::Error::unavailable("the outcome of the upload is unknown").into()
}

/// Execution of decided completions.
pub(crate) struct CompletionDriver {
    registers: Arc<RegisterClient>,
    catalog: Arc<BucketCatalog>,
    versions: Arc<VersionStore>,
    pub(super) uploads: Arc<UploadRegisters>,
    pub(super) parts: Arc<PartStore>,
    /// Permits for completed uploads whose parts are being freed.
    freeing: Arc<Semaphore>,
}

impl CompletionDriver {
    pub(super) fn new(
        uploads: Arc<UploadRegisters>,
        parts: Arc<PartStore>,
        versions: Arc<VersionStore>,
    ) -> Self {
        let (registers, catalog) = (uploads.registers.clone(), uploads.catalog.clone());
        let freeing = Arc::new(Semaphore::new(FREEING_MAX));
        Self { registers, catalog, versions, uploads, parts, freeing }
    }

    /// Drives a decision of another request to its end.
    pub(super) async fn drive_on(
        &self,
        target: &UploadTarget<'_>,
        upload: &Upload,
    ) -> Result<Driven> {
        let (upload, turn) = self.take_over(target, upload).await?;
        Box::pin(self.drive(target, &upload, Driver::another(&upload.state, turn))).await
    }

    /// Drives a decision to its end: the object is written and the upload is completed. Its parts
    /// are freed in the background.
    pub(super) async fn drive(
        &self,
        target: &UploadTarget<'_>,
        upload: &Upload,
        driver: Driver,
    ) -> Result<Driven> {
        let (mut upload, mut driver) = (upload.clone(), driver);
        for _ in 0..TURNS {
            let UploadState::Completing { write_id, order, object, condition, .. } = &upload.state
            else {
                return Err(Error::NoSuchUpload);
            };
            let decision =
                Decision { write_id: *write_id, order: *order, object, condition, driver };
            match Box::pin(self.write_object(target, decision)).await? {
                Landing::Written(stamp, version) => {
                    return self.completed(target, decision, stamp, version).await;
                }
                Landing::Refused { error, is_final } if driver.decided || is_final => {
                    return self.refuse(target, driver.turn, error).await;
                }
                _ if driver.decided => {}
                // Another driver may have given the upload up since: then this fails, and so does a write that gives it up
                // by an earlier turn.
                Landing::NeverWritten(write_id) => {
                    let (_, turn) = self.take_over(target, &upload).await?;
                    driver = Driver { follows: Some(write_id), turn, ..driver };
                    continue;
                }
                Landing::MaybeCollected => {
                    self.change_in_turn(target, driver.turn, &UploadState::Open).await?;
                    return Err(unknown_outcome());
                }
                Landing::MaybeReplaced | Landing::Refused { .. } => {
                    return self.give_up(target, driver.turn, object).await;
                }
            }
            let view = self
                .registers
                .read(target.context, &target.object_register(), Want::Entry, Level::Strict)
                .await?;
            let conditions = WriteConditions::from_key_condition(condition);
            if let Err(error) = conditions.check(object_of(&view)) {
                return self.refuse(target, driver.turn, error).await;
            }
            (upload, driver) = self.decide_anew(target, decision, &view).await?;
        }
        Err(busy())
    }

    async fn completed(
        &self,
        target: &UploadTarget<'_>,
        decision: Decision<'_>,
        stamp: Stamp,
        version: Option<Version>,
    ) -> Result<Driven> {
        let Decision { write_id, object, .. } = decision;
        let completed = UploadState::Completed { write_id, etag: object.etag };
        self.leave_completing(target, write_id, completed).await?;
        self.free_parts_soon(target, object.body.clone());
        let object = Object { version, ..object.clone() };
        Ok(Driven::Completed(Box::new(WrittenObject::new(object, stamp))))
    }

    /// Frees the parts of a completed upload in the background, with limited concurrency. The
    /// expire worker frees parts that are left over.
    fn free_parts_soon(&self, target: &UploadTarget<'_>, taken: Body) {
        let Ok(turn) = self.freeing.clone().try_acquire_owned() else {
            tracing::debug!(upload = %target.id, "leaving parts of a completed upload to the expire \
                                                 worker");
            return;
        };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (parts, context) = (self.parts.clone(), target.context.clone());
        let (name, object_key) = (target.name.to_owned(), target.object_key.to_owned());
        let (id, bucket, key) = (target.id, target.bucket.clone(), target.key.clone());
        let began = target.began;
        runtime.spawn(async move {
            let _turn = turn;
            let target = UploadTarget {
                context: &context,
                name: &name,
                object_key: &object_key,
                id,
                bucket,
                key,
                began,
            };
            if let Err(error) = parts.free_parts(&target, &taken).await {
                tracing::warn!(upload = %id, %error, "could not delete parts after completion");
            }
        });
    }

    /// Finishes an interrupted completion. Returns true if the upload was completed by this call.
    pub(crate) async fn finish_upload(
        &self,
        context: &Arc<RequestContext>,
        upload: UploadName<'_>,
    ) -> Result<bool> {
        let target = match self.uploads.target(context, upload).await {
            Err(Error::NoSuchBucket) => return Ok(false),
            target => target?,
        };
        let _turn = self.uploads.end_turn(&target).await;
        let upload = match self.uploads.upload(&target).await {
            Err(Error::NoSuchUpload) => return Ok(false),
            upload => upload?,
        };
        if !matches!(upload.state, UploadState::Completing { .. }) {
            return Ok(false);
        }
        let driven = self.drive_on(&target, &upload).await?;
        Ok(matches!(driven, Driven::Completed(_)))
    }

    /// Takes over the turn of another proxy's decision. Returns the upload, and the write id of the turn. From then on that
    /// proxy can't prove that the object was never written.
    async fn take_over(
        &self,
        target: &UploadTarget<'_>,
        upload: &Upload,
    ) -> Result<(Upload, WriteId)> {
        let turn = WriteId::random();
        let same = |now: &Upload, _| decided_alike(&now.state, &upload.state);
        let (upload, by) = self.uploads.take_turn(target, turn, None, same).await?;
        if by == turn { Ok((upload, turn)) } else { Err(busy()) }
    }

    /// Changes an upload whose turn no other proxy has taken over.
    async fn change_in_turn(
        &self,
        target: &UploadTarget<'_>,
        turn: WriteId,
        next: &UploadState,
    ) -> Result<(Upload, WriteId)> {
        let own = WriteId::random();
        let change = |_: &Upload, by| (by == turn).then(|| next.clone());
        let (upload, by) = self.uploads.take_turn(target, own, None, change).await?;
        if by == own { Ok((upload, own)) } else { Err(unknown_outcome()) }
    }

    /// Reopens the upload: a condition failed, and the object was never written.
    async fn refuse(
        &self,
        target: &UploadTarget<'_>,
        turn: WriteId,
        error: Error,
    ) -> Result<Driven> {
        self.change_in_turn(target, turn, &UploadState::Open).await?;
        Ok(Driven::Reopened(error))
    }

    /// Decides again above the entry found. Only if the object was never written.
    async fn decide_anew(
        &self,
        target: &UploadTarget<'_>,
        decision: Decision<'_>,
        found: &RegisterView,
    ) -> Result<(Upload, Driver)> {
        let before = found.entry.as_ref();
        let follows = before.map(|entry| entry.write_id);
        let state = UploadState::Completing {
            write_id: decision.write_id,
            order: self
                .registers
                .stamps
                .issue_above(before.map_or(Stamp::ZERO, |entry| entry.order)),
            object: Box::new(decision.object.clone()),
            condition: decision.condition.clone(),
            follows,
        };
        let (upload, turn) = self.change_in_turn(target, decision.driver.turn, &state).await?;
        Ok((upload, Driver::decider(follows, turn)))
    }

    /// Aborts an upload whose object may or may not have been written and overwritten. Its bytes
    /// may already be garbage, so its parts can't be offered again. A driver that has lost its turn frees nothing: the other
    /// one may write the object.
    async fn give_up(
        &self,
        target: &UploadTarget<'_>,
        turn: WriteId,
        object: &Object,
    ) -> Result<Driven> {
        self.change_in_turn(target, turn, &UploadState::Aborted).await?;
        self.parts.free_parts(target, &object.body).await?;
        Err(unknown_outcome())
    }

    async fn leave_completing(
        &self,
        target: &UploadTarget<'_>,
        decided: WriteId,
        next: UploadState,
    ) -> Result<()> {
        let change = |upload: &Upload| match &upload.state {
            UploadState::Completing { write_id, .. } if *write_id == decided => Some(next.clone()),
            _ => None,
        };
        self.uploads.change_upload(target, None, change).await.map(drop)
    }

    /// Writes the object of a decision, at most once over all drivers.
    async fn write_object(
        &self,
        target: &UploadTarget<'_>,
        decision: Decision<'_>,
    ) -> Result<Landing> {
        let Decision { write_id, object, condition, .. } = decision;
        let key = target.object_register();
        let conditions = WriteConditions::from_key_condition(condition);
        let value = &Value::Object(Box::new(object.clone()));
        let mut bucket = target.bucket.clone();
        for _ in 0..2 {
            let commit_by_ms = self.registers.stamps.now_ms() + COMMIT_WINDOW_MS;
            let generation = bucket.generation;
            let level = target.level();
            let intent =
                Intent { key: &key, write_id, generation, commit_by_ms, level, claim: None };
            let mut is_final = false;
            let mut check = |view: &RegisterView| {
                let entry = view.entry.as_ref();
                if !decision.may_follow(entry, self.registers.stamps.now_ms()) {
                    return Ok(false);
                }
                is_final = entry.is_some_and(|entry| entry.order > decision.order);
                conditions.check(object_of(view))?;
                Ok(true)
            };
            let value = completed(&bucket, value)?;
            let written = self.propose(target, &bucket, intent, &value, &mut check).await;
            let written = if conditions.is_empty() {
                written
            } else {
                written.map_err(WriteError::of_conditions)
            };
            match written.map_err(Error::from) {
                Ok((WriteOutcome::At(stamp), version)) => {
                    return Ok(Landing::Written(stamp, version));
                }
                Ok((WriteOutcome::Kept(view), _)) => {
                    return self.landing(target, &bucket, decision, &view).await;
                }
                Ok((WriteOutcome::Fenced, _)) => {
                    bucket = self.catalog.refreshed(target.context, target.name, &bucket).await?;
                }
                Err(error @ (Error::PreconditionFailed(_) | Error::NoSuchKey)) => {
                    return Ok(Landing::Refused { error, is_final });
                }
                Err(error) => return Err(error),
            }
        }
        Err(busy())
    }

    /// Runs one ballot that writes the object where `check` admits it.
    async fn propose(
        &self,
        target: &UploadTarget<'_>,
        bucket: &Bucket,
        intent: Intent<'_>,
        value: &Value,
        check: &mut (dyn FnMut(&RegisterView) -> Result<bool> + Send),
    ) -> std::result::Result<(WriteOutcome, Option<Version>), WriteError> {
        if bucket.versioning().state.keeps_versions() {
            let new = New { value, inline: None };
            return self.versions.append(target.context, bucket, intent, new, check).await;
        }
        let mut evaluate = |view: &RegisterView| {
            let goes_ahead = check(view)?;
            let write = || Step::Write(Proposal::of(value.clone()));
            Ok(if goes_ahead { write() } else { Step::Keep })
        };
        let landed = self.registers.ballots.decide(intent, &mut evaluate).await?;
        Ok((landed, None))
    }

    /// Outcome of a ballot that kept the key's entry. In a versioned bucket the object may be among the noncurrent versions.
    async fn landing(
        &self,
        target: &UploadTarget<'_>,
        bucket: &Bucket,
        decision: Decision<'_>,
        view: &RegisterView,
    ) -> Result<Landing> {
        if let Some((stamp, version)) = written_by(view, target.id) {
            return Ok(Landing::Written(stamp, version));
        }
        let Decision { write_id, order, .. } = decision;
        let versioning = bucket.versioning();
        let trace = if versioning.state.keeps_versions() {
            let sought =
                CompletedVersion { upload: target.id, write_id, since: order, until: None };
            self.versions.trace(target.context, &target.object_register(), sought).await?
        } else {
            Trace::MaybeGone
        };
        // A plain write leaves nothing of the object that it overwrites.
        let is_traceable =
            versioning.state != Versioning::Preparing && versioning.above_ms <= order.time_ms();
        Ok(match (trace, &view.entry) {
            (Trace::Version(entry), _) => Landing::Written(entry.order, entry.value.version()),
            (_, None) => Landing::MaybeCollected,
            (Trace::Nothing, Some(entry)) if is_traceable && !decision.is_before(entry) => {
                if decision.is_late(self.registers.stamps.now_ms()) {
                    Landing::MaybeCollected
                } else {
                    Landing::NeverWritten(entry.write_id)
                }
            }
            // Nothing came to the key, and the time for a proof is over.
            (_, Some(entry)) if decision.driver.followed(entry) => Landing::MaybeCollected,
            (_, Some(_)) => Landing::MaybeReplaced,
        })
    }

    /// Response to a repetition of a finished completion.
    pub(super) async fn completed_before(
        &self,
        target: &UploadTarget<'_>,
        upload: &Upload,
        write_id: WriteId,
        etag: ETag,
    ) -> Result<WrittenObject> {
        debug_assert_eq!(upload.id, target.id);
        let view = self
            .registers
            .read(target.context, &target.object_register(), Want::Entry, target.level())
            .await?;
        if let (Some(object), Some(entry)) = (object_of(&view), &view.entry)
            && (entry.write_id == write_id || object.upload == Some(upload.id))
        {
            let (object, stamp) = (object.clone(), entry.order);
            return Ok(WrittenObject::new(object, stamp));
        }
        if target.bucket.versioning().state.keeps_versions() {
            let (since, until) =
                (Stamp::at_ms(upload.initiated_ms), self.uploads.order(target).await?);
            let sought = CompletedVersion { upload: upload.id, write_id, since, until };
            let key = target.object_register();
            if let Trace::Version(entry) = self.versions.trace(target.context, &key, sought).await?
                && let Value::Object(object) = entry.value
            {
                return Ok(WrittenObject::new(*object, entry.order));
            }
        }
        // The object was overwritten or deleted: only its ETag is left.
        let object = Object {
            size: 0,
            etag,
            modified_ms: upload.initiated_ms,
            attributes: attributes_of(upload),
            checksums: Vec::new(),
            upload: Some(upload.id),
            body: Body::Empty,
            version: None,
        };
        let stamp = view.entry.map_or(Stamp::ZERO, |entry| entry.order);
        Ok(WrittenObject { is_gone: true, ..WrittenObject::new(object, stamp) })
    }
}
