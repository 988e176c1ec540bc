//! The devices' side of a body: consecutive extents, as copies or as coded fragments.
//!
//! Up to two extents are in flight: the sync of one overlaps the arrival of the next. Bytes in
//! channels are bounded for each extent and for the whole store. Pinned bytes are reserved before
//! the extent's first byte ([`admission`](crate::coded::admission)): parity of a coded extent, and
//! bytes of a short copy, which devices gather until it is whole.
//!
//! A coded extent needs its length before it begins. Without a declared length, bytes are buffered
//! first and then form an extent.

use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesOrdered;
use martlet_erasure::Code;
use martlet_protocol::backend::{ExtentHasher, NewExtent};
use martlet_protocol::extent::{BodyFacts, ExtentRef, Layout, Owner};
use martlet_protocol::limits::{CHUNK_BYTES, EXTENT_BYTES_MAX, PACKED_BYTES_MAX};
use martlet_protocol::{Error, ExtentId};

use super::hashed_body::{Destination, HashedBody};
use crate::channel::{Permit, cost};
use crate::coded::admission::Reserve;
use crate::coded::write::{CodedWrite, parity_bytes};
use crate::error::Result;
use crate::extents::{self, ExtentClient, Fanout};
use crate::orphan_guard::OrphanGuard;

/// Concurrent extents of one body.
const EXTENTS_IN_FLIGHT: usize = 2;
/// Bytes of undeclared length that are buffered for one coded extent.
const BUFFERED_COST_MAX: u64 = 4 * 1024 * 1024;

type ExtentResult = Result<ExtentRef, Error>;
type ExtentWrites = FuturesOrdered<BoxFuture<'static, ExtentResult>>;

/// The devices' side of a body.
pub(super) struct ExtentWriter<'a> {
    client: &'a Arc<ExtentClient>,
    to: Destination<'a>,
    orphans: &'a OrphanGuard,
    writing: ExtentWrites,
    written: Vec<ExtentRef>,
    current: Option<Current>,
    /// Bytes that the current extent still accepts.
    room: u64,
    sent: u64,
}

/// The current extent.
enum Current {
    Copies(Copies),
    Coded(Box<CodedWrite>),
    Buffered(BufferedExtent),
}

/// An extent stored as whole copies.
struct Copies {
    fanout: Fanout,
    bytes: u64,
    /// Reserve for bytes that devices gather; none once the extent is too long for that.
    reserve: Option<Reserve>,
    /// Hashes for all copies; none if each device hashes its own.
    hasher: Option<Box<ExtentHasher>>,
}

impl Copies {
    /// Hashes and counts arrived bytes, before they are pushed. An extent above the packed limit is
    /// not gathered, so its reserve is released.
    fn arrived(&mut self, chunk: &[u8]) {
        let bytes = chunk.len();
        if let Some(hasher) = &mut self.hasher {
            hasher.update(chunk);
        }
        self.bytes += bytes as u64;
        if self.bytes > PACKED_BYTES_MAX {
            self.reserve = None;
        }
        if let Some(reserve) = &self.reserve {
            reserve.pace().arrived(bytes);
        }
    }
}

/// A coded extent of unknown length.
struct BufferedExtent {
    new: NewExtent,
    code: Code,
    chunks: Vec<Bytes>,
    cost: u64,
    cost_max: u64,
    reserve: Reserve,
}

impl<'a> ExtentWriter<'a> {
    pub(super) fn new(
        client: &'a Arc<ExtentClient>,
        to: Destination<'a>,
        orphans: &'a OrphanGuard,
    ) -> Self {
        Self {
            client,
            to,
            orphans,
            writing: FuturesOrdered::new(),
            written: Vec::new(),
            current: None,
            room: 0,
            sent: 0,
        }
    }

    /// Sends the first chunks and the rest of a body.
    pub(super) async fn run(
        mut self,
        body: &mut HashedBody,
        first: Vec<Bytes>,
    ) -> Result<Vec<ExtentRef>> {
        let stored = body.stored();
        for chunk in first {
            self.send(chunk, stored).await?;
        }
        loop {
            let Some(chunk) = self.next(body).await? else { break };
            self.send(chunk.clone(), stored).await?;
            body.hash_stored(&chunk);
            let hashed = body.hashing.keep_up();
            alongside(&mut self.writing, &mut self.written, hashed).await??;
        }
        if body.declared.is_some_and(|declared| declared != body.arrived) {
            return body.check_end().map(|()| Vec::new());
        }
        self.end_extent().await?;
        let hashed = body.hashing.catch_up();
        alongside(&mut self.writing, &mut self.written, hashed).await??;
        while let Some(done) = self.writing.next().await {
            self.written.push(done?);
        }
        let stored: u64 = self.written.iter().map(|extent| u64::from(extent.length)).sum();
        if stored != self.sent {
            let message = format!("{} bytes were sent and {stored} stored", self.sent);
            return Err(Error::internal(message).into());
        }
        Ok(self.written)
    }

