//! Requests on uploads and their parts.

use std::sync::Arc;

use futures::future::join;
use martlet_protocol::entry::{
    Body, ChecksumAlgorithm, ChecksumKind, ETagKind, Mark, Part, Upload, UploadState, Value,
};
use martlet_protocol::extent::{BodyFacts, ExtentRole};
use martlet_protocol::limits::{COMMIT_WINDOW_MS, PARTS_MAX};
use martlet_protocol::usage::Usage;
use martlet_protocol::{RegisterKey, UploadId, WriteId};

use super::complete::{Completer, check_order};
use super::drive::CompletionDriver;
use super::part::PartStore;
use super::upload_target::{UploadName, UploadTarget, check_kind, info, new_id};
use super::uploads::UploadRegisters;
use crate::api::{
    CompleteUpload, CopyPart, NewBody, NewUpload, ObjectName, UploadInfo, WrittenObject,
    WrittenPart,
};
use crate::bucket::{BucketCatalog, again_if_replaced, busy};
use crate::checkpoints::Committer;
use crate::context::{ContextSource, RequestContext};
use crate::error::{Error, Result};
use crate::index::{RegisterClient, WriteOutcome};
use crate::keyring::Vault;
use crate::listing::Listings;
use crate::options::StoreOptions;
use crate::policy::object_policy;
use crate::put::ObjectWriter;
use crate::quota::{Quotas, RequestedUsage};
use crate::read::ObjectReader;
use crate::upload::{BodyWriter, Destination};

fn part_number(number: u32) -> Result<u16> {
    let valid = u16::try_from(number).ok().filter(|number| (1..=PARTS_MAX).contains(number));
    valid.ok_or_else(|| {
        let message =
            format!("Part number must be an integer between 1 and {PARTS_MAX}, inclusive.");
        Error::InvalidArgument(message)
    })
}

/// Checks that a part has the checksum that its upload announced. A composite checksum makes it
/// mandatory. CRC64NVME is the default of uploads without a checksum, so their parts may have any.
fn check_announced(upload: &Upload, sent: &[ChecksumAlgorithm]) -> Result<()> {
    let Some((algorithm, kind)) = upload.checksum else { return Ok(()) };
    let holds = match sent {
        [] => kind == ChecksumKind::FullObject,
        sent => algorithm == ChecksumAlgorithm::Crc64Nvme || sent.contains(&algorithm),
    };
    if holds {
        return Ok(());
    }
    let name = |algorithm: &ChecksumAlgorithm| format!("{algorithm:?}").to_ascii_lowercase();
    Err(Error::InvalidRequest(format!(
        "Checksum Type mismatch occurred, expected checksum Type: {}, actual checksum Type: {}",
        name(&algorithm),
        sent.first().map_or_else(|| "null".to_owned(), name)
    )))
}

/// State of uploads and their parts, shared by all requests.
pub(crate) struct Multipart {
    registers: Arc<RegisterClient>,
    catalog: Arc<BucketCatalog>,
    quotas: Arc<Quotas>,
    writer: Arc<BodyWriter>,
    vault: Arc<Vault>,
    reader: Arc<ObjectReader>,
    pub(super) uploads: Arc<UploadRegisters>,
    pub(crate) parts: Arc<PartStore>,
    pub(crate) driver: Arc<CompletionDriver>,
    completer: Completer,
    part_extents_inline_max: usize,
}

impl Multipart {
    pub(crate) fn new(
        reader: Arc<ObjectReader>,
        objects: &ObjectWriter,
        options: StoreOptions,
    ) -> Self {
        let ObjectWriter { registers, catalog, quotas, versions, writer, vault } = objects;
        let uploads = Arc::new(UploadRegisters::new(registers.clone(), catalog.clone()));
        let parts = Arc::new(PartStore::new(uploads.clone(), reader.bodies.clone()));
        let driver = CompletionDriver::new(uploads.clone(), parts.clone(), versions.clone());
        let driver = Arc::new(driver);
        let completer = Completer::new(driver.clone(), &reader, objects, options);
        Self {
            registers: registers.clone(),
            catalog: catalog.clone(),
            quotas: quotas.clone(),
            writer: writer.clone(),
            vault: vault.clone(),
            reader,
            uploads,
            parts,
            driver,
            completer,
            part_extents_inline_max: options.part_extents_inline_max,
        }
    }

