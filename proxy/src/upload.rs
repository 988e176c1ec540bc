//! Request bodies: stored inline or in extents, and fully verified before the commit.
//!
//! A single task takes each chunk from the client and passes it on twice, by reference: to the
//! current extent ([`extent_writer`]) and to the hashes. Long bodies are hashed on other threads.
//! The bytes that wait to be hashed are bounded for each body.

mod extent_writer;

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use martlet_protocol::entry::{Body, Checksum, Manifest};
use martlet_protocol::extent::{ExtentRef, ExtentRole};
use martlet_protocol::limits::{MANIFEST_EXTENTS_INLINE_MAX, PUT_BYTES_MAX};
use martlet_protocol::{BucketId, ErrorKind, PolicyId, UploadId, WriteId};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use self::extent_writer::ExtentWriter;
use crate::api::Incoming;
use crate::digest::crc32c;
use crate::encryption::{Sealing, Secret};
use crate::error::{Error, Result};
use crate::extents::ExtentClient;
use crate::hashing::Hashing;
use crate::orphan_guard::OrphanGuard;

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
    pub(crate) policy: PolicyId,
    /// Maximum size of an inline body, in bytes.
    pub(crate) inline_bytes_max: u64,
}

/// A complete and verified body.
pub(crate) struct Ingested {
    pub(crate) size: u64,
    pub(crate) md5: [u8; 16],
    pub(crate) checksums: Vec<Checksum>,
    /// The bytes of an inline body.
    pub(crate) inline: Option<Bytes>,
    pub(crate) extents: Vec<ExtentRef>,
    /// Deletes the extents unless they are claimed.
    pub(crate) orphans: OrphanGuard,
}

/// Writes of bodies: inline, or in extents.
pub(crate) struct BodyWriter {
    extents: Arc<ExtentClient>,
    /// Permits for hashing threads.
    hashers: Arc<Semaphore>,
}

impl BodyWriter {
    pub(crate) fn new(extents: Arc<ExtentClient>, hashers: Arc<Semaphore>) -> Self {
        Self { extents, hashers }
    }

    /// Stores a body without encryption.
    pub(crate) async fn ingest(&self, incoming: Incoming, to: Destination<'_>) -> Result<Ingested> {
        self.ingest_as(incoming, to, None).await
    }

    /// Stores a body, encrypted if `secret` is given. Its size and digests are those of the plain
    /// bytes.
    ///
    /// # Errors
    /// [`Error::EntityTooLarge`], [`Error::BadDigest`], [`Error::BadChecksum`], or
    /// [`Error::InvalidRequest`] for a body of another length than declared.
    pub(crate) async fn ingest_as(
        &self,
        incoming: Incoming,
        to: Destination<'_>,
        secret: Option<&Secret>,
    ) -> Result<Ingested> {
        if let Some(size) = incoming.size.filter(|size| *size > PUT_BYTES_MAX) {
            return Err(Error::EntityTooLarge { size, maximum: PUT_BYTES_MAX });
        }
        let mut source = Source {
            bytes: incoming.bytes,
            announced: incoming.size,
            hashing: Hashing::new(&incoming.compute, self.hashers.clone()),
            arrived: 0,
            sealing: secret.map(|secret| Sealing::new(secret, self.hashers.clone())),
        };
        let mut head = Vec::new();
        while source.arrived <= to.inline_bytes_max {
            let Some(chunk) = source.next().await? else { break };
            source.passed_on(&chunk);
            head.push(chunk);
        }
        let orphans = OrphanGuard::new(self.extents.clone());
        let whole = source.arrived <= to.inline_bytes_max;
        let (inline, extents) = if whole {
            (Some(gather(head)).filter(|bytes| !bytes.is_empty()), Vec::new())
        } else {
            (None, ExtentWriter::new(&self.extents, to, &orphans).run(&mut source, head).await?)
        };
        source.check_end()?;
        let sums = source.hashing.finish().await?;
        sums.verify(incoming.md5, &(incoming.expected)()?)?;
        Ok(Ingested {
            size: sums.bytes,
            md5: sums.md5,
            checksums: sums.checksums,
            inline,
            extents,
            orphans,
        })
    }

    /// The stored bytes as the entry's body. A manifest that is too long is stored first, in
    /// extents that are claimed together with the bytes.
    pub(crate) async fn body_for(
        &self,
        ingested: &mut Ingested,
        to: Destination<'_>,
    ) -> Result<(Body, Option<OrphanGuard>)> {
        match body_of(ingested, to) {
            Body::Extents(manifest) => {
                let (body, mut spilled) = self.store_manifest(manifest, to).await?;
                spilled.claimed_with(&ingested.orphans);
                Ok((body, Some(spilled)))
            }
            body => Ok((body, None)),
        }
    }