    /// Next bytes of the body. A client that is too slow for pinned bytes is given up.
    async fn next(&mut self, body: &mut HashedBody) -> Result<Option<Bytes>> {
        let Self { writing, written, current, .. } = self;
        let pace = match current {
            Some(Current::Coded(coded)) => Some(coded.pace()),
            Some(Current::Buffered(buffered)) => Some(buffered.reserve.pace()),
            Some(Current::Copies(copies)) => copies.reserve.as_ref().map(Reserve::pace),
            None => None,
        };
        let next = alongside(writing, written, body.next());
        match pace {
            Some(pace) => pace.wait_for(next).await??,
            None => next.await?,
        }
    }

    async fn send(&mut self, mut bytes: Bytes, declared: Option<u64>) -> Result<()> {
        while !bytes.is_empty() {
            if self.room == 0 {
                self.end_extent().await?;
                while self.writing.len() >= EXTENTS_IN_FLIGHT {
                    let done = self.writing.next().await.expect("some are in flight");
                    self.written.push(done?);
                }
                self.begin_extent(declared.map(|size| size - self.sent)).await?;
            }
            let room = usize::try_from(self.room).unwrap_or(usize::MAX).min(CHUNK_BYTES);
            let chunk = bytes.split_to(bytes.len().min(room));
            self.room -= chunk.len() as u64;
            self.sent += chunk.len() as u64;
            self.push(chunk).await?;
        }
        Ok(())
    }

    /// Pushes a chunk to the current extent, once its channels have room.
    async fn push(&mut self, chunk: Bytes) -> Result<()> {
        let Self { client, writing, written, current, .. } = self;
        match current {
            None => {}
            Some(Current::Copies(copies)) => {
                let ready = admitted(client, &mut copies.fanout, chunk.len());
                let permit = alongside(writing, written, ready).await?;
                copies.arrived(&chunk);
                copies.fanout.push(&chunk, &permit);
            }
            Some(Current::Coded(coded)) => {
                let ready = admitted(client, coded.fanout(), chunk.len());
                let permit = alongside(writing, written, ready).await?;
                coded.pace().arrived(chunk.len());
                coded.push(&chunk, &permit)?;
            }
            Some(Current::Buffered(buffered)) => {
                buffered.reserve.pace().arrived(chunk.len());
                buffered.cost += cost(&chunk) as u64;
                buffered.chunks.push(chunk);
                self.room = buffered.cost_max.saturating_sub(buffered.cost);
            }
        }
        Ok(())
    }

    async fn end_extent(&mut self) -> Result<()> {
        match self.current.take() {
            None => {}
            Some(Current::Copies(copies)) => copies.fanout.finish(),
            Some(Current::Coded(coded)) => coded.finish(),
            Some(Current::Buffered(buffered)) => {
                let BufferedExtent { new, code, chunks, reserve, .. } = buffered;
                let length = chunks.iter().map(|chunk| chunk.len() as u64).sum();
                let mut coded = self.begin_coded(code, &new, length, reserve)?;
                for chunk in chunks {
                    coded.push_reserved(&chunk)?;
                    // Yields to other tasks and to the devices.
                    let others = tokio::task::yield_now();
                    alongside(&mut self.writing, &mut self.written, others).await?;
                }
                coded.finish();
            }
        }
        Ok(())
    }

