//! Bodies on their way in: inline bytes or extents, with everything checked before anything is
//! committed.
//!
//! One task does it all. It takes a chunk from the client and hands it on twice, as a reference: to
//! the pipe of the extent being written, and to be hashed, which for long bodies happens on a thread
//! beside. Up to two extents are in flight: the sync of one overlaps the arrival of the next. What
//! waits in pipes is bounded for each extent and over the whole store, what waits to be hashed is
//! bounded for each body.

use std::pin::pin;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesOrdered;
use martlet_protocol::backend::NewExtent;
use martlet_protocol::entry::Checksum;
use martlet_protocol::extent::{ExtentRef, ExtentRole, Layout, Owner};
use martlet_protocol::limits::{EXTENT_BYTES_MAX, PUT_BYTES_MAX};
use martlet_protocol::{BucketId, ErrorKind, ExtentId, PolicyId, UploadId, WriteId};

use crate::api::Incoming;
use crate::error::{Error, Result};
use crate::extents::{self, Fanout};
use crate::hashing::Hashing;
use crate::store::Inner;
use crate::unclaimed::Unclaimed;

/// Extents that may be in flight for one body.
const EXTENTS_IN_FLIGHT: usize = 2;

/// Whose bytes come in, and where they go.
#[derive(Clone, Copy)]
pub(crate) struct Destination<'a> {
    pub(crate) bucket: BucketId,
    pub(crate) key: &'a str,
    pub(crate) write_id: WriteId,
    pub(crate) upload: Option<UploadId>,
    pub(crate) role: ExtentRole,
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
        if let Some(size) = incoming.size.filter(|size| *size > PUT_BYTES_MAX) {
            return Err(Error::EntityTooLarge { size, maximum: PUT_BYTES_MAX });
        }
        let mut source = Source {
            bytes: incoming.bytes,
            announced: incoming.size,
            hashing: Hashing::new(&incoming.compute, self.hashers.clone()),
            arrived: 0,
        };
        let mut head = Vec::new();
        while source.arrived <= to.inline_bytes_max {
            let Some(chunk) = source.next().await? else { break };
            source.hashing.push(chunk.clone());
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
}

impl Source {
    /// The next chunk that isn't empty.
    async fn next(&mut self) -> Result<Option<Bytes>> {
        while let Some(chunk) = self.bytes.next().await {
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

type Writing = FuturesOrdered<BoxFuture<'static, Result<ExtentRef, martlet_protocol::Error>>>;

/// The devices' end.
struct Outflow<'a> {
    inner: &'a Arc<Inner>,
    to: Destination<'a>,
    unclaimed: &'a Unclaimed,
    writing: Writing,
    written: Vec<ExtentRef>,
    current: Option<Fanout>,
    /// Bytes that the current extent still takes.
    room: u64,
    sent: u64,
}

impl<'a> Outflow<'a> {
    fn new(inner: &'a Arc<Inner>, to: Destination<'a>, unclaimed: &'a Unclaimed) -> Self {
        Self {
            inner,
            to,
            unclaimed,
            writing: FuturesOrdered::new(),
            written: Vec::new(),
            current: None,
            room: 0,
            sent: 0,
        }
    }

    /// Sends what has arrived and what still will.
    async fn run(mut self, source: &mut Source, head: Vec<Bytes>) -> Result<Vec<ExtentRef>> {
        for chunk in head {
            self.send(chunk, source.announced).await?;
        }
        loop {
            let next = alongside(&mut self.writing, &mut self.written, source.next()).await??;
            let Some(chunk) = next else { break };
            self.send(chunk.clone(), source.announced).await?;
            source.hashing.push(chunk);
            let hashed = source.hashing.keep_up();
            alongside(&mut self.writing, &mut self.written, hashed).await??;
        }
        if source.announced.is_some_and(|announced| announced != source.arrived) {
            return source.check_end().map(|()| Vec::new());
        }
        self.end_extent();
        let hashed = source.hashing.catch_up();
        alongside(&mut self.writing, &mut self.written, hashed).await??;
        while let Some(done) = self.writing.next().await {
            self.written.push(done?);
        }
        let stored: u64 = self.written.iter().map(|extent| u64::from(extent.length)).sum();
        if stored != self.sent {
            let message = format!("{} bytes were sent and {stored} stored", self.sent);
            return Err(martlet_protocol::Error::internal(message).into());
        }
        Ok(self.written)
    }

    async fn send(&mut self, mut chunk: Bytes, announced: Option<u64>) -> Result<()> {
        while !chunk.is_empty() {
            if self.room == 0 {
                self.end_extent();
                while self.writing.len() >= EXTENTS_IN_FLIGHT {
                    let done = self.writing.next().await.expect("some are in flight");
                    self.written.push(done?);
                }
                self.begin_extent(announced.map(|size| size - self.sent))?;
            }
            let length = usize::try_from(self.room).map_or(chunk.len(), |r| r.min(chunk.len()));
            let piece = chunk.split_to(length);
            self.push(&piece).await?;
            self.room -= length as u64;
            self.sent += length as u64;
        }
        Ok(())
    }

    /// Hands a piece to all copies of the current extent, once there is room for it.
    async fn push(&mut self, piece: &Bytes) -> Result<()> {
        let Some(current) = &mut self.current else { return Ok(()) };
        let bytes = piece.len().min(self.inner.options.buffer_bytes_max.max(1));
        let share = u32::try_from(bytes).unwrap_or(u32::MAX);
        let acquired = self.inner.buffer.clone().acquire_many_owned(share);
        let ready = async {
            let permit = current.while_waiting(acquired).await.ok().map(Arc::new);
            current.room().await;
            permit
        };
        let permit = alongside(&mut self.writing, &mut self.written, ready).await?;
        current.push(piece, &permit);
        Ok(())
    }

    fn end_extent(&mut self) {
        if let Some(current) = self.current.take() {
            current.finish();
        }
    }

    /// Begins the next extent, on as many devices as its policy has replicas.
    fn begin_extent(&mut self, left: Option<u64>) -> Result<()> {
        let id = ExtentId::random();
        let owner = Owner {
            bucket: self.to.bucket,
            key: self.to.key.to_owned(),
            write_id: self.to.write_id,
            upload: self.to.upload,
            role: self.to.role,
            offset: self.sent,
        };
        let length = left.map(|left| left.min(EXTENT_BYTES_MAX));
        let layout = Layout { policy: self.to.policy, stripe: None };
        let extent = NewExtent { id, owner, length, birth_ms: None, layout };
        let placed = self.unclaimed.placed();
        let (current, write) = extents::begin(self.inner, self.to.policy, extent, placed)?;
        self.current = Some(current);
        self.writing.push_back(write);
        self.room = EXTENT_BYTES_MAX;
        Ok(())
    }
}

/// Waits for `future` while extents are being written; one that fails ends the wait.
async fn alongside<F: Future>(
    writing: &mut Writing,
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