    async fn create_once(
        &self,
        context: &Arc<RequestContext>,
        bucket: &str,
        key: &str,
        new: &NewUpload,
    ) -> Result<UploadInfo> {
        self.catalog.check_new_lock(context, bucket, &new.attributes.marks).await?;
        let now_ms = self.registers.stamps.now_ms();
        let upload = UploadName { bucket, key, id: new_id(now_ms) };
        let mut target = self.uploads.target(context, upload).await?;
        let mut attributes = new.attributes.clone();
        context.keys.encrypt_new(&self.vault, &target.bucket, key, &mut attributes, true)?;
        if target.bucket.etags() == ETagKind::Opaque {
            attributes.marks.set(Mark::OpaqueETags, Vec::new());
        }
        let upload = Upload {
            key: key.to_owned(),
            id: target.id,
            initiated_ms: now_ms,
            policy: object_policy(&context.cluster, &target.bucket, &attributes)?,
            attributes,
            checksum: new.checksum,
            state: UploadState::Open,
        };
        let requested = RequestedUsage::upload(key, &upload.attributes);
        let charge = Box::pin(self.quotas.charge(&target.bucket, requested)).await?;
        let value = Value::Upload(Box::new(upload.clone()));
        let write_id = WriteId::random();
        for _ in 0..2 {
            let intent = target.intent(write_id, now_ms + COMMIT_WINDOW_MS);
            match self.registers.write(context, intent, &value, None, false).await? {
                WriteOutcome::At(_) => {
                    charge.written(self.registers.stamps.now_ms());
                    return Ok(info(upload));
                }
                _ => {
                    target.bucket = self.catalog.refreshed(context, bucket, &target.bucket).await?;
                }
            }
        }
        Err(busy())
    }

    async fn abort_once(
        &self,
        context: &Arc<RequestContext>,
        upload: UploadName<'_>,
    ) -> Result<()> {
        let target = self.uploads.target(context, upload).await?;
        let _turn = self.uploads.end_turn(&target).await;
        let before = self.uploads.upload(&target).await?;
        if matches!(before.state, UploadState::Completing { .. }) {
            self.driver.drive_on(&target, &before).await.map(drop)?;
        }
        let after = self
            .uploads
            .change_upload(&target, None, |upload| {
                (upload.state == UploadState::Open).then_some(UploadState::Aborted)
            })
            .await?;
        if after.state != UploadState::Aborted {
            return Err(Error::NoSuchUpload);
        }
        // Also after an earlier abort, which may have failed before this step.
        self.parts.free_parts(&target, &Body::Empty).await?;
        match before.state {
            UploadState::Aborted => Err(Error::NoSuchUpload),
            _ => Ok(()),
        }
    }

    /// Reads an upload that accepts parts. An unfinished completion is driven to its end first.
    async fn open_upload(&self, target: &UploadTarget<'_>) -> Result<Upload> {
        let mut upload = self.uploads.upload(target).await?;
        if matches!(upload.state, UploadState::Completing { .. }) {
            let _turn = self.uploads.end_turn(target).await;
            upload = self.uploads.upload(target).await?;
            if matches!(upload.state, UploadState::Completing { .. }) {
                self.driver.drive_on(target, &upload).await?;
                upload = self.uploads.upload(target).await?;
            }
        }
        match upload.state {
            UploadState::Open => Ok(upload),
            UploadState::Completing { .. } => Err(Error::ConditionalConflict),
            UploadState::Completed { .. } | UploadState::Aborted => Err(Error::NoSuchUpload),
        }
    }

    /// Finds an upload that accepts parts.
    async fn open_target<'a>(
        &self,
        context: &'a Arc<RequestContext>,
        upload: UploadName<'a>,
    ) -> Result<(UploadTarget<'a>, Upload)> {
        again_if_replaced(|| async move {
            let target = self.uploads.target(context, upload).await?;
            let upload = self.open_upload(&target).await?;
            Ok((target, upload))
        })
        .await
    }

    /// Writes a part of an open upload.
    async fn store_part(
        &self,
        target: &UploadTarget<'_>,
        upload: &Upload,
        number: u16,
        mut new_body: NewBody,
    ) -> Result<WrittenPart> {
        let (keys, marks) = (&target.context.keys, &upload.attributes.marks);
        let secret = keys.unlock_upload(&self.vault, marks, target.address())?;
        let secret = secret.map(|secret| secret.of_part(number));
        if let Some((algorithm, _)) = upload.checksum {
            new_body.compute.push(algorithm);
        }
        // The id shows later if the part's order is still one of this process (rule M4).
        let write_id = self.registers.stamps.writer().write_id();
        let commit_by_ms = self.registers.stamps.now_ms() + COMMIT_WINDOW_MS;
        let destination = Destination {
            bucket: target.bucket.id,
            key: target.object_key,
            write_id,
            upload: Some(target.id),
            role: ExtentRole::Data,
            offset: 0,
            facts: Some(BodyFacts {
                is_encrypted: secret.is_some(),
                part: Some(number),
                ..BodyFacts::default()
            }),
            policy: upload.policy,
            inline_bytes_max: 0,
            etags: upload.etags(),
        };
        let requested = RequestedUsage::part(new_body.size);
        let mut charge = Box::pin(self.quotas.charge(&target.bucket, requested)).await?;
        let mut stored = self.writer.store(new_body, destination, secret.as_ref()).await?;
        let inline_max = self.part_extents_inline_max;
        let body = Box::pin(self.writer.part_body_for(&mut stored, destination, inline_max));
        let (body, _spilled) = body.await?;
        let part = Part {
            size: stored.size,
            tag: stored.tag,
            modified_ms: self.registers.stamps.now_ms(),
            checksums: stored.checksums.clone(),
            body,
        };
        charge.came_to(Usage::of_part(&part))?;
        let written = WrittenPart {
            etag: destination.etags.whole(part.tag),
            modified_ms: part.modified_ms,
            checksums: part.checksums.clone(),
            announced: upload.checksum,
            source_version: None,
        };
        let register = RegisterKey::part(&target.key, target.id, number, write_id);
        let value = Value::Part(Box::new(part));
        self.parts.commit_part(target, &register, write_id, commit_by_ms, &value, stored).await?;
        charge.written(self.registers.stamps.now_ms());
        let is_open = Box::pin(self.parts.check_still_open(target, &register));
        let (is_open, ()) = join(is_open, Box::pin(self.parts.free_replaced(target, number))).await;
        is_open.map(|()| written)
    }
}

