//! Completion of an upload: its parts are chosen, and the choice is decided.

use std::sync::Arc;

use martlet_protocol::backend::Want;
use martlet_protocol::entry::{
    ChecksumAlgorithm, ChecksumKind, ETag, ETagKind, Part, Upload, UploadState,
};
use martlet_protocol::limits::{OBJECT_BYTES_MAX, PARTS_MAX};
use martlet_protocol::{Level, Stamp, WriteId};
use tokio::sync::Semaphore;

use super::assemble::Assembler;
use super::decision::Driver;
use super::drive::{CompletionDriver, Driven};
use super::part::{PartStore, PartWalk};
use super::upload_target::{UploadName, UploadTarget};
use super::uploads::UploadRegisters;
use crate::api::{CompleteUpload, NamedPart, WrittenObject};
use crate::bucket::{busy, object_of};
use crate::context::RequestContext;
use crate::digest::md5_of_md5s;
use crate::error::{Error, Result};
use crate::index::RegisterClient;
use crate::keyring::Vault;
use crate::options::StoreOptions;
use crate::put::ObjectWriter;
use crate::quota::{Quotas, RequestedUsage};
use crate::read::ObjectReader;

/// Most parts of a completion that needs no permit.
const LONG_PARTS: usize = 128;
/// Completions of more parts at a time. Each holds its manifest, and its encoded bytes while it is
/// stored.
const LONG_AT_ONCE: usize = 8;
/// Most choices of one completion whose upload is written meanwhile.
const CHOICES_MAX: usize = 8;

pub(super) fn check_order(parts: &[NamedPart]) -> Result<()> {
    if parts.is_empty() || parts.len() > usize::from(PARTS_MAX) {
        return Err(Error::InvalidRequest(format!("an upload must have 1 to {PARTS_MAX} parts")));
    }
    if !parts.windows(2).all(|pair| pair[0].number < pair[1].number) {
        return Err(Error::InvalidPartOrder);
    }
    let wrong = |part: &&NamedPart| part.number == 0 || part.number > u32::from(PARTS_MAX);
    match parts.iter().find(wrong) {
        Some(part) => Err(Error::InvalidPart(part.number)),
        None => Ok(()),
    }
}

/// ETag of an object made of parts with these ETags; none if one is no part's ETag.
fn etag_of(parts: &[NamedPart]) -> Option<ETag> {
    let (mut kinds, mut tags) = (Vec::new(), Vec::with_capacity(parts.len()));
    for part in parts {
        let (kind, tag) = ETag::parse_whole(part.etag.trim_matches('"'))?;
        kinds.push(kind);
        tags.push(tag);
    }
    let kind = *kinds.first()?;
    if kinds.iter().any(|other| *other != kind) {
        return None;
    }
    Some(kind.multipart(md5_of_md5s(tags.iter()), u16::try_from(parts.len()).ok()?))
}

fn check_part(named: &NamedPart, part: &Part, etags: ETagKind) -> Result<()> {
    let etag = named.etag.trim_matches('"');
    if !etags.whole(part.tag).to_string().eq_ignore_ascii_case(etag) {
        return Err(Error::InvalidPart(named.number));
    }
    for (algorithm, value) in &named.checksums {
        match part.checksums.iter().find(|sum| sum.algorithm == *algorithm) {
            // The checksum was not computed.
            None => {
                let (number, algorithm) = (named.number, *algorithm);
                return Err(Error::BadPartChecksum { number, algorithm });
            }
            Some(sum) if sum.value != *value => return Err(Error::InvalidPart(named.number)),
            Some(_) => {}
        }
    }
    Ok(())
}

