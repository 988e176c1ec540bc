//! Copy of one object: the attempts, and their outcome.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use http::header::{CONTENT_LENGTH, HeaderMap, HeaderValue, LAST_MODIFIED};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::client::operations::{ObjectRequest, WriteCondition};
use crate::client::{Upload, back_off, etag_of};
use crate::dates::http_date_ms;
use crate::deep_compare::{Comparison, Stores};
use crate::digest::{NeededHash, StreamHashes};
use crate::error::{Error, ErrorKind, Result};
use crate::etag::{Claim, ETagKind, reliable_etag};
use crate::layout::{Layout, Shape};
use crate::listing::Listed;
use crate::metadata::kept;
use crate::progress::Counters;
use crate::source_reader::{SourceRange, SourceReader};
use crate::state::ImportState;
use crate::upload_body::UploadBody;

/// Objects that changed so often while they were copied are reported.
const CHANGES_MAX: u32 = 5;

/// Copier of objects, shared by the tasks of a run.
pub(crate) struct Copier {
    pub(crate) stores: Stores,
    pub(crate) state: Arc<ImportState>,
    pub(crate) counters: Arc<Counters>,
    /// A permit for each object or part in transfer.
    pub(crate) streams: Semaphore,
    pub(crate) concurrency: usize,
    pub(crate) part_bytes: u64,
    pub(crate) attempts: u32,
    pub(crate) with_tags: bool,
}

/// Object to copy, and the condition of its write.
#[derive(Clone, Debug)]
pub(crate) struct CopyJob {
    pub(crate) object: Listed,
    pub(crate) condition: WriteCondition,
}

/// Outcome of a copy.
#[derive(Debug)]
pub(crate) enum CopyOutcome {
    Copied(CopyFacts),
    /// The target has the object already.
    Present,
    /// The target has another object, which stays.
    Kept,
    /// The source has no such object any more.
    Vanished,
    Failed(Error),
}

/// Facts about a copied object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopyFacts {
    pub(crate) bytes: u64,
    /// True if the target's ETag is the source's.
    pub(crate) keeps_etag: bool,
    /// True if the bytes were compared with a claim of the source.
    pub(crate) is_claimed: bool,
    /// True if the source has another storage class than STANDARD.
    pub(crate) has_other_class: bool,
}

/// Object that the target has stored.
pub(super) struct Sent {
    pub(super) etag: String,
    pub(super) hashes: StreamHashes,
}

impl Copier {
    /// Copies an object. Passing errors are tried again; an object that changed meanwhile is copied
    /// as it is now.
    pub(crate) async fn copy(&self, job: &CopyJob) -> CopyOutcome {
        let mut object = job.object.clone();
        let (mut failures, mut changes, mut damages) = (0, 0, 0);
        loop {
            let error = match self.attempt(&object, &job.condition).await {
                Ok(facts) => return CopyOutcome::Copied(facts),
                Err(error) => error,
            };
            match error.kind() {
                ErrorKind::NotFound => return CopyOutcome::Vanished,
                ErrorKind::Condition => return self.present_or_kept(&object).await,
                ErrorKind::Changed if changes < CHANGES_MAX => {
                    changes += 1;
                    match self.described(&object).await {
                        Ok(changed) => object = changed,
                        Err(error) if error.kind() == ErrorKind::NotFound => {
                            return CopyOutcome::Vanished;
                        }
                        Err(error) => return CopyOutcome::Failed(error),
                    }
                }
                // Bytes may be damaged on their way: they are read twice.
                ErrorKind::Damaged if damages == 0 => {
                    damages += 1;
                    self.counters.retries.fetch_add(1, Ordering::Relaxed);
                }
                ErrorKind::Transient | ErrorKind::Throttled if failures + 1 < self.attempts => {
                    failures += 1;
                    self.counters.retries.fetch_add(1, Ordering::Relaxed);
                    back_off(failures).await;
                }
                _ => return CopyOutcome::Failed(error),
            }
        }
    }

    /// Decides about an object that the target refused to replace. The object may come from an
    /// attempt whose reply was lost.
    async fn present_or_kept(&self, object: &Listed) -> CopyOutcome {
        match self.stores.compare(&object.key).await {
            Ok(Comparison::Same) => CopyOutcome::Present,
            Ok(Comparison::Different | Comparison::Unknown) => CopyOutcome::Kept,
            Ok(Comparison::NoSource) => CopyOutcome::Vanished,
            Ok(Comparison::NoTarget) => CopyOutcome::Failed(Error::transient(
                "the key had an object at the target and lost it during the copy: run the import \
                 again",
            )),
            Err(error) => CopyOutcome::Failed(error),
        }
    }

    /// Returns the object as the source has it now.
    async fn described(&self, object: &Listed) -> Result<Listed> {
        let request = ObjectRequest { key: &object.key, etag: None, range: None };
        let headers = self.stores.source.head(request).await?;
        let modified = headers.get(LAST_MODIFIED).and_then(|it| it.to_str().ok());
        Ok(Listed {
            key: object.key.clone(),
            size: length_of(&headers)?,
            etag: etag_of(&headers),
            modified_ms: modified.and_then(http_date_ms),
        })
    }

    async fn attempt(&self, object: &Listed, condition: &WriteCondition) -> Result<CopyFacts> {
        let etag = if self.stores.has_opaque_etags {
            ETagKind::Opaque
        } else {
            ETagKind::of(&object.etag)
        };
        let shape = Shape { size: object.size, etag, first_part: None };
        let is_whole = Layout::choose(shape, self.part_bytes) == Layout::Whole;
        if is_whole && !Layout::needs_first_part(object.size, etag) {
            self.copy_whole(object, condition).await
        } else {
            self.copy_in_parts(object, condition).await
        }
    }