/// Multipart uploads of a store, and their parts.
#[derive(Clone, Copy)]
pub struct Uploads<'a> {
    pub(crate) multipart: &'a Multipart,
    pub(crate) listings: &'a Listings,
    pub(crate) checkpoints: &'a Arc<Committer>,
    pub(crate) contexts: ContextSource<'a>,
}

impl Uploads<'_> {
    /// Creates an upload.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`], [`Error::InvalidRequest`] for a checksum that parts can't have.
    pub async fn create(self, bucket: &str, key: &str, new: NewUpload) -> Result<UploadInfo> {
        check_kind(new.checksum)?;
        let context = &self.contexts.context();
        again_if_replaced(|| self.multipart.create_once(context, bucket, key, &new)).await
    }

    /// Aborts an upload, and frees its parts.
    ///
    /// # Errors
    /// [`Error::NoSuchUpload`] if it is completed, aborted, or never existed.
    pub async fn abort(self, bucket: &str, key: &str, upload: UploadId) -> Result<()> {
        let (context, upload) = (&self.contexts.context(), UploadName { bucket, key, id: upload });
        again_if_replaced(|| self.multipart.abort_once(context, upload)).await
    }

    /// Completes an upload. A repeated request returns the first result; one with other parts fails
    /// with [`Error::NoSuchUpload`].
    ///
    /// # Errors
    /// [`Error::NoSuchUpload`], [`Error::InvalidPart`], [`Error::InvalidPartOrder`],
    /// [`Error::EntityTooSmall`], [`Error::EntityTooLarge`], [`Error::BadChecksum`],
    /// [`Error::BadPartChecksum`], [`Error::PreconditionFailed`], [`Error::InvalidRequest`] for a
    /// key other than the upload's.
    pub async fn complete(
        self,
        bucket: &str,
        key: &str,
        upload: UploadId,
        complete: CompleteUpload,
    ) -> Result<WrittenObject> {
        check_order(&complete.parts)?;
        let (context, upload) = (&self.contexts.context(), UploadName { bucket, key, id: upload });
        let completer = &self.multipart.completer;
        let found = self.multipart.catalog.bucket(context, bucket).await?;
        let marker = self.checkpoints.begin(&found, bucket, key).await?;
        let completed = again_if_replaced(|| completer.complete(context, upload, &complete)).await;
        self.checkpoints.finish(marker, completed).await
    }

    /// Writes a part, and replaces an earlier one with its number.
    ///
    /// # Errors
    /// [`Error::NoSuchUpload`], [`Error::InvalidArgument`] for a number outside its bounds, and
    /// those of [`ObjectStore::put`](crate::ObjectStore::put).
    pub async fn put_part(
        self,
        bucket: &str,
        key: &str,
        upload: UploadId,
        number: u32,
        body: NewBody,
    ) -> Result<WrittenPart> {
        let number = part_number(number)?;
        let (context, upload) = (&self.contexts.context(), UploadName { bucket, key, id: upload });
        let (target, upload) = self.multipart.open_target(context, upload).await?;
        check_announced(&upload, &body.compute)?;
        self.multipart.store_part(&target, &upload, number, body).await
    }

    /// Writes a part from bytes of an object.
    ///
    /// # Errors
    /// Those of [`Uploads::put_part`] and of the read.
    pub async fn copy_part(
        self,
        bucket: &str,
        key: &str,
        upload: UploadId,
        number: u32,
        copy: CopyPart,
    ) -> Result<WrittenPart> {
        let number = part_number(number)?;
        let (context, upload) = (&self.contexts.context(), UploadName { bucket, key, id: upload });
        let (target, upload) = self.multipart.open_target(context, upload).await?;
        let (bucket, key) = &copy.source;
        let source = ObjectName { key, version: copy.source_version };
        let (body, source_version) = self
            .multipart
            .reader
            .source_of(context, bucket, source, &copy.source_conditions, copy.selection)
            .await?;
        let written = self.multipart.store_part(&target, &upload, number, body).await?;
        Ok(WrittenPart { source_version, ..written })
    }
}
