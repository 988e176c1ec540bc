//! Copy of one object in parts, several of them at once.
//!
//! ```text
//! HEAD ─▶ form ─▶ begin ─▶ parts, each verified by the target ─▶ verify all ─▶ complete
//! ```
//!
//! An upload that fails is aborted. An upload that a crash left is known to the state file, and the
//! next run aborts it.

use futures::stream::{self, StreamExt, TryStreamExt};
use http::{HeaderMap, HeaderValue};

use crate::client::etag_of;
use crate::client::operations::{ObjectRequest, WriteCondition};
use crate::client::xml::SentPart;
use crate::copy::{
    Copier, CopyFacts, TargetWrite, check_unchanged, etag_kind, has_other_class, of_source,
    of_target, request_of, written_headers,
};
use crate::digest::{NeededHash, StreamHashes, combined, crc64_text, md5_of_parts};
use crate::error::{Error, ErrorKind, Result};
use crate::etag::{Claim, ETagKind};
use crate::layout::{Layout, Part, Shape, guessed_part_bytes, parts};
use crate::listing::Listed;
use crate::source_reader::{SourceRange, SourceReader};
use crate::upload_body::{UploadBody, damaged};

/// Requests about parts at once, where their sizes are checked.
const SIZE_CHECKS: usize = 8;

/// Object that is copied in parts.
struct PartsPlan<'a> {
    object: &'a Listed,
    part_bytes: u64,
    /// True if the source does not show its parts.
    is_guessed: bool,
    claim: Claim,
    etag: String,
}

/// Bytes of the source's first part.
#[derive(Clone, Copy)]
struct FirstPart {
    bytes: u64,
    is_guessed: bool,
}

/// Parts that the target has stored.
#[derive(Default)]
struct SentParts {
    parts: Vec<SentPart>,
    hashes: Vec<StreamHashes>,
}

impl Copier {
    /// Copies an object in parts, or whole if its first part shows that it is small.
    pub(super) async fn copy_in_parts(
        &self,
        object: &Listed,
        condition: &WriteCondition,
    ) -> Result<CopyFacts> {
        let source = &self.stores.source;
        let headers = source.head(request_of(object)).await.map_err(of_source)?;
        check_unchanged(object, &headers)?;
        let etag = etag_kind(&headers, self.stores.has_opaque_etags);
        let first_part = self.first_part(object, etag).await?;
        let first_bytes = first_part.map(|it| it.bytes);
        let shape = Shape { size: object.size, etag, first_part: first_bytes };
        let Layout::Parts(part_bytes) = Layout::choose(shape, self.part_bytes) else {
            return self.copy_whole(object, condition).await;
        };
        let is_kept = first_bytes == Some(part_bytes);
        let claim = match Claim::of(&headers, self.stores.has_opaque_etags) {
            Claim::Parts { .. } if !is_kept => Claim::None,
            // Parts at once have no MD5 of all bytes.
            Claim::Md5(_) => Claim::None,
            claim => claim,
        };
        let is_guessed = first_part.is_some_and(|it| it.is_guessed);
        let plan = PartsPlan { object, part_bytes, is_guessed, claim, etag: etag_of(&headers) };
        self.upload(&plan, &headers, condition).await
    }

    /// Returns the size of the source's first part: as the source returns it, else a common size.
    /// The MD5s of the parts show later whether it was that size.
    async fn first_part(&self, object: &Listed, etag: ETagKind) -> Result<Option<FirstPart>> {
        let known = |bytes| FirstPart { bytes, is_guessed: false };
        let parts = match etag {
            ETagKind::Parts { parts: 1, .. } => return Ok(Some(known(object.size))),
            ETagKind::Parts { parts, .. } => parts,
            ETagKind::Md5(_) | ETagKind::Opaque => return Ok(None),
        };
        match self.stores.source.head_part(request_of(object), 1).await {
            Ok(Some(bytes)) => return Ok(Some(known(bytes))),
            Ok(None) => {}
            // Some stores refuse requests of a part.
            Err(error) if error.kind() == ErrorKind::Refused => {}
            Err(error) => return Err(of_source(error)),
        }
        let guessed = guessed_part_bytes(object.size, parts);
        Ok(guessed.map(|bytes| FirstPart { bytes, is_guessed: true }))
    }

    /// Uploads all parts and completes the upload, or aborts it.
    async fn upload(
        &self,
        plan: &PartsPlan<'_>,
        source: &HeaderMap,
        condition: &WriteCondition,
    ) -> Result<CopyFacts> {
        let key = &plan.object.key;
        let mut headers = written_headers(source, self.tags(key).await?)?;
        headers.insert("x-amz-checksum-algorithm", HeaderValue::from_static("CRC64NVME"));
        headers.insert("x-amz-checksum-type", HeaderValue::from_static("FULL_OBJECT"));
        let target = &self.stores.target;
        let id = target.begin_upload(key, headers).await.map_err(of_target)?;
        self.state.begin_upload(key, &id)?;
        let completed = match self.send_parts(plan, &id).await {
            Ok(sent) => self.complete(plan, &id, sent, condition).await,
            Err(error) => Err(error),
        };
        if completed.is_err() {
            // An abort that fails is left to the next run.
            if target.abort_upload(key, &id).await.is_err() {
                return completed.map(|facts| facts.with_class(source));
            }
        }
        self.state.end_upload(&id);
        completed.map(|facts| facts.with_class(source))
    }