    /// Begins the next extent with the policy's redundancy; `left` is the number of bytes to come.
    async fn begin_extent(&mut self, left: Option<u64>) -> Result<()> {
        let cluster = self.client.cluster();
        let code = Code::of(cluster.data(self.to.policy)?.identity().redundancy)?;
        let extent_bytes_max = code.map_or(EXTENT_BYTES_MAX, Code::extent_bytes_max);
        let new = self.new_extent(left.is_some_and(|left| left <= extent_bytes_max));
        let (current, room) = match (code, left) {
            (None, left) => {
                let length = left.map(|left| left.min(EXTENT_BYTES_MAX));
                let length_to_hash = length.filter(|_| self.has_copies());
                let hasher = length_to_hash.map(|length| Box::new(ExtentHasher::new(length)));
                let hashes = hasher.as_ref().map(|hasher| hasher.sent().clone());
                let new = NewExtent { length, hashes, ..new };
                let reserve = self.reserve_short_copy(length).await?;
                let (fanout, write) =
                    extents::begin(self.client, &new, self.orphans.uncommitted())?;
                self.writing.push_back(write);
                let copies = Copies { fanout, bytes: 0, reserve, hasher };
                (Current::Copies(copies), EXTENT_BYTES_MAX)
            }
            (Some(code), Some(left)) => {
                let length = left.min(code.extent_bytes_max());
                let reserve = self.reserve(parity_bytes(code, length)?, length).await?;
                let coded = self.begin_coded(code, &new, length, reserve)?;
                (Current::Coded(Box::new(coded)), length)
            }
            (Some(code), None) => {
                let cost_max = BUFFERED_COST_MAX.min(code.extent_bytes_max());
                let pinned = cost_max + parity_bytes(code, cost_max)?;
                let reserve = self.reserve(pinned, cost_max).await?;
                let chunks = Vec::new();
                let buffered = BufferedExtent { new, code, chunks, cost: 0, cost_max, reserve };
                (Current::Buffered(buffered), cost_max)
            }
        };
        (self.current, self.room) = (Some(current), room);
        Ok(())
    }

    /// Returns true if an extent has several copies. Then hashing it here saves a hash for each.
    fn has_copies(&self) -> bool {
        self.client.cluster().data(self.to.policy).is_ok_and(|ring| ring.replicas() > 1)
    }

    fn begin_coded(
        &mut self,
        code: Code,
        new: &NewExtent,
        length: u64,
        reserve: Reserve,
    ) -> Result<CodedWrite> {
        let uncommitted = self.orphans.uncommitted();
        let (coded, write) =
            CodedWrite::begin(self.client, code, new, length, uncommitted, reserve)?;
        self.writing.push_back(write);
        Ok(coded)
    }

    /// Reserves the bytes of a copy that devices gather; none for a longer one, which they write
    /// directly.
    async fn reserve_short_copy(&mut self, length: Option<u64>) -> Result<Option<Reserve>> {
        match length.unwrap_or(PACKED_BYTES_MAX) {
            length @ ..=PACKED_BYTES_MAX => self.reserve(length, length).await.map(Some),
            _ => Ok(None),
        }
    }

    /// Waits until `bytes` may be pinned for an extent of at most `length` bytes.
    async fn reserve(&mut self, bytes: u64, length: u64) -> Result<Reserve> {
        let admission = &self.client.admission;
        let reserve = admission.reserve(&self.client.buffer, bytes, length);
        Ok(alongside(&mut self.writing, &mut self.written, reserve).await??)
    }

    /// Parameters of the extent that begins with the next byte.
    fn new_extent(&self, is_last: bool) -> NewExtent {
        let offset = self.to.offset + self.sent;
        let owner = Owner {
            bucket: self.to.bucket,
            key: self.to.key.to_owned(),
            write_id: self.to.write_id,
            upload: self.to.upload,
            role: self.to.role,
            offset: self.to.facts.map_or(offset, |facts| BodyFacts { is_last, ..facts }.at(offset)),
        };
        // The last bits are reserved for fragment numbers.
        let id = ExtentId::random().whole();
        let layout = Layout { policy: self.to.policy, stripe: None };
        NewExtent { id, owner, length: None, birth_ms: None, layout, hashes: None }
    }
}

/// Waits for a share of the write budget and for room in the channels. A chunk takes at most a
/// quarter of the budget, which becomes free eventually.
async fn admitted(client: &ExtentClient, fanout: &mut Fanout, bytes: usize) -> Permit {
    let bytes = bytes.min((client.buffer_bytes_max / 4).max(1));
    let share = u32::try_from(bytes).unwrap_or(u32::MAX);
    let acquired = client.buffer.clone().acquire_many_owned(share);
    let permit = fanout.while_waiting(acquired).await.ok().map(Arc::new);
    fanout.room().await;
    permit
}

/// Awaits `future` while extents are being written; fails if an extent fails.
async fn alongside<F: Future>(
    writing: &mut ExtentWrites,
    written: &mut Vec<ExtentRef>,
    future: F,
) -> Result<F::Output> {
    let mut future = pin!(future);
    loop {
        tokio::select! {
            biased;
            Some(done) = writing.next(), if !writing.is_empty() => written.push(done?),
            output = &mut future => return Ok(output),
        }
    }
}
