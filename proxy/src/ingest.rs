//! Bodies on their way in: inline bytes or extents, with everything checked before anything is
//! committed.
//!
//! One task does it all. It takes a chunk from the client and hands it on twice, as a reference: to
//! the extent being written ([`outflow`]), and to be hashed, which for long bodies happens on a thread
//! beside. What waits to be hashed is bounded for each body.

mod outflow;

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use martlet_protocol::entry::Checksum;
use martlet_protocol::extent::{ExtentRef, ExtentRole};
use martlet_protocol::limits::PUT_BYTES_MAX;
use martlet_protocol::{BucketId, ErrorKind, PolicyId, UploadId, WriteId};
use tokio::time::timeout;

use crate::api::Incoming;
use crate::encryption::{Sealing, Secret};
use crate::error::{Error, Result};
use crate::hashing::Hashing;
use crate::ingest::outflow::Outflow;
use crate::store::Inner;
use crate::unclaimed::Unclaimed;

/// How long a client is waited for before what it has sent is hashed, however little that is: clients that
/// stall leave nothing lying there.
const HASH_AFTER: Duration = Duration::from_millis(100);

/// Whose bytes come in, and where they go.
#[derive(Clone, Copy)]
pub(crate) struct Destination<'a> {
    pub(crate) bucket: BucketId,
    pub(crate) key: &'a str,
    pub(crate) write_id: WriteId,
    pub(crate) upload: Option<UploadId>,
    pub(crate) role: ExtentRole,
    /// Where the body begins in its object, as far as that is known.
    pub(crate) offset: u64,
    pub(crate) policy: PolicyId,
    /// Bodies up to this size are kept inline.
    pub(crate) inline_bytes_max: u64,
}

/// A body that came in whole and was what it was said to be.
pub(crate) struct Ingested {
    pub(crate) size: u64,
    pub(crate) md5: [u8; 16],
    pub(crate) checksums: Vec<Checksum>,
    /// The bytes, if they are to be inline.
    pub(crate) inline: Option<Bytes>,
    pub(crate) extents: Vec<ExtentRef>,
    /// Deletes the extents unless they are claimed.
    pub(crate) unclaimed: Unclaimed,
}

impl Inner {
    /// Takes a body in.
    pub(crate) async fn ingest(
        self: &Arc<Self>,
        incoming: Incoming,
        to: Destination<'_>,
    ) -> Result<Ingested> {
        self.ingest_as(incoming, to, None).await
    }

    /// Takes a body in, and encrypts it if there is a key. Its size and its digests are those of what
    /// comes in.
    pub(crate) async fn ingest_as(
        self: &Arc<Self>,
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
        let unclaimed = Unclaimed::new(self.clone());
        let whole = source.arrived <= to.inline_bytes_max;
        let (inline, extents) = if whole {
            (Some(gather(head)).filter(|bytes| !bytes.is_empty()), Vec::new())
        } else {
            (None, Outflow::new(self, to, &unclaimed).run(&mut source, head).await?)
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
            unclaimed,
        })
    }
}

/// The client's end.
struct Source {
    bytes: martlet_protocol::ByteStream,
    announced: Option<u64>,
    hashing: Hashing,
    arrived: u64,
    /// What comes in is stored as this makes it.
    sealing: Option<Sealing>,
}

impl Source {
    /// The next bytes that are to be stored.
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

    /// Hashes bytes that were passed on, unless they were before they were sealed.
    fn passed_on(&mut self, chunk: &Bytes) {
        if self.sealing.is_none() {
            self.hashing.push(chunk.clone());
        }
    }

    /// How many bytes are to be stored, if it is known how many come in.
    fn stored(&self) -> Option<u64> {
        let sealing = self.sealing.as_ref();
        self.announced.map(|bytes| sealing.map_or(bytes, |sealing| sealing.stored(bytes)))
    }

    /// What comes next. Where the client keeps one waiting, nothing waits to be hashed.
    async fn come(&mut self) -> Result<Option<martlet_protocol::Result<Bytes>>> {
        if self.hashing.is_behind() {
            match timeout(HASH_AFTER, self.bytes.next()).await {
                Ok(next) => return Ok(next),
                Err(_) => self.hashing.catch_up().await?,
            }
        }
        Ok(self.bytes.next().await)
    }

    /// The next chunk that isn't empty, as it comes in.
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
                "the body goes on after the {announced} bytes that were announced"
            )),
            None => Error::EntityTooLarge { size: self.arrived, maximum: PUT_BYTES_MAX },
        }
    }

    fn check_end(&self) -> Result<()> {
        match self.announced {
            Some(announced) if announced != self.arrived => Err(Error::InvalidRequest(format!(
                "the body has {} bytes, and {announced} were announced",
                self.arrived
            ))),
            _ => Ok(()),
        }
    }
}

/// Errors of the client's own making are told apart from ours.
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
            hashing: Hashing::new(&[], Arc::new(tokio::sync::Semaphore::new(1))),
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
