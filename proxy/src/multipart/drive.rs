//! A decision about an upload is driven to its end, by whoever finds it (rule M1).
//!
//! The order of the object is fixed with the decision, above everything that was acknowledged at
//! its key before. Whoever drives it finds the write there, or writes it where nothing came between.
//!
//! Where something else is above that order it depends on who asks. Whoever drives what another decided
//! takes the turn first, which changes the register of the upload; so the one who decided can tell, by
//! changing it as well, that nobody else has driven and the object was never there. Then it decides
//! anew above what it found, or refuses where a condition doesn't hold. Nobody else can tell, and so
//! nobody else writes it: an object that was completed, seen and overwritten stays so. Where versions are
//! kept it is found behind what took its place, as long as nobody has removed it.

use std::sync::Arc;

use martlet_protocol::backend::{RegisterView, Want};
use martlet_protocol::entry::{
    Body, Bucket, ETag, Entry, KeyCondition, Object, Upload, UploadState, Value,
};
use martlet_protocol::limits::COMMIT_WINDOW_MS;
use martlet_protocol::{Level, Stamp, UploadId, Version, WriteId};

use super::{Place, attributes_of};
use crate::api::{WriteConditions, Written};
use crate::bucket::busy;
use crate::error::{Error, Result};
use crate::index::{Failed, Intent, Landed, Proposal, Step};
use crate::lock::completed;
use crate::put::object_of;
use crate::store::Inner;
use crate::versions::New;

/// How often one that is overtaken decides anew.
const TURNS: usize = 8;

/// What was decided about an upload.
#[derive(Clone, Copy)]
struct Decision<'a> {
    write_id: WriteId,
    order: Stamp,
    object: &'a Object,
    condition: &'a KeyCondition,
    driver: Driver,
}

impl Driver {
    /// Whether an entry is what the key held when it was decided.
    fn followed(self, entry: &Entry) -> bool {
        matches!(self, Self::Decider { follows, .. } if follows == Some(entry.write_id))
    }
}

/// What became of a decision that was driven on.
pub(super) enum Driven {
    /// The object is written.
    Completed(Box<Written>),
    /// The upload is open again: a condition of the key didn't hold.
    Reopened(Error),
}

/// Who drives a decision on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Driver {
    /// Whoever decided, over the write that the key held then.
    Decider {
        /// That write.
        follows: Option<WriteId>,
        /// The write that the decision is.
        turn: WriteId,
    },
    /// Someone who found it decided: the object may have been written, and overwritten since.
    Another,
}

/// The order of the object at a key, if it is that of an upload: by the write that was decided, or by
/// one that has only changed what is said of it since.
fn written_by(view: &RegisterView, upload: UploadId) -> Option<(Stamp, Option<Version>)> {
    let object = object_of(view).filter(|object| object.upload == Some(upload))?;
    view.entry.as_ref().map(|entry| (entry.order, object.version))
}

fn nobody_can_tell() -> Error {
    martlet_protocol::Error::unavailable("nobody can tell who won").into()
}

impl Inner {
    /// Drives a decision to its end: the object is written and the upload is completed. Its parts are
    /// freed behind the answer.
    pub(super) async fn drive(
        self: &Arc<Self>,
        place: &Place<'_>,
        upload: &Upload,
        driver: Driver,
    ) -> Result<Driven> {
        let (mut upload, mut driver) = (upload.clone(), driver);
        if driver == Driver::Another {
            self.take_over(place, &upload).await?;
        }
        for _ in 0..TURNS {
            let UploadState::Completing { write_id, order, object, condition } = &upload.state
            else {
                return Err(Error::NoSuchUpload);
            };
            let decision =
                Decision { write_id: *write_id, order: *order, object, condition, driver };
            let turn = match (Box::pin(self.write_object(place, decision)).await, driver) {
                (Ok(Some(written)), _) => return self.completed(place, decision, written).await,
                (
                    Ok(None) | Err(Error::PreconditionFailed(_) | Error::NoSuchKey),
                    Driver::Another,
                ) => return self.give_up(place, *write_id, object).await,
                (Ok(None), Driver::Decider { turn, .. }) => turn,
                (
                    Err(error @ (Error::PreconditionFailed(_) | Error::NoSuchKey)),
                    Driver::Decider { turn, .. },
                ) => return self.refuse(place, turn, error).await,
                (Err(error), _) => return Err(error),
            };
            let view = self.read(&place.object_register(), Want::Entry, Level::Strict).await?;
            let conditions = WriteConditions::from_key_condition(condition);
            if let Err(error) = conditions.check(object_of(&view)) {
                return self.refuse(place, turn, error).await;
            }
            (upload, driver) = self.decide_anew(place, decision, turn, &view).await?;
        }
        Err(busy())
    }

