//! Body of a write to the target: the source's bytes in `aws-chunked`, with their CRC64NVME behind.
//!
//! ```text
//! 40000 CR LF  256 KiB of the object CR LF   …   0 CR LF
//! x-amz-checksum-crc64nvme:BASE64 CR LF   CR LF
//! ```
//!
//! Invariant: the end of the body is sent only if the bytes are those that the source claims.
//! Otherwise the connection breaks before the end, so that the target stores nothing.
//!
//! A body holds one chunk.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::{Bytes, BytesMut};
use futures::stream::try_unfold;
use http::{HeaderMap, HeaderValue};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use parking_lot::Mutex;

use crate::client::{Body, BodyError};
use crate::digest::{NeededHash, StreamDigest, StreamHashes, crc64_text};
use crate::error::{Error, ErrorKind, Result};
use crate::etag::Claim;
use crate::metadata::mark_chunked;
use crate::progress::Counters;
use crate::source_reader::SourceReader;

/// Bytes of the object in a chunk.
const CHUNK_BYTES: u64 = 256 << 10;
const CHECKSUM: &str = "x-amz-checksum-crc64nvme";
/// Characters of a CRC64NVME in base64.
const CHECKSUM_CHARS: usize = 12;

/// Outcome of a body's source, which the sender of the body reads afterwards.
pub(crate) type BodyOutcome = Arc<Mutex<Option<Result<StreamHashes>>>>;

/// Body with the parts that its sender needs.
pub(crate) struct UploadBody {
    pub(crate) body: Body,
    /// Bytes of the object or the part.
    bytes: u64,
    /// Bytes of the encoded body.
    pub(crate) length: u64,
    /// Hashes, or the error that broke the body.
    pub(crate) outcome: BodyOutcome,
    /// Bytes that were read.
    pub(crate) progress: Arc<AtomicU64>,
}

/// State of a body while it is sent.
struct Encoder {
    reader: SourceReader,
    digest: StreamDigest,
    claim: Claim,
    /// Bytes of the object that are not encoded yet.
    left: u64,
    /// Bytes that were read and are not encoded yet.
    pending: Bytes,
    is_finished: bool,
    outcome: BodyOutcome,
    progress: Arc<AtomicU64>,
    counters: Arc<Counters>,
}

impl UploadBody {
    /// Makes the body of `bytes` bytes. With a claim about all of them, the body ends only if they
    /// fulfil it. `needed` is hashed in any case.
    pub(crate) fn new(
        reader: SourceReader,
        bytes: u64,
        claim: Claim,
        needed: NeededHash,
        counters: Arc<Counters>,
    ) -> Self {
        let (outcome, progress) = (BodyOutcome::default(), Arc::<AtomicU64>::default());
        let encoder = Encoder {
            reader,
            digest: StreamDigest::new(needed),
            claim,
            left: bytes,
            pending: Bytes::new(),
            is_finished: false,
            outcome: outcome.clone(),
            progress: progress.clone(),
            counters,
        };
        let stream = try_unfold(encoder, |mut encoder| async move {
            let chunk = encoder.next().await.map_err(BodyError::from)?;
            Ok(chunk.map(|chunk| (Frame::data(chunk), encoder)))
        });
        let body = StreamBody::new(stream).boxed_unsync();
        Self { body, bytes, length: encoded_length(bytes), outcome, progress }
    }

    /// Adds the headers that announce the encoding.
    pub(crate) fn announce(&self, headers: &mut HeaderMap) {
        mark_chunked(headers);
        headers.insert("x-amz-decoded-content-length", HeaderValue::from(self.bytes));
        headers.insert("x-amz-trailer", HeaderValue::from_static(CHECKSUM));
    }
}

impl Encoder {
    async fn next(&mut self) -> Result<Option<Bytes>> {
        if self.is_finished {
            return Ok(None);
        }
        let made = if self.left == 0 { self.end() } else { self.chunk().await };
        if let Err(error) = &made {
            *self.outcome.lock() = Some(Err(error.clone()));
        }
        made.map(Some)
    }

    async fn chunk(&mut self) -> Result<Bytes> {
        let mut wanted = usize::try_from(self.left.min(CHUNK_BYTES)).expect("256 KiB fit");
        self.left -= wanted as u64;
        let mut chunk = BytesMut::with_capacity(wanted + 16);
        chunk.extend_from_slice(format!("{wanted:x}\r\n").as_bytes());
        while wanted > 0 {
            if self.pending.is_empty() {
                let next = self.reader.next().await?;
                self.pending =
                    next.ok_or_else(|| Error::transient("the source's body ended early"))?;
            }
            let bytes = self.pending.split_to(wanted.min(self.pending.len()));
            self.digest.update(&bytes);
            self.progress.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            self.counters.streamed_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            chunk.extend_from_slice(&bytes);
            wanted -= bytes.len();
        }
        chunk.extend_from_slice(b"\r\n");
        Ok(chunk.freeze())
    }

    fn end(&mut self) -> Result<Bytes> {
        let hashes = self.digest.hashes();
        if !hashes.fulfil(self.claim) {
            return Err(damaged(self.claim));
        }
        self.is_finished = true;
        *self.outcome.lock() = Some(Ok(hashes));
        Ok(format!("0\r\n{CHECKSUM}:{}\r\n\r\n", crc64_text(hashes.crc64)).into())
    }
}

/// Returns the error of bytes that are not those of the claim.
pub(crate) fn damaged(claim: Claim) -> Error {
    let sentence = match claim {
        Claim::Md5(_) | Claim::Parts { .. } => {
            "the bytes from the source do not have the MD5 in its ETag: read the object at the \
             source, or name --source-etags opaque if this store's ETags are no MD5s"
        }
        Claim::Checksum(_) | Claim::None => {
            "the bytes from the source do not have the checksum that it returns: read the object \
             at the source"
        }
    };
    Error::new(ErrorKind::Damaged, sentence)
}

/// Returns the bytes of the encoding of `bytes` bytes.
fn encoded_length(bytes: u64) -> u64 {
    let of = |chunk: u64| format!("{chunk:x}").len() as u64 + 2 + chunk + 2;
    let rest = bytes % CHUNK_BYTES;
    let last = if rest == 0 { 0 } else { of(rest) };
    let trailer = "0\r\n".len() + CHECKSUM.len() + 1 + CHECKSUM_CHARS + 4;
    bytes / CHUNK_BYTES * of(CHUNK_BYTES) + last + trailer as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_is_that_of_the_encoding() {
        let end = "0\r\nx-amz-checksum-crc64nvme:rosUhgp5mIg=\r\n\r\n".len() as u64;
        assert_eq!(encoded_length(0), end);
        assert_eq!(encoded_length(9), end + "9\r\n123456789\r\n".len() as u64);
        assert_eq!(encoded_length(CHUNK_BYTES), end + CHUNK_BYTES + 9);
        assert_eq!(encoded_length(2 * CHUNK_BYTES + 16), end + 2 * (CHUNK_BYTES + 9) + 22);
    }
}