    async fn send_parts(&self, plan: &PartsPlan<'_>, id: &str) -> Result<SentParts> {
        stream::iter(parts(plan.object.size, plan.part_bytes))
            .map(|part| self.send_part(plan, id, part))
            .buffered(self.concurrency)
            .try_fold(SentParts::default(), |mut all, one| async move {
                all.parts.extend(one.parts);
                all.hashes.extend(one.hashes);
                Ok(all)
            })
            .await
    }

    /// Sends one part; a passing error repeats that part alone.
    async fn send_part(&self, plan: &PartsPlan<'_>, id: &str, part: Part) -> Result<SentParts> {
        let mut failures = 0;
        loop {
            let _stream = self.stream().await;
            match self.try_part(plan, id, part).await {
                Err(error) if error.is_passing() && failures + 1 < self.attempts => {
                    failures += 1;
                    self.counters.retries.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    crate::client::back_off(failures).await;
                }
                outcome => return outcome,
            }
        }
    }

    async fn try_part(&self, plan: &PartsPlan<'_>, id: &str, part: Part) -> Result<SentParts> {
        let key = &plan.object.key;
        let range = SourceRange {
            key: key.clone(),
            etag: plan.etag.clone(),
            first: part.first,
            end: part.end,
        };
        let reader = SourceReader::new(self.stores.source.clone(), range, None, self.attempts);
        let bytes = part.end - part.first;
        let needed = NeededHash::of(plan.claim);
        let body = UploadBody::new(reader, bytes, Claim::None, needed, self.counters.clone());
        let number = part.number.to_string();
        let query = [("partNumber", number.as_str()), ("uploadId", id)];
        let write = TargetWrite { key, query: &query, headers: HeaderMap::new() };
        let sent = self.send(write, body).await?;
        let crc64 = crc64_text(sent.hashes.crc64);
        Ok(SentParts {
            parts: vec![SentPart { number: part.number, etag: sent.etag, crc64 }],
            hashes: vec![sent.hashes],
        })
    }

    /// Compares all parts with the source's claim, and completes the upload.
    async fn complete(
        &self,
        plan: &PartsPlan<'_>,
        id: &str,
        sent: SentParts,
        condition: &WriteCondition,
    ) -> Result<CopyFacts> {
        let is_claimed = self.verify(plan, &sent.hashes).await?;
        let whole = combined(&sent.hashes, plan.claim);
        let mut headers = HeaderMap::new();
        condition.add_to(&mut headers)?;
        let crc64 = HeaderValue::try_from(crc64_text(whole.crc64)).expect("base64 is a header");
        headers.insert("x-amz-checksum-crc64nvme", crc64);
        headers.insert("x-amz-checksum-type", HeaderValue::from_static("FULL_OBJECT"));
        let key = &plan.object.key;
        let completed = self.stores.target.complete_upload(key, id, headers, &sent.parts).await;
        let etag = completed.map_err(|error| match error.kind() {
            // The upload of an earlier attempt may be complete although its reply was lost.
            ErrorKind::NotFound => Error::new(ErrorKind::Condition, error.to_string()),
            _ => error,
        })?;
        Ok(CopyFacts {
            bytes: whole.bytes,
            keeps_etag: etag.trim_matches('"') == plan.etag,
            is_claimed,
            has_other_class: false,
        })
    }

    /// Returns true if the bytes are those that the source claims, and false without a claim.
    async fn verify(&self, plan: &PartsPlan<'_>, hashes: &[StreamHashes]) -> Result<bool> {
        match plan.claim {
            Claim::None => Ok(false),
            Claim::Parts { md5, .. } => {
                if md5_of_parts(hashes) == Some(md5) {
                    return Ok(true);
                }
                // The parts may have other sizes than the first one.
                if !plan.is_guessed && self.has_equal_parts(plan, hashes.len()).await? {
                    return Err(damaged(plan.claim));
                }
                Ok(false)
            }
            claim if combined(hashes, claim).fulfil(claim) => Ok(true),
            claim => Err(damaged(claim)),
        }
    }

    /// Returns true if all parts of the source have the size of the first one, but the last.
    async fn has_equal_parts(&self, plan: &PartsPlan<'_>, count: usize) -> Result<bool> {
        let count = u32::try_from(count).expect("parts are at most 10,000");
        stream::iter(2..count)
            .map(|number| self.stores.source.head_part(request_of(plan.object), number))
            .buffered(SIZE_CHECKS)
            .map_err(of_source)
            .try_all(|bytes| async move { bytes == Some(plan.part_bytes) })
            .await
    }
}

impl CopyFacts {
    fn with_class(self, source: &HeaderMap) -> Self {
        Self { has_other_class: has_other_class(source), ..self }
    }
}

impl crate::client::S3Client {
    /// Returns the bytes of a part of an object; `None` if the store doesn't tell.
    async fn head_part(&self, object: ObjectRequest<'_>, number: u32) -> Result<Option<u64>> {
        // Some stores compare a condition with the ETag of the part.
        let object = ObjectRequest { etag: None, ..object };
        let headers = self.head_of_part(object, number).await?;
        // A store that ignores the number answers without the number of parts.
        if !headers.contains_key("x-amz-mp-parts-count") {
            return Ok(None);
        }
        let length = headers.get(http::header::CONTENT_LENGTH).and_then(|it| it.to_str().ok());
        Ok(length.and_then(|it| it.parse().ok()))
    }
}