    async fn completed(
        self: &Arc<Self>,
        place: &Place<'_>,
        decision: Decision<'_>,
        (stamp, version): (Stamp, Option<Version>),
    ) -> Result<Driven> {
        let Decision { write_id, object, .. } = decision;
        let completed = UploadState::Completed { write_id, etag: object.etag };
        self.leave_completing(place, write_id, completed).await?;
        self.free_parts_soon(place, object.body.clone());
        let object = Object { version, ..object.clone() };
        Ok(Driven::Completed(Box::new(Written { object, stamp, source_version: None })))
    }

    /// Frees the parts of a completed upload in the background, some uploads at a time. What is left, by
    /// a proxy that dies or has its hands full, the expire worker frees.
    fn free_parts_soon(self: &Arc<Self>, place: &Place<'_>, taken: Body) {
        let Ok(turn) = self.freeing.clone().try_acquire_owned() else {
            tracing::debug!(upload = %place.id, "parts of a completed upload are left to the expire worker");
            return;
        };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (inner, name, object_key) =
            (self.clone(), place.name.to_owned(), place.object_key.to_owned());
        let (id, bucket, key) = (place.id, place.bucket.clone(), place.key.clone());
        let (asked, began) = (place.asked, place.began);
        runtime.spawn(async move {
            let _turn = turn;
            let place =
                Place { name: &name, object_key: &object_key, id, bucket, key, asked, began };
            if let Err(error) = inner.free_parts(&place, &taken).await {
                tracing::warn!(upload = %id, %error, "parts of a completed upload are left behind");
            }
        });
    }

    /// Drives an upload on that was left in the middle of its completion: whether it was, and has come to
    /// its end.
    pub(crate) async fn finish_upload(
        self: &Arc<Self>,
        bucket: &str,
        key: &str,
        id: UploadId,
    ) -> Result<bool> {
        let place = match self.place(bucket, key, id).await {
            Err(Error::NoSuchBucket) => return Ok(false),
            place => place?,
        };
        let _turn = self.uploads.wait(&place.key, self.upload_turn_deadline()).await;
        let upload = match self.upload(&place).await {
            Err(Error::NoSuchUpload) => return Ok(false),
            upload => upload?,
        };
        if !matches!(upload.state, UploadState::Completing { .. }) {
            return Ok(false);
        }
        let driven = Box::pin(self.drive(&place, &upload, Driver::Another)).await?;
        Ok(matches!(driven, Driven::Completed(_)))
    }

    /// Takes the turn for a decision of another: from now on that one can't tell any more whether the
    /// object was written.
    async fn take_over(&self, place: &Place<'_>, upload: &Upload) -> Result<()> {
        let turn = WriteId::random();
        let same = |now: &Upload, _| (now.state == upload.state).then(|| now.state.clone());
        let (_, by) = self.take_turn(place, turn, None, same).await?;
        if by == turn { Ok(()) } else { Err(busy()) }
    }

    /// Changes an upload of which nobody has taken the turn over.
    async fn change_in_turn(
        &self,
        place: &Place<'_>,
        turn: WriteId,
        next: &UploadState,
    ) -> Result<(Upload, WriteId)> {
        let own = WriteId::random();
        let change = |_: &Upload, by| (by == turn).then(|| next.clone());
        let (upload, by) = self.take_turn(place, own, None, change).await?;
        if by == own { Ok((upload, own)) } else { Err(nobody_can_tell()) }
    }

    /// A condition of the key doesn't hold, and the object was never there: the upload is open again.
    async fn refuse(&self, place: &Place<'_>, turn: WriteId, error: Error) -> Result<Driven> {
        self.change_in_turn(place, turn, &UploadState::Open).await?;
        Ok(Driven::Reopened(error))
    }

    /// The same decision above what came between, if the object was never there.
    async fn decide_anew(
        &self,
        place: &Place<'_>,
        decision: Decision<'_>,
        turn: WriteId,
        found: &RegisterView,
    ) -> Result<(Upload, Driver)> {
        let before = found.entry.as_ref();
        let state = UploadState::Completing {
            write_id: decision.write_id,
            order: self.stamps.issue_above(before.map_or(Stamp::ZERO, |entry| entry.order)),
            object: Box::new(decision.object.clone()),
            condition: decision.condition.clone(),
        };
        let (upload, turn) = self.change_in_turn(place, turn, &state).await?;
        let follows = before.map(|entry| entry.write_id);
        Ok((upload, Driver::Decider { follows, turn }))
    }

