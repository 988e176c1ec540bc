//! Uploads in their registers: reads, and changes by compare-and-set.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use martlet_protocol::backend::{RegisterView, Want};
use martlet_protocol::entry::{Upload, UploadState, Value};
use martlet_protocol::limits::COMMIT_WINDOW_MS;
use martlet_protocol::{Level, RegisterKey, Stamp, WriteId};
use tokio::time::Instant;

use super::upload_target::{UploadName, UploadTarget, upload_of};
use crate::bucket::{BucketCatalog, busy, check_key};
use crate::context::RequestContext;
use crate::error::{Error, Result};
use crate::index::{Intent, Proposal, RegisterClient, Step, WriteOutcome};
use crate::latch::{Turn, Turns};

/// Uploads in their registers.
pub(super) struct UploadRegisters {
    pub(super) registers: Arc<RegisterClient>,
    pub(super) catalog: Arc<BucketCatalog>,
    /// Turns at the end of an upload, which contain ballots.
    turns: Turns,
}

impl UploadRegisters {
    pub(super) fn new(registers: Arc<RegisterClient>, catalog: Arc<BucketCatalog>) -> Self {
        Self { registers, catalog, turns: Turns::new() }
    }

    /// Waits for the turn to end an upload.
    pub(super) async fn end_turn(&self, target: &UploadTarget<'_>) -> Turn<'_> {
        let deadline = self.registers.replicas.upload_turn_deadline();
        self.turns.wait(&target.key, deadline).await
    }

    /// Register and bucket of an upload.
    pub(super) async fn target<'a>(
        &self,
        context: &'a Arc<RequestContext>,
        upload: UploadName<'a>,
    ) -> Result<UploadTarget<'a>> {
        let UploadName { bucket: name, key: object_key, id } = upload;
        check_key(object_key)?;
        let began = Instant::now();
        let bucket = self.catalog.open_bucket(context, name).await?;
        let key = RegisterKey::upload(bucket.id, bucket.index_shards, object_key, id);
        Ok(UploadTarget { context, name, object_key, id, bucket, key, began })
    }

    pub(super) async fn upload(&self, target: &UploadTarget<'_>) -> Result<Upload> {
        self.upload_and_turn(target).await.map(|(upload, _)| upload)
    }

    /// Returns an upload, and the id of its last write.
    pub(super) async fn upload_and_turn(
        &self,
        target: &UploadTarget<'_>,
    ) -> Result<(Upload, WriteId)> {
        let view =
            self.registers.read(target.context, &target.key, Want::Entry, target.level()).await?;
        if let (Some(upload), Some(entry)) = (upload_of(&view), &view.entry) {
            return Ok((upload.clone(), entry.write_id));
        }
        self.catalog
            .check_not_replaced(target.context, target.name, &target.bucket, target.began)
            .await?;
        Err(Error::NoSuchUpload)
    }

    /// Returns the order of an upload's last write, if the upload is there.
    pub(super) async fn order(&self, target: &UploadTarget<'_>) -> Result<Option<Stamp>> {
        let read = self.registers.read(target.context, &target.key, Want::Entry, Level::Strict);
        Ok(read.await?.entry.map(|entry| entry.order))
    }

    /// Changes the state of an upload by compare-and-set; `change` returns the next state, or none
    /// to keep it. Returns the upload after that. `claim` is set before any change is possible.
    pub(super) async fn change_upload(
        &self,
        target: &UploadTarget<'_>,
        claim: Option<&AtomicBool>,
        change: impl Fn(&Upload) -> Option<UploadState> + Send + Sync,
    ) -> Result<Upload> {
        let turn = WriteId::random();
        let changed = self.take_turn(target, turn, claim, |upload, _| change(upload)).await?;
        Ok(changed.0)
    }

    /// Changes the state by a write with this id. `change` also receives the id of the last write;
    /// the result contains the id of the upload's write afterwards.
    pub(super) async fn take_turn(
        &self,
        target: &UploadTarget<'_>,
        write_id: WriteId,
        claim: Option<&AtomicBool>,
        change: impl Fn(&Upload, WriteId) -> Option<UploadState> + Send + Sync,
    ) -> Result<(Upload, WriteId)> {
        let commit_by_ms = self.registers.stamps.now_ms() + COMMIT_WINDOW_MS;
        let mut bucket = target.bucket.clone();
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
            let intent = Intent { generation, claim, ..target.intent(write_id, commit_by_ms) };
            match (Box::pin(self.registers.ballots.decide(intent, &mut evaluate)).await?, outcome) {
                (WriteOutcome::At(_), Some((upload, _))) => return Ok((upload, write_id)),
                (WriteOutcome::Kept(_), Some(kept)) => return Ok(kept),
                _ => bucket = self.catalog.refreshed(target.context, target.name, &bucket).await?,
            }
        }
        Err(busy())
    }
}