    /// A manifest as a body: stored in the entry, or in extents if it is too long.
    pub(crate) async fn store_manifest(
        &self,
        manifest: Manifest,
        to: Destination<'_>,
    ) -> Result<(Body, OrphanGuard)> {
        let policy = manifest.policy;
        let small = manifest.extents.len() <= MANIFEST_EXTENTS_INLINE_MAX
            && manifest.parts.len() <= MANIFEST_EXTENTS_INLINE_MAX;
        if small {
            return Ok((Body::Extents(manifest), OrphanGuard::new(self.extents.clone())));
        }
        let encoded = Bytes::from(manifest.encode());
        let incoming = Incoming {
            size: Some(encoded.len() as u64),
            bytes: Box::pin(futures::stream::once(std::future::ready(Ok(encoded)))),
            md5: None,
            compute: Vec::new(),
            expected: Box::new(|| Ok(Vec::new())),
        };
        let to = Destination { role: ExtentRole::Manifest, policy, inline_bytes_max: 0, ..to };
        let ingested = self.ingest(incoming, to).await?;
        Ok((Body::Spilled { policy, manifest: ingested.extents }, ingested.orphans))
    }
}

/// The stored bytes as an entry's body.
pub(crate) fn body_of(ingested: &mut Ingested, to: Destination<'_>) -> Body {
    if let Some(inline) = &ingested.inline {
        return Body::Inline { crc32c: crc32c(inline) };
    }
    if ingested.extents.is_empty() {
        return Body::Empty;
    }
    let extents = std::mem::take(&mut ingested.extents);
    Body::Extents(Manifest {
        policy: to.policy,
        extents,
        parts: Vec::new(),
        part_checksums: Vec::new(),
    })
}

/// The client's side of a body.
struct Source {
    bytes: martlet_protocol::ByteStream,
    announced: Option<u64>,
    hashing: Hashing,
    arrived: u64,
    /// Encryption of the incoming bytes.
    sealing: Option<Sealing>,
}

impl Source {
    /// Next bytes to store.
    async fn next(&mut self) -> Result<Option<Bytes>> {
        let Some(mut sealing) = self.sealing.take() else { return self.arrive().await };
        let next = self.seal_next(&mut sealing).await;
        self.sealing = Some(sealing);
        next
    }

    async fn seal_next(&mut self, sealing: &mut Sealing) -> Result<Option<Bytes>> {
        while !sealing.is_done() {
            while sealing.wants_more() {
                let plain = self.arrive().await?;
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
    fn passed_on(&mut self, chunk: &Bytes) {
        if self.sealing.is_none() {
            self.hashing.push(chunk.clone());
        }
    }

    /// Number of bytes to store, if the length is declared.
    fn stored(&self) -> Option<u64> {
        let sealing = self.sealing.as_ref();
        self.announced.map(|bytes| sealing.map_or(bytes, |sealing| sealing.stored(bytes)))
    }

    /// Next chunk from the client. If it takes longer than [`HASH_AFTER`], all waiting chunks are
    /// hashed.
    async fn come(&mut self) -> Result<Option<martlet_protocol::Result<Bytes>>> {
        if self.hashing.is_behind() {
            match timeout(HASH_AFTER, self.bytes.next()).await {
                Ok(next) => return Ok(next),
                Err(_) => self.hashing.catch_up().await?,
            }
        }
        Ok(self.bytes.next().await)
    }

    /// Next non-empty chunk, counted against the length limit.
    async fn arrive(&mut self) -> Result<Option<Bytes>> {
        while let Some(chunk) = self.come().await? {
            let chunk = chunk.map_err(body_error)?;
            self.arrived += chunk.len() as u64;
            if self.arrived > self.announced.unwrap_or(PUT_BYTES_MAX) {
                return Err(self.too_long());
            }
            if !chunk.is_empty() {
                return Ok(Some(chunk));
            }
        }
        Ok(None)
    }

    fn too_long(&self) -> Error {
        match self.announced {
            Some(announced) => Error::InvalidRequest(format!(
                "the body is longer than the announced {announced} bytes"
            )),
            None => Error::EntityTooLarge { size: self.arrived, maximum: PUT_BYTES_MAX },
        }
    }

    fn check_end(&self) -> Result<()> {
        match self.announced {
            Some(announced) if announced != self.arrived => Err(Error::InvalidRequest(format!(
                "the body has {} bytes instead of the announced {announced}",
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

fn gather(mut pieces: Vec<Bytes>) -> Bytes {
    if pieces.len() == 1 {
        return pieces.swap_remove(0);
    }
    let mut whole = BytesMut::with_capacity(pieces.iter().map(Bytes::len).sum());
    for piece in &pieces {
        whole.extend_from_slice(piece);
    }
    whole.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_client_that_stalls_leaves_nothing_to_be_hashed() {
        let sent = Bytes::from(vec![7; 100_000]);
        let stalls = futures::stream::iter([Ok(sent.clone())]).chain(futures::stream::pending());
        let mut source = Source {
            bytes: stalls.boxed(),
            announced: None,
            hashing: Hashing::new(&[], Arc::new(Semaphore::new(1))),
            arrived: 0,
            sealing: None,
        };
        let chunk = source.next().await.unwrap().unwrap();
        source.passed_on(&chunk);
        drop(chunk);
        assert!(source.hashing.is_behind() && !sent.is_unique());
        timeout(Duration::from_secs(1), source.next()).await.unwrap_err();
        assert!(!source.hashing.is_behind());
        let mut digests = crate::digest::Digests::new(&[]);
        digests.update(&sent);
        assert_eq!(source.hashing.finish().await.unwrap().md5, digests.finish().md5);
    }
}