    /// Nobody can tell whether the object was written before what is at its key now. Its bytes may
    /// have been taken for garbage since, so the parts can't be offered again.
    async fn give_up(
        self: &Arc<Self>,
        place: &Place<'_>,
        decided: WriteId,
        object: &Object,
    ) -> Result<Driven> {
        self.leave_completing(place, decided, UploadState::Aborted).await?;
        self.free_parts(place, &object.body).await?;
        Err(nobody_can_tell())
    }

    async fn leave_completing(
        &self,
        place: &Place<'_>,
        decided: WriteId,
        next: UploadState,
    ) -> Result<()> {
        let change = |upload: &Upload| match &upload.state {
            UploadState::Completing { write_id, .. } if *write_id == decided => Some(next.clone()),
            _ => None,
        };
        self.change_upload(place, None, change).await.map(drop)
    }

    /// Writes the object of a decision, once for all who drive it. None if it can't be told whether
    /// that has happened already.
    async fn write_object(
        &self,
        place: &Place<'_>,
        decision: Decision<'_>,
    ) -> Result<Option<(Stamp, Option<Version>)>> {
        let Decision { write_id, order, object, condition, driver } = decision;
        let key = place.object_register();
        let conditions = WriteConditions::from_key_condition(condition);
        let value = &Value::Object(Box::new(object.clone()));
        let mut bucket = place.bucket.clone();
        for _ in 0..2 {
            let commit_by_ms = self.stamps.now_ms() + COMMIT_WINDOW_MS;
            let generation = bucket.generation;
            let level = place.level();
            let intent =
                Intent { key: &key, write_id, generation, commit_by_ms, level, claim: None };
            let mut check = |view: &RegisterView| {
                // Its order says little about when it came: the order of an old write may rise.
                let newer = view
                    .entry
                    .as_ref()
                    .is_some_and(|entry| entry.order > order && !driver.followed(entry));
                if newer {
                    return Ok(false);
                }
                conditions.check(object_of(view))?;
                Ok(true)
            };
            let value = &*completed(&bucket, value)?;
            let mut decided = if bucket.versioning().state.keeps_versions() {
                let new = New { value, inline: None };
                self.append(&bucket, intent, new, &mut check).await
            } else {
                let mut evaluate = |view: &RegisterView| {
                    let goes_ahead = check(view)?;
                    let write = || Step::Write(Proposal::of(value.clone()));
                    Ok(if goes_ahead { write() } else { Step::Keep })
                };
                self.decide(intent, &mut evaluate).await.map(|landed| (landed, None))
            };
            if !conditions.is_empty() {
                decided = decided.map_err(Failed::of_conditions);
            }
            match decided? {
                (Landed::At(stamp), version) => return Ok(Some((stamp, version))),
                (Landed::Kept(view), _) => return self.found(place, &bucket, &view).await,
                (Landed::Fenced, _) => bucket = self.refreshed(place.name, &bucket).await?,
            }
        }
        Err(busy())
    }

    /// Where the object of an upload is by now: at its key, or behind what took its place there.
    async fn found(
        &self,
        place: &Place<'_>,
        bucket: &Bucket,
        view: &RegisterView,
    ) -> Result<Option<(Stamp, Option<Version>)>> {
        let current = written_by(view, place.id);
        if current.is_some() || !bucket.versioning().state.keeps_versions() {
            return Ok(current);
        }
        let beside = self.version_of_upload(&place.object_register(), place.id).await?;
        Ok(beside.map(|entry| (entry.order, entry.value.version())))
    }

    /// The answer to a Complete that was carried out before.
    pub(super) async fn completed_before(
        &self,
        place: &Place<'_>,
        upload: &Upload,
        write_id: WriteId,
        etag: ETag,
    ) -> Result<Written> {
        debug_assert_eq!(upload.id, place.id);
        let view = self.read(&place.object_register(), Want::Entry, place.level()).await?;
        if let (Some(object), Some(entry)) = (object_of(&view), &view.entry)
            && (entry.write_id == write_id || object.upload == Some(upload.id))
        {
            let (object, stamp) = (object.clone(), entry.order);
            return Ok(Written { object, stamp, source_version: None });
        }
        if place.bucket.versioning().state.keeps_versions()
            && let Some(entry) = self.version_of_upload(&place.object_register(), upload.id).await?
            && let Value::Object(object) = entry.value
        {
            return Ok(Written { object: *object, stamp: entry.order, source_version: None });
        }
        // It was overwritten or deleted since: what is left of it is its tag.
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
        Ok(Written { object, stamp, source_version: None })
    }
}