/// Checks the request's checksums against those of the upload's start. A composite checksum needs
/// the checksum of each part in the request.
fn check_announced(upload: &Upload, complete: &CompleteUpload) -> Result<()> {
    let begun_with = upload.checksum.map(|(_, kind)| kind);
    if complete.checksum_kind.is_some_and(|kind| begun_with.is_some_and(|begun| begun != kind)) {
        return Err(Error::InvalidRequest(format!(
            "The upload was created using the {} checksum mode. The complete request must use the \
                 same checksum mode.",
            match begun_with {
                Some(ChecksumKind::Composite) => "COMPOSITE",
                _ => "FULL_OBJECT",
            }
        )));
    }
    let Some((algorithm, ChecksumKind::Composite)) = upload.checksum else { return Ok(()) };
    let is_missing =
        |part: &&NamedPart| !part.checksums.iter().any(|(named, _)| *named == algorithm);
    match complete.parts.iter().find(is_missing) {
        None => Ok(()),
        Some(part) => {
            let name = format!("{algorithm:?}").to_ascii_lowercase();
            Err(Error::InvalidRequest(format!(
                "The upload was created using a {name} checksum. The complete request must include \
                 the checksum for each part. It was missing for part {} in the request.",
                part.number
            )))
        }
    }
}

/// Returns true if the client sent or requested checksums. CRC64NVME doesn't count: it is also the
/// default of uploads without a checksum.
fn has_client_checksums(upload: &Upload, chosen: &[Box<Part>]) -> bool {
    let is_of_client = |algorithm: ChecksumAlgorithm| algorithm != ChecksumAlgorithm::Crc64Nvme;
    let mut of_parts = chosen.iter().flat_map(|part| &part.checksums);
    upload.checksum.is_some_and(|(algorithm, _)| is_of_client(algorithm))
        || of_parts.any(|sum| is_of_client(sum.algorithm))
}

/// Completion of uploads.
pub(super) struct Completer {
    registers: Arc<RegisterClient>,
    quotas: Arc<Quotas>,
    vault: Arc<Vault>,
    uploads: Arc<UploadRegisters>,
    parts: Arc<PartStore>,
    driver: Arc<CompletionDriver>,
    assembler: Assembler,
    part_bytes_min: u64,
    /// Permits for completions of many parts, whose manifests are whole in memory.
    long: Semaphore,
}

/// Outcome of one choice of parts.
enum Choice {
    Completed(Box<WrittenObject>),
    /// The upload was written after it was read, so a chosen part may have been freed: the upload as
    /// it is now, and the id of that write.
    Outdated(Box<Upload>, WriteId),
}

impl Choice {
    fn completed(written: WrittenObject) -> Self {
        Self::Completed(Box::new(written))
    }
}

impl Completer {
    pub(super) fn new(
        driver: Arc<CompletionDriver>,
        reader: &ObjectReader,
        objects: &ObjectWriter,
        options: StoreOptions,
    ) -> Self {
        let ObjectWriter { registers, quotas, vault, .. } = objects;
        let (uploads, parts) = (driver.uploads.clone(), driver.parts.clone());
        Self {
            registers: registers.clone(),
            quotas: quotas.clone(),
            vault: vault.clone(),
            uploads,
            parts,
            driver,
            assembler: Assembler::new(objects, reader.bodies.clone()),
            part_bytes_min: options.part_bytes_min,
            long: Semaphore::new(LONG_AT_ONCE),
        }
    }

    pub(super) async fn complete(
        &self,
        context: &Arc<RequestContext>,
        upload: UploadName<'_>,
        complete: &CompleteUpload,
    ) -> Result<WrittenObject> {
        let written = Box::pin(self.complete_once(context, upload, complete)).await?;
        // A request that names other parts than the completed ones is no repetition.
        if etag_of(&complete.parts) == Some(written.object.etag) {
            return Ok(written);
        }
        Err(Error::NoSuchUpload)
    }

    /// Completes an upload, or returns its earlier completion.
    async fn complete_once(
        &self,
        context: &Arc<RequestContext>,
        upload: UploadName<'_>,
        complete: &CompleteUpload,
    ) -> Result<WrittenObject> {
        let target = self.uploads.target(context, upload).await?;
        let _turn = self.uploads.end_turn(&target).await;
        let upload = self.uploads.upload(&target).await?;
        let keys = &target.context.keys;
        keys.check_upload_key(&self.vault, &upload.attributes.marks, target.address())?;
        match &upload.state {
            UploadState::Aborted => Err(Error::NoSuchUpload),
            UploadState::Completed { write_id, etag } => {
                self.driver.completed_before(&target, &upload, *write_id, *etag).await
            }
            UploadState::Completing { .. } => match self.driver.drive_on(&target, &upload).await? {
                Driven::Completed(written) => Ok(*written),
                Driven::Reopened(_) => Box::pin(self.complete_charged(&target, complete)).await,
            },
            UploadState::Open => Box::pin(self.complete_charged(&target, complete)).await,
        }
    }

