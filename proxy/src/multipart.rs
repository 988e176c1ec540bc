//! Multipart uploads: a register with compare-and-set (rule M1), and registers of parts.
//!
//! Each write of a part has its own register, so a repeated upload of a part overwrites nothing.
//! The newest write of a number counts. The chosen parts stay until the upload ends; only then
//! parts are freed. An abort frees all parts; a completion frees the others, and removes the
//! registers of the chosen ones without their bytes.
//!
//! * [`part`]: writes and listings of parts.
//! * [`complete`]: choice of the parts, and the decision.
//! * [`drive`]: finishes a decision, on any proxy.
//! * [`list`]: open uploads.

mod complete;
mod drive;
mod list;
mod part;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use drive::Driver;
use martlet_protocol::backend::{RegisterView, Want};
use martlet_protocol::entry::{
    Attributes, Body, Bucket, ChecksumAlgorithm, ChecksumKind, Entry, Mark, Upload, UploadState,
    Value,
};
use martlet_protocol::limits::COMMIT_WINDOW_MS;
use martlet_protocol::usage::Usage;
use martlet_protocol::{Level, RegisterKey, UploadId, WriteId};
use tokio::time::Instant;

use crate::api::{NewUpload, UploadInfo};
use crate::bucket::{again_if_replaced, busy};
use crate::error::{Error, Result};
use crate::index::{Intent, Landed, Proposal, Step};
use crate::quota::Asked;
use crate::store::{Inner, ObjectStore, check_key};

/// An upload's bucket and register.
pub(crate) struct Place<'a> {
    name: &'a str,
    object_key: &'a str,
    id: UploadId,
    bucket: Arc<Bucket>,
    key: RegisterKey,
    /// Level of the request, if it names one.
    asked: Option<Level>,
    /// A time at or before the start of the operation.
    began: Instant,
}

impl Place<'_> {
    /// Register of the upload's future object.
    fn object_register(&self) -> RegisterKey {
        RegisterKey::object(self.bucket.id, self.bucket.index_shards, self.object_key)
    }

    fn intent(&self, write_id: WriteId, commit_by_ms: u64) -> Intent<'_> {
        Intent {
            key: &self.key,
            write_id,
            generation: self.bucket.generation,
            commit_by_ms,
            level: self.level(),
            claim: None,
        }
    }

    fn level(&self) -> Level {
        self.asked.unwrap_or(self.bucket.consistency)
    }
}

fn upload_of(view: &RegisterView) -> Option<&Upload> {
    match &view.entry.as_ref()?.value {
        Value::Upload(upload) => Some(upload),
        _ => None,
    }
}

fn info(upload: Upload) -> UploadInfo {
    let index_bytes = Usage::of_attributes(&upload.key, &upload.attributes).index;
    UploadInfo {
        index_bytes,
        key: upload.key,
        id: upload.id,
        initiated_ms: upload.initiated_ms,
        storage_class: upload.attributes.storage_class,
        marks: upload.attributes.marks,
        checksum: upload.checksum,
    }
}

/// Attributes of the future object. The initiator belongs only to the upload.
fn attributes_of(upload: &Upload) -> Attributes {
    let mut attributes = upload.attributes.clone();
    attributes.marks.remove(Mark::Initiator);
    attributes
}

/// Refuses invalid kinds of checksum. Only CRCs of parts can be combined; CRC64NVME always covers
/// the whole object.
fn check_kind(checksum: Option<(ChecksumAlgorithm, ChecksumKind)>) -> Result<()> {
    match checksum {
        Some((algorithm, ChecksumKind::FullObject)) if !algorithm.is_joinable() => Err(
            Error::InvalidRequest(format!("{algorithm:?} of parts can't cover the full object")),
        ),
        Some((ChecksumAlgorithm::Crc64Nvme, ChecksumKind::Composite)) => {
            Err(Error::InvalidRequest("CRC64NVME covers the full object only".into()))
        }
        _ => Ok(()),
    }
}

/// A new id that sorts by time, so that uploads of one key list in order of creation.
fn new_id(now_ms: u64) -> UploadId {
    let UploadId(mut bytes) = UploadId::random();
    bytes[..6].copy_from_slice(&now_ms.to_be_bytes()[2..]);
    UploadId(bytes)
}

impl Inner {
    async fn place<'a>(&self, name: &'a str, key: &'a str, id: UploadId) -> Result<Place<'a>> {
        check_key(key)?;
        let began = Instant::now();
        let bucket = self.open_bucket(name).await?;
        let register = RegisterKey::upload(bucket.id, bucket.index_shards, key, id);
        let asked = self.ask.level;
        Ok(Place { name, object_key: key, id, bucket, key: register, asked, began })
    }

    async fn upload(&self, place: &Place<'_>) -> Result<Upload> {
        let view = self.read(&place.key, Want::Entry, place.level()).await?;
        if let Some(upload) = upload_of(&view) {
            return Ok(upload.clone());
        }
        self.check_not_replaced(place.name, &place.bucket, place.began).await?;
        Err(Error::NoSuchUpload)
    }

    /// Reads an upload that accepts parts. An unfinished completion is driven to its end first.
    async fn open_upload(self: &Arc<Self>, place: &Place<'_>) -> Result<Upload> {
        let mut upload = self.upload(place).await?;
        if matches!(upload.state, UploadState::Completing { .. }) {
            let _turn = self.uploads.wait(&place.key, self.upload_turn_deadline()).await;
            upload = self.upload(place).await?;
            if matches!(upload.state, UploadState::Completing { .. }) {
                Box::pin(self.drive(place, &upload, Driver::Another)).await?;
                upload = self.upload(place).await?;
            }
        }
        match upload.state {
            UploadState::Open => Ok(upload),
            UploadState::Completing { .. } => Err(Error::ConditionalConflict),
            UploadState::Completed { .. } | UploadState::Aborted => Err(Error::NoSuchUpload),
        }
    }

