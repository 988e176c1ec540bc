//! Encoding of an extent into fragments while its bytes arrive.
//!
//! Each chunk goes unchanged to the channel of its data fragment, and is added to the parity. The
//! parity is sent together with the last data fragment. A fragment that is complete in its channel
//! is finished at once, so its node can sync early. All of this runs inline, on chunks of at most 1
//! MiB; hashing takes more CPU time than the parity.
//!
//! Each fragment is hashed here, besides the extent, and its node compares the checksums of its
//! blocks. A node's own hash has no second copy to be compared with, so bytes that changed in
//! transit would otherwise be stored as valid.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use futures::future::BoxFuture;
use martlet_erasure::{Code, Encoder, FragmentIndex, Geometry};
use martlet_protocol::backend::{ExtentHasher, NewExtent};
use martlet_protocol::extent::{ExtentRef, Stripe};
use martlet_protocol::{Error, Result};

use super::admission::{Pace, Reserve};
use crate::channel::Permit;
use crate::extents::{
    self, ExtentClient, ExtentPlan, Fanout, Fragment, ReplicaWrite, UncommittedExtents,
};

/// A hash that is set once all bytes have passed.
type Sum = Arc<OnceLock<[u8; 32]>>;

/// A coded extent that is being written.
pub(crate) struct CodedWrite {
    encoder: Encoder,
    fanout: Fanout,
    /// The fragments with bytes, in the order of the fanout's channels.
    lanes: Vec<Lane>,
    whole: RunningHash,
    reserve: Reserve,
}

/// A fragment and its hashes, on the way to its channel.
struct Lane {
    fragment: FragmentIndex,
    is_parity: bool,
    hasher: ExtentHasher,
}

/// A running hash of the whole extent, finished after a known number of bytes.
struct RunningHash {
    hasher: blake3::Hasher,
    bytes_left: u64,
    sum: Sum,
}

/// Pinned bytes of an extent of `length` bytes: its parity.
pub(crate) fn parity_bytes(code: Code, length: u64) -> Result<u64> {
    Ok(u64::from(code.m()) * Geometry::new(code, length)?.columns())
}

impl CodedWrite {
    /// Begins an extent of `length` bytes. The future completes once enough devices have stored
    /// their fragments.
    pub(crate) fn begin(
        client: &Arc<ExtentClient>,
        code: Code,
        new: &NewExtent,
        length: u64,
        uncommitted: Arc<UncommittedExtents>,
        reserve: Reserve,
    ) -> Result<(Self, BoxFuture<'static, Result<ExtentRef>>)> {
        let geometry = Geometry::new(code, length)?;
        let encoder = Encoder::new(&client.codecs.get(code), &geometry)?;
        let whole = whole(new, length)?;
        let lanes: Vec<_> = geometry.stored().iter().map(|at| Lane::new(at, &geometry)).collect();
        let plan = ExtentPlan {
            policy: new.layout.policy,
            id: whole.id,
            replicas: lanes.iter().map(|lane| lane.replica_write(new, code, whole)).collect(),
            needed: usize::from(geometry.needed()) + 1,
            uncommitted,
        };
        let (fanout, durable) = extents::begin_replicas(client, plan)?;
        let hashing = RunningHash::new(length);
        let sum = hashing.sum.clone();
        let done = async move {
            let extent = durable.await?;
            let unknown = || Error::internal("an extent is durable before its last byte");
            Ok(ExtentRef { blake3: *sum.get().ok_or_else(unknown)?, ..extent })
        };
        Ok((Self { encoder, fanout, lanes, whole: hashing, reserve }, Box::pin(done)))
    }

    /// Progress of the client with this extent.
    pub(crate) fn pace(&self) -> &Arc<Pace> {
        self.reserve.pace()
    }

    /// The fanout, whose room callers wait for.
    pub(crate) fn fanout(&mut self) -> &mut Fanout {
        &mut self.fanout
    }

    /// Encodes the next bytes; `permit` is their share of the write budget.
    pub(crate) fn push(&mut self, bytes: &Bytes, permit: &Permit) -> Result<()> {
        self.whole.take(bytes);
        for block in self.encoder.push(bytes)? {
            let place = self.lanes.iter().position(|lane| lane.fragment == block.fragment);
            let at = place.ok_or_else(|| Error::internal("a fragment has bytes but no channel"))?;
            let permit = if self.lanes[at].is_parity {
                self.reserve.share(block.bytes.len())
            } else {
                permit.clone()
            };
            let hasher = &mut self.lanes[at].hasher;
            hasher.update(&block.bytes);
            let is_all = hasher.bytes_left() == 0;
            self.fanout.push_to(at, block.bytes, permit);
            if is_all {
                self.fanout.end(at);
            }
        }
        Ok(())
    }

    /// Encodes bytes that stood in the reserve.
    pub(crate) fn push_reserved(&mut self, bytes: &Bytes) -> Result<()> {
        let permit = self.reserve.share(bytes.len());
        self.push(bytes, &permit)
    }

    /// Marks the end of the bytes.
    pub(crate) fn finish(self) {
        self.fanout.finish();
    }
}

/// The extent that all its fragments belong to; its hash is unset.
fn whole(new: &NewExtent, length: u64) -> Result<ExtentRef> {
    let length = u32::try_from(length).map_err(|_| Error::internal("an extent is too long"))?;
    Ok(ExtentRef { id: new.id.whole(), length, blake3: [0; 32] })
}

impl Lane {
    fn new(fragment: FragmentIndex, geometry: &Geometry) -> Self {
        let is_parity = !geometry.code().is_data(fragment);
        Self { fragment, is_parity, hasher: ExtentHasher::new(geometry.stored_bytes(fragment)) }
    }

    /// Creation parameters of this fragment on its device.
    fn replica_write(&self, new: &NewExtent, code: Code, whole: ExtentRef) -> ReplicaWrite {
        let FragmentIndex(number) = self.fragment;
        let mut new = new.clone();
        new.id = whole.id.fragment(number);
        new.length = Some(self.hasher.bytes_left());
        new.hashes = Some(self.hasher.sent().clone());
        new.layout.stripe = Some(Stripe { k: code.k(), m: code.m(), length: whole.length });
        let fragment = Fragment { whole, hashes: self.hasher.sent().clone() };
        ReplicaWrite { number, new, fragment: Some(fragment) }
    }
}

impl RunningHash {
    fn new(bytes: u64) -> Self {
        Self { hasher: blake3::Hasher::new(), bytes_left: bytes, sum: Sum::default() }
    }

    /// Hashes bytes.
    fn take(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
        self.bytes_left = self.bytes_left.saturating_sub(bytes.len() as u64);
        if self.bytes_left == 0 {
            let _ = self.sum.set(*self.hasher.finalize().as_bytes());
        }
    }
}