    /// Completes an open upload. Its bytes were charged as parts, so only one object is charged.
    async fn complete_charged(
        &self,
        target: &UploadTarget<'_>,
        complete: &CompleteUpload,
    ) -> Result<WrittenObject> {
        let charge =
            Box::pin(self.quotas.charge(&target.bucket, RequestedUsage::completion())).await?;
        let written = self.complete_open(target, complete).await?;
        charge.written(self.registers.stamps.now_ms());
        Ok(written)
    }

    async fn complete_open(
        &self,
        target: &UploadTarget<'_>,
        complete: &CompleteUpload,
    ) -> Result<WrittenObject> {
        let _permit = if complete.parts.len() > LONG_PARTS {
            Some(self.long.acquire().await.expect("the semaphore is never closed"))
        } else {
            None
        };
        let (mut upload, mut turn) = self.uploads.upload_and_turn(target).await?;
        for _ in 0..CHOICES_MAX {
            match Box::pin(self.choose_and_decide(target, complete, &upload, turn)).await? {
                Choice::Completed(written) => return Ok(*written),
                Choice::Outdated(now, by) => (upload, turn) = (*now, by),
            }
        }
        Err(busy())
    }

    /// Chooses the parts of an upload that was read as of its write `read`, and decides on the object
    /// if that is still its last write. A release of replaced parts writes the upload first, so no
    /// chosen part is freed before the decision.
    async fn choose_and_decide(
        &self,
        target: &UploadTarget<'_>,
        complete: &CompleteUpload,
        upload: &Upload,
        read: WriteId,
    ) -> Result<Choice> {
        check_announced(upload, complete)?;
        let mut chosen = match self.choose_in_time(target, upload.etags(), &complete.parts).await {
            Ok(chosen) => chosen,
            Err(error) => return self.refused(target, error).await.map(Choice::completed),
        };
        Self::check_customer_key(target, upload, &chosen)?;
        let write_id = WriteId::random();
        let assembled = self.assembler.assemble(target, upload, &mut chosen, complete, write_id);
        let (object, orphans) = Box::pin(assembled).await?;
        let key = target.object_register();
        // Read strictly, so that the order is above all acknowledged writes.
        let view = self.registers.read(target.context, &key, Want::Entry, Level::Strict).await?;
        if let Err(error) = complete.conditions.check(object_of(&view)) {
            return self.refused(target, error).await.map(Choice::completed);
        }
        let follows = view.entry.as_ref().map(|entry| entry.write_id);
        let before = view.entry.map_or(Stamp::ZERO, |entry| entry.order);
        let state = UploadState::Completing {
            write_id,
            order: self.registers.stamps.issue_above(before),
            object: Box::new(object),
            condition: complete.conditions.to_key_condition(),
            follows,
        };
        let turn = WriteId::random();
        let (decided, by) = self
            .uploads
            .take_turn(target, turn, Some(orphans.claim()), |upload, by| {
                (upload.state == UploadState::Open && by == read).then(|| state.clone())
            })
            .await?;
        if decided.state == UploadState::Open {
            orphans.release();
            return Ok(Choice::Outdated(Box::new(decided), by));
        }
        let own = matches!(&decided.state,
            UploadState::Completing { write_id: decided_id, .. } if *decided_id == write_id);
        if !own {
            orphans.release();
        }
        let decider = (own && by == turn).then(|| Driver::decider(follows, turn));
        match Box::pin(self.drive(target, &decided, decider)).await? {
            Driven::Completed(written) => Ok(Choice::Completed(written)),
            Driven::Reopened(error) => {
                orphans.release();
                Err(error)
            }
        }
    }

