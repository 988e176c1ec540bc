//! A request body as its client sends it, and its destination.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use martlet_protocol::entry::ETagKind;
use martlet_protocol::extent::{BodyFacts, ExtentRole};
use martlet_protocol::limits::PUT_BYTES_MAX;
use martlet_protocol::{BucketId, ErrorKind, PolicyId, UploadId, WriteId};
use tokio::time::timeout;

use crate::digest::Digests;
use crate::encryption::{Sealing, Secret};
use crate::error::{Error, Result};
use crate::hashing::{HashPool, Hashing};

/// Wait for a client after which its chunks are hashed, however few. So a stalled client leaves no
/// chunks in memory.
const HASH_AFTER: Duration = Duration::from_millis(100);

/// Owner and target of a body.
#[derive(Clone, Copy)]
pub(crate) struct Destination<'a> {
    pub(crate) bucket: BucketId,
    pub(crate) key: &'a str,
    pub(crate) write_id: WriteId,
    pub(crate) upload: Option<UploadId>,
    pub(crate) role: ExtentRole,
    /// Offset of the body in its object, as far as known.
    pub(crate) offset: u64,
    /// Facts about the body for a rebuild of the index; none if it is a piece of an object.
    pub(crate) facts: Option<BodyFacts>,
    pub(crate) policy: PolicyId,
    /// Maximum size of an inline body, in bytes.
    pub(crate) inline_bytes_max: u64,
    /// Kind of the body's ETag. An opaque one needs no MD5.
    pub(crate) etags: ETagKind,
}

/// A body as its client sends it.
pub(super) struct HashedBody {
    pub(super) bytes: martlet_protocol::ByteStream,
    pub(super) declared: Option<u64>,
    pub(super) hashing: Hashing,
    pub(super) arrived: u64,
    /// Encryption of the arriving bytes.
    pub(super) sealing: Option<Sealing>,
}

impl HashedBody {
    /// A body that is encrypted if `secret` is given, and hashed in the lanes of `hash_pool`.
    pub(super) fn new(
        bytes: martlet_protocol::ByteStream,
        declared: Option<u64>,
        digests: Digests,
        secret: Option<&Secret>,
        hash_pool: &Arc<HashPool>,
    ) -> Self {
        let hashing = Hashing::new(digests, hash_pool.clone());
        let sealing = secret.map(|secret| Sealing::new(secret, hash_pool.threads().clone()));
        Self { bytes, declared, hashing, arrived: 0, sealing }
    }

    /// Next bytes to store.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>> {
        let Some(mut sealing) = self.sealing.take() else { return self.next_chunk().await };
        let next = self.seal_next(&mut sealing).await;
        self.sealing = Some(sealing);
        next
    }

    async fn seal_next(&mut self, sealing: &mut Sealing) -> Result<Option<Bytes>> {
        while !sealing.is_done() {
            while sealing.wants_more() {
                let plain = self.next_chunk().await?;
                if let Some(plain) = &plain {
                    self.hashing.push(plain.clone());
                    self.hashing.keep_up().await?;
                }
                sealing.push(plain);
            }
            if let Some(sealed) = sealing.next().await? {
                return Ok(Some(sealed));
            }
        }
        Ok(None)
    }

    /// Hashes a stored chunk. Encrypted bodies are hashed before encryption.
    pub(super) fn hash_stored(&mut self, chunk: &Bytes) {
        if self.sealing.is_none() {
            self.hashing.push(chunk.clone());
        }
    }

    /// Number of bytes to store, if the length is declared.
    pub(super) fn stored(&self) -> Option<u64> {
        let sealing = self.sealing.as_ref();
        self.declared.map(|bytes| sealing.map_or(bytes, |sealing| sealing.stored(bytes)))
    }

    /// Next chunk from the client. If it takes longer than [`HASH_AFTER`], all waiting chunks are
    /// hashed.
    async fn next_from_client(&mut self) -> Result<Option<martlet_protocol::Result<Bytes>>> {
        if self.hashing.is_behind() {
            match timeout(HASH_AFTER, self.bytes.next()).await {
                Ok(next) => return Ok(next),
                Err(_) => self.hashing.catch_up().await?,
            }
        }
        Ok(self.bytes.next().await)
    }

    /// Next non-empty chunk, counted against the length limit.
    async fn next_chunk(&mut self) -> Result<Option<Bytes>> {
        while let Some(chunk) = self.next_from_client().await? {
            let chunk = chunk.map_err(body_error)?;
            self.arrived += chunk.len() as u64;
            if self.arrived > self.declared.unwrap_or(PUT_BYTES_MAX) {
                return Err(self.too_long());
            }
            if !chunk.is_empty() {
                return Ok(Some(chunk));
            }
        }
        Ok(None)
    }

    fn too_long(&self) -> Error {
        match self.declared {
            Some(declared) => Error::InvalidRequest(format!(
                "the body is longer than the declared {declared} bytes"
            )),
            None => Error::EntityTooLarge { size: self.arrived, maximum: PUT_BYTES_MAX },
        }
    }

    pub(super) fn check_end(&self) -> Result<()> {
        match self.declared {
            Some(declared) if declared != self.arrived => Err(Error::InvalidRequest(format!(
                "the body has {} bytes instead of the declared {declared}",
                self.arrived
            ))),
            _ => Ok(()),
        }
    }
}

/// Separates the client's errors from the server's.
fn body_error(error: martlet_protocol::Error) -> Error {
    match error.kind() {
        ErrorKind::Invalid => Error::Body(error),
        _ => Error::Backend(error),
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::Semaphore;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_client_that_stalls_leaves_nothing_to_be_hashed() {
        let sent = Bytes::from(vec![7; 100_000]);
        let stalls = futures::stream::iter([Ok(sent.clone())]).chain(futures::stream::pending());
        let hash_pool = Arc::new(HashPool::new(Arc::new(Semaphore::new(1))));
        let mut body = HashedBody::new(stalls.boxed(), None, Digests::new(&[]), None, &hash_pool);
        let chunk = body.next().await.unwrap().unwrap();
        body.hash_stored(&chunk);
        drop(chunk);
        assert!(body.hashing.is_behind() && !sent.is_unique());
        timeout(Duration::from_secs(1), body.next()).await.unwrap_err();
        assert!(!body.hashing.is_behind());
        let mut digests = Digests::new(&[]);
        digests.update(&sent);
        assert_eq!(body.hashing.finish().await.unwrap().md5, digests.finish().md5);
    }
}