    /// Reads an object and puts it at once, without holding it.
    pub(super) async fn copy_whole(
        &self,
        object: &Listed,
        condition: &WriteCondition,
    ) -> Result<CopyFacts> {
        let tags = self.tags(&object.key).await?;
        let _stream = self.stream().await;
        let request = request_of(object);
        let response = self.stores.source.get(request).await.map_err(of_source)?;
        let (head, body) = response.into_parts();
        check_unchanged(object, &head.headers)?;
        let claim = match Claim::of(&head.headers, self.stores.has_opaque_etags) {
            // The MD5s of parts are not known here.
            Claim::Parts { .. } => Claim::None,
            claim => claim,
        };
        let mut headers = written_headers(&head.headers, tags)?;
        condition.add_to(&mut headers)?;
        let range = SourceRange {
            key: object.key.clone(),
            etag: etag_of(&head.headers),
            first: 0,
            end: object.size,
        };
        let source = self.stores.source.clone();
        let reader = SourceReader::new(source, range, Some(body), self.attempts);
        let needed = NeededHash::of(claim);
        let body = UploadBody::new(reader, object.size, claim, needed, self.counters.clone());
        let sent = self.send(TargetWrite { key: &object.key, query: &[], headers }, body).await?;
        Ok(CopyFacts {
            bytes: sent.hashes.bytes,
            keeps_etag: sent.etag == etag_of(&head.headers),
            is_claimed: claim != Claim::None || object.size == 0,
            has_other_class: has_other_class(&head.headers),
        })
    }

    /// Sends a body to the target. An error of the source comes before that of the target, which
    /// follows from it.
    pub(super) async fn send(&self, write: TargetWrite<'_>, body: UploadBody) -> Result<Sent> {
        let TargetWrite { key, query, mut headers } = write;
        body.announce(&mut headers);
        let UploadBody { body, length, outcome, progress, .. } = body;
        let upload = Upload { key, query, headers, length, body, progress };
        let sent = self.stores.target.upload(upload).await;
        let read = outcome.lock().take();
        match (sent, read) {
            (_, Some(Err(error))) => Err(error),
            (Err(error), _) => Err(of_target(error)),
            (Ok(reply), Some(Ok(hashes))) => Ok(Sent { etag: etag_of(&reply.headers), hashes }),
            (Ok(_), None) => {
                Err(Error::transient("the target answered before the end of the body"))
            }
        }
    }

    /// Waits until another object or part may be in transfer.
    pub(super) async fn stream(&self) -> SemaphorePermit<'_> {
        self.streams.acquire().await.expect("the semaphore is never closed")
    }

    /// Returns the tags of an object, if tags are copied.
    pub(super) async fn tags(&self, key: &str) -> Result<Option<HeaderValue>> {
        if !self.with_tags {
            return Ok(None);
        }
        let tags = self.stores.source.tags(key).await?;
        let value = HeaderValue::try_from(&tags).expect("percent-encoded tags are a header");
        Ok((!tags.is_empty()).then_some(value))
    }
}

/// Write of a body, without the body.
pub(super) struct TargetWrite<'a> {
    pub(super) key: &'a str,
    pub(super) query: &'a [(&'a str, &'a str)],
    pub(super) headers: HeaderMap,
}

/// Returns the request of the listed object, and of no other.
pub(super) fn request_of(object: &Listed) -> ObjectRequest<'_> {
    let etag = Some(object.etag.as_str()).filter(|it| !it.is_empty());
    ObjectRequest { key: &object.key, etag, range: None }
}

/// Returns the headers of a write: the kept metadata, and the tags.
pub(super) fn written_headers(source: &HeaderMap, tags: Option<HeaderValue>) -> Result<HeaderMap> {
    let mut headers = kept(source);
    if let Some(missing) = source.get("x-amz-missing-meta") {
        let count = String::from_utf8_lossy(missing.as_bytes()).into_owned();
        return Err(Error::new(
            ErrorKind::Refused,
            format!("the source returns {count} metadata headers of this object to no client"),
        ));
    }
    headers.extend(tags.map(|it| (http::HeaderName::from_static("x-amz-tagging"), it)));
    Ok(headers)
}

/// Checks that a reply is about the listed object.
pub(super) fn check_unchanged(object: &Listed, headers: &HeaderMap) -> Result<()> {
    let etag = etag_of(headers);
    let is_other = !etag.is_empty() && !object.etag.is_empty() && etag != object.etag;
    if is_other || length_of(headers)? != object.size {
        return Err(Error::new(ErrorKind::Changed, "the object changes while it is copied"));
    }
    Ok(())
}

fn length_of(headers: &HeaderMap) -> Result<u64> {
    let length = headers.get(CONTENT_LENGTH).and_then(|it| it.to_str().ok()?.parse().ok());
    length.ok_or_else(|| {
        Error::new(ErrorKind::Refused, "the source does not return the object's Content-Length")
    })
}

pub(super) fn has_other_class(headers: &HeaderMap) -> bool {
    headers.get("x-amz-storage-class").is_some_and(|class| class != "STANDARD")
}

/// Returns the kind of a reply's ETag, for the choice of parts.
pub(super) fn etag_kind(headers: &HeaderMap, has_opaque_etags: bool) -> ETagKind {
    reliable_etag(headers, has_opaque_etags)
}

/// Returns an error of the source as the copy sees it: an unfulfilled condition is a change.
pub(super) fn of_source(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Condition => {
            Error::new(ErrorKind::Changed, "the object changes while it is copied")
        }
        _ => error,
    }
}

/// Returns an error of the target as the copy sees it: a lost upload is begun again.
pub(super) fn of_target(error: Error) -> Error {
    match error.kind() {
        ErrorKind::NotFound => Error::transient(error.to_string()),
        _ => error,
    }
}