    /// Ends a completion that was decided, by this request if there is a `decider`, or by another one.
    async fn drive(
        &self,
        target: &UploadTarget<'_>,
        decided: &Upload,
        decider: Option<Driver>,
    ) -> Result<Driven> {
        match &decided.state {
            UploadState::Completing { .. } => match decider {
                Some(decider) => Box::pin(self.driver.drive(target, decided, decider)).await,
                None => self.driver.drive_on(target, decided).await,
            },
            UploadState::Completed { write_id, etag } => {
                let before = self.driver.completed_before(target, decided, *write_id, *etag);
                before.await.map(|written| Driven::Completed(Box::new(written)))
            }
            UploadState::Open | UploadState::Aborted => Err(Error::NoSuchUpload),
        }
    }

    /// Chooses the named parts; tries again after a missing part that may have been in transit.
    async fn choose_in_time(
        &self,
        target: &UploadTarget<'_>,
        etags: ETagKind,
        named: &[NamedPart],
    ) -> Result<Vec<Box<Part>>> {
        match self.choose(target, etags, named).await {
            // No hints are left, so all acknowledged parts have arrived.
            Err(Error::InvalidPart(_) | Error::BadPartChecksum { .. })
                if self.has_all_parts(target).await? =>
            {
                self.choose(target, etags, named).await
            }
            chosen => chosen,
        }
    }

    /// Refuses a completion without the customer's key if checksums came with the bytes.
    fn check_customer_key(
        target: &UploadTarget<'_>,
        upload: &Upload,
        chosen: &[Box<Part>],
    ) -> Result<()> {
        if !has_client_checksums(upload, chosen) {
            return Ok(());
        }
        target.context.keys.require_upload_key(&upload.attributes.marks, target.address())
    }

    /// Returns true if the upload is still open and a walk finds all acknowledged parts. Fails
    /// while a part may be in transit.
    async fn has_all_parts(&self, target: &UploadTarget<'_>) -> Result<bool> {
        let is_open = self.uploads.upload(target).await?.state == UploadState::Open;
        if is_open {
            self.parts.check_no_parts_kept(target).await?;
        }
        Ok(is_open)
    }

    /// Response if the named parts can't be chosen or the condition doesn't hold. A concurrent
    /// completion may have freed the parts and written the object.
    async fn refused(&self, target: &UploadTarget<'_>, error: Error) -> Result<WrittenObject> {
        let upload = self.uploads.upload(target).await?;
        match &upload.state {
            UploadState::Open => Err(error),
            UploadState::Aborted => Err(Error::NoSuchUpload),
            UploadState::Completed { write_id, etag } => {
                self.driver.completed_before(target, &upload, *write_id, *etag).await
            }
            UploadState::Completing { .. } => match self.driver.drive_on(target, &upload).await? {
                Driven::Completed(written) => Ok(*written),
                Driven::Reopened(error) => Err(error),
            },
        }
    }

    /// Finds and checks the named parts.
    async fn choose(
        &self,
        target: &UploadTarget<'_>,
        etags: ETagKind,
        named: &[NamedPart],
    ) -> Result<Vec<Box<Part>>> {
        let mut parts = PartWalk::new(&self.registers, target, 0, named.len(), Level::Strict)?;
        let mut chosen = Vec::with_capacity(named.len());
        let mut size = 0_u64;
        for (at, wanted) in named.iter().enumerate() {
            let part = parts.find(wanted.number, |part| check_part(wanted, part, etags)).await?;
            let minimum = self.part_bytes_min;
            if at + 1 < named.len() && part.size < minimum {
                let (number, size) = (wanted.number, part.size);
                return Err(Error::EntityTooSmall { number, size, minimum });
            }
            size = size.saturating_add(part.size);
            // Checked at each part, so that the manifests of a longer object are never in memory.
            if size > OBJECT_BYTES_MAX {
                return Err(Error::EntityTooLarge { size, maximum: OBJECT_BYTES_MAX });
            }
            chosen.push(part);
        }
        Ok(chosen)
    }
}