    /// Changes the state of an upload by compare-and-set; `change` returns the next state, or none
    /// to keep it. Returns the upload after that. `claim` is set before any change is possible.
    async fn change_upload(
        &self,
        place: &Place<'_>,
        claim: Option<&AtomicBool>,
        change: impl Fn(&Upload) -> Option<UploadState> + Send + Sync,
    ) -> Result<Upload> {
        let turn = WriteId::random();
        let changed = self.take_turn(place, turn, claim, |upload, _| change(upload)).await?;
        Ok(changed.0)
    }

    /// Changes the state by a write with this id. `change` also receives the id of the last write;
    /// the result contains the id of the upload's write afterwards.
    async fn take_turn(
        &self,
        place: &Place<'_>,
        write_id: WriteId,
        claim: Option<&AtomicBool>,
        change: impl Fn(&Upload, WriteId) -> Option<UploadState> + Send + Sync,
    ) -> Result<(Upload, WriteId)> {
        let commit_by_ms = self.stamps.now_ms() + COMMIT_WINDOW_MS;
        let mut bucket = place.bucket.clone();
        for _ in 0..2 {
            let mut outcome = None;
            let mut evaluate = |view: &RegisterView| {
                let mut upload = upload_of(view).ok_or(Error::NoSuchUpload)?.clone();
                let before = view.entry.as_ref().map_or(write_id, |entry| entry.write_id);
                let step = match change(&upload, before) {
                    None => Step::Keep,
                    Some(state) => {
                        upload.state = state;
                        Step::Write(Proposal::of(Value::Upload(Box::new(upload.clone()))))
                    }
                };
                outcome = Some((upload, before));
                Ok(step)
            };
            let generation = bucket.generation;
            let intent = Intent { generation, claim, ..place.intent(write_id, commit_by_ms) };
            match (Box::pin(self.decide(intent, &mut evaluate)).await?, outcome) {
                (Landed::At(_), Some((upload, _))) => return Ok((upload, write_id)),
                (Landed::Kept(_), Some(kept)) => return Ok(kept),
                _ => bucket = self.refreshed(place.name, &bucket).await?,
            }
        }
        Err(busy())
    }
}

/// One write of a part: its number, register and entry.
struct Listed {
    number: u16,
    register: RegisterKey,
    entry: Entry,
}

impl ObjectStore {
    /// Creates an upload.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`], [`Error::InvalidRequest`] for a checksum that parts can't have.
    pub async fn create_upload(
        &self,
        bucket: &str,
        key: &str,
        new: NewUpload,
    ) -> Result<UploadInfo> {
        check_kind(new.checksum)?;
        let (inner, new) = (&self.inner(), &new);
        again_if_replaced(|| inner.create_upload(bucket, key, new)).await
    }

    /// Aborts an upload, and frees its parts.
    ///
    /// # Errors
    /// [`Error::NoSuchUpload`] if it is completed, aborted, or never existed.
    pub async fn abort_upload(&self, bucket: &str, key: &str, upload: UploadId) -> Result<()> {
        let inner = &self.inner();
        again_if_replaced(|| inner.abort_upload(bucket, key, upload)).await
    }
}

impl Inner {
    async fn create_upload(&self, bucket: &str, key: &str, new: &NewUpload) -> Result<UploadInfo> {
        self.check_new_lock(bucket, &new.attributes.marks).await?;
        let now_ms = self.stamps.now_ms();
        let mut place = self.place(bucket, key, new_id(now_ms)).await?;
        let mut attributes = new.attributes.clone();
        self.encrypt_new(&place.bucket, key, &mut attributes, true)?;
        let upload = Upload {
            key: key.to_owned(),
            id: place.id,
            initiated_ms: now_ms,
            policy: self.policy_of(&place.bucket, &attributes)?,
            attributes,
            checksum: new.checksum,
            state: UploadState::Open,
        };
        let asked = Asked::upload(key, &upload.attributes);
        let charge = Box::pin(self.charge(&place.bucket, asked)).await?;
        let value = Value::Upload(Box::new(upload.clone()));
        let write_id = WriteId::random();
        for _ in 0..2 {
            let intent = place.intent(write_id, now_ms + COMMIT_WINDOW_MS);
            match self.write(intent, &value, None, false).await? {
                Landed::At(_) => {
                    charge.written(self.stamps.now_ms());
                    return Ok(info(upload));
                }
                _ => place.bucket = self.refreshed(bucket, &place.bucket).await?,
            }
        }
        Err(busy())
    }

    async fn abort_upload(
        self: &Arc<Self>,
        bucket: &str,
        key: &str,
        upload: UploadId,
    ) -> Result<()> {
        let place = self.place(bucket, key, upload).await?;
        let _turn = self.uploads.wait(&place.key, self.upload_turn_deadline()).await;
        let before = self.upload(&place).await?;
        if matches!(before.state, UploadState::Completing { .. }) {
            Box::pin(self.drive(&place, &before, Driver::Another)).await.map(drop)?;
        }
        let after = self
            .change_upload(&place, None, |upload| {
                (upload.state == UploadState::Open).then_some(UploadState::Aborted)
            })
            .await?;
        if after.state != UploadState::Aborted {
            return Err(Error::NoSuchUpload);
        }
        // Also after an earlier abort, which may have failed before this step.
        self.free_parts(&place, &Body::Empty).await?;
        match before.state {
            UploadState::Aborted => Err(Error::NoSuchUpload),
            _ => Ok(()),
        }
    }
}
