//! A decision about an upload is driven to its end, by whoever finds it (rule M1).
//!
//! The order of the object is fixed with the decision, above everything that was acknowledged at
//! its key before. Whoever drives it finds the write there, or writes it where nothing came between.
//! Where something else is above that order nobody can tell whether the object was there before it,
//! and so nobody writes it again: an object that was completed, seen and overwritten stays so.

use std::sync::Arc;

use martlet_protocol::backend::{RegisterView, Want};
use martlet_protocol::entry::{
    Body, ETag, Entry, KeyCondition, Object, Upload, UploadState, Value,
};
use martlet_protocol::limits::COMMIT_WINDOW_MS;
use martlet_protocol::{Stamp, UploadId, WriteId};

use super::Place;
use crate::api::{WriteConditions, Written};
use crate::bucket::busy;
use crate::error::{Error, Result};
use crate::index::{Failed, Intent, Landed, Proposal, Step};
use crate::put::object_of;
use crate::store::Inner;

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
        matches!(self, Self::Decider { follows } if follows == Some(entry.write_id))
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
    /// Whoever decided, in the same breath, over the write that the key held then.
    Decider {
        /// That write.
        follows: Option<WriteId>,
    },
    /// Someone who found it decided: the object may have been written, and overwritten since.
    Another,
}

/// The order of the object at a key, if it is that of an upload: by the write that was decided, or by
/// one that has only changed what is said of it since.
fn written_by(view: &RegisterView, upload: UploadId) -> Option<Stamp> {
    object_of(view).filter(|object| object.upload == Some(upload))?;
    view.entry.as_ref().map(|entry| entry.order)
}

impl Inner {
    /// Drives a decision to its end: the object is written, the upload is completed, and the parts
    /// that were not chosen are freed.
    pub(super) async fn drive(
        self: &Arc<Self>,
        place: &Place<'_>,
        upload: &Upload,
        driver: Driver,
    ) -> Result<Driven> {
        let UploadState::Completing { write_id, order, object, condition } = &upload.state else {
            return Err(Error::NoSuchUpload);
        };
        let decision = Decision { write_id: *write_id, order: *order, object, condition, driver };
        let stamp = match self.write_object(place, decision).await {
            Ok(Some(stamp)) => stamp,
            Ok(None) => return self.give_up(place, *write_id, object).await,
            Err(error @ (Error::PreconditionFailed(_) | Error::NoSuchKey)) => {
                self.leave_completing(place, *write_id, UploadState::Open).await?;
                return Ok(Driven::Reopened(error));
            }
            Err(error) => return Err(error),
        };
        let completed = UploadState::Completed { write_id: *write_id, etag: object.etag };
        self.leave_completing(place, *write_id, completed).await?;
        if let Err(error) = self.free_parts(place, &object.body).await {
            tracing::warn!(upload = %place.id, %error, "parts of a completed upload are left behind");
        }
        Ok(Driven::Completed(Box::new(Written { object: (**object).clone(), stamp })))
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
        Err(martlet_protocol::Error::unavailable("nobody can tell who won").into())
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
    ) -> Result<Option<Stamp>> {
        let Decision { write_id, order, object, condition, driver } = decision;
        let key = place.object_register();
        let conditions = WriteConditions::from_key_condition(condition);
        let mut bucket = place.bucket.clone();
        for _ in 0..2 {
            let commit_by_ms = self.stamps.now_ms() + COMMIT_WINDOW_MS;
            let generation = bucket.generation;
            let level = place.level();
            let intent =
                Intent { key: &key, write_id, generation, commit_by_ms, level, claim: None };
            let mut evaluate = |view: &RegisterView| {
                // Its order says little about when it came: the order of an old write may rise.
                let newer = view
                    .entry
                    .as_ref()
                    .is_some_and(|entry| entry.order > order && !driver.followed(entry));
                if newer && (conditions.is_empty() || driver == Driver::Another) {
                    return Ok(Step::Keep);
                }
                conditions.check(object_of(view))?;
                Ok(Step::Write(Proposal::of(Value::Object(Box::new(object.clone())))))
            };
            let mut decided = self.decide(intent, &mut evaluate).await;
            if !conditions.is_empty() {
                decided = decided.map_err(Failed::of_conditions);
            }
            match decided? {
                Landed::At(stamp) => return Ok(Some(stamp)),
                Landed::Kept(view) => return Ok(written_by(&view, place.id)),
                Landed::Fenced => bucket = self.refreshed(place.name, &bucket).await?,
            }
        }
        Err(busy())
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
            return Ok(Written { object: object.clone(), stamp: entry.order });
        }
        // It was overwritten or deleted since: what is left of it is its tag.
        let object = Object {
            size: 0,
            etag,
            modified_ms: upload.initiated_ms,
            attributes: upload.attributes.clone(),
            checksums: Vec::new(),
            upload: Some(upload.id),
            body: Body::Empty,
        };
        Ok(Written { object, stamp: view.entry.map_or(Stamp::ZERO, |entry| entry.order) })
    }
}
