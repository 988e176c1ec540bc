//! A node whose extent calls fail as a test sets, byte by byte.
//!
//! Fault model: a device refuses, is late, hangs, breaks off or stalls after so many bytes, in
//! either direction, or reports another hash than that of the written bytes. Index calls are never
//! touched.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use martlet_protocol::backend::{Backend, ByteStream, Call, DeviceStatus, NewExtent, Reply};
use martlet_protocol::extent::ExtentRef;
use martlet_protocol::testing::MemoryBackend;
use martlet_protocol::{DeviceId, Error, ErrorKind, ExtentId, Result};
use parking_lot::Mutex;

/// Behavior of a device's extent calls.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::tests) enum Conduct {
    /// No fault.
    #[default]
    Well,
    /// Refuses every call.
    Refuses(ErrorKind),
    /// Neither replies nor accepts bytes.
    Hangs,
    /// Replies correctly after a delay.
    Late(Duration),
    /// Writes, and replies after a delay.
    WritesLate(Duration),
    /// Sends so many bytes, then an error.
    ReadBreaks(usize, ErrorKind),
    /// Sends so many bytes, then nothing.
    ReadStalls(usize),
    /// Breaks off if the reader paused for so long.
    ReadMinds(Duration),
    /// Accepts so many bytes, then none.
    WriteStalls(usize),
    /// Accepts so many bytes, then returns an error.
    WriteBreaks(usize, ErrorKind),
    /// Accepts one chunk per interval.
    WriteSlow(Duration),
    /// Stores other bytes than were sent, and returns their hash.
    WritesAnother,
    /// Receives other bytes than were sent.
    WriteFlips,
}

/// Devices in memory, some of them faulty.
pub(in crate::tests) struct Wayward {
    pub(in crate::tests) memory: Arc<MemoryBackend>,
    conducts: Mutex<HashMap<DeviceId, Conduct>>,
    /// Reads begun: device and byte range.
    reads: Mutex<Vec<(DeviceId, Range<u64>)>>,
    writes: Mutex<Vec<DeviceId>>,
    /// Number of open streams to readers.
    pub(in crate::tests) open: Arc<AtomicUsize>,
}

struct Open(Arc<AtomicUsize>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Wayward {
    pub(in crate::tests) fn new(memory: Arc<MemoryBackend>) -> Self {
        let open = Arc::default();
        let (conducts, reads, writes) = (Mutex::default(), Mutex::default(), Mutex::default());
        Self { memory, conducts, reads, writes, open }
    }

    /// Sets the behavior of a device from now on.
    pub(in crate::tests) fn let_be(&self, device: DeviceId, conduct: Conduct) {
        self.conducts.lock().insert(device, conduct);
    }

    /// Takes the reads begun since the last call.
    pub(in crate::tests) fn reads(&self) -> Vec<(DeviceId, Range<u64>)> {
        std::mem::take(&mut self.reads.lock())
    }

    /// Takes the devices of writes begun since the last call.
    pub(in crate::tests) fn writes(&self) -> Vec<DeviceId> {
        std::mem::take(&mut self.writes.lock())
    }

    /// Applies a refusal, hang or delay, then returns the device's behavior.
    async fn conduct(&self, device: DeviceId) -> Result<Conduct> {
        let conduct = self.conducts.lock().get(&device).copied().unwrap_or_default();
        match conduct {
            Conduct::Refuses(kind) => Err(failed(kind)),
            Conduct::Hangs => std::future::pending().await,
            Conduct::Late(by) => {
                tokio::time::sleep(by).await;
                Ok(conduct)
            }
            _ => Ok(conduct),
        }
    }
}

fn failed(kind: ErrorKind) -> Error {
    Error::new(kind, "so the test will have it")
}

/// The first so many bytes of a stream, then an error or a stall.
fn after(stream: ByteStream, bytes: usize, then: Option<ErrorKind>) -> ByteStream {
    let begin = futures::stream::unfold((stream, bytes), |(mut stream, left)| async move {
        if left == 0 {
            return None;
        }
        let next = stream.next().await?.map(|mut piece: Bytes| {
            piece.truncate(left);
            piece
        });
        let given = next.as_ref().map_or(0, Bytes::len);
        Some((next, (stream, left - given)))
    });
    let end = futures::stream::once(async move {
        match then {
            Some(kind) => Err(failed(kind)),
            None => std::future::pending().await,
        }
    });
    begin.chain(end).boxed()
}

/// A stream that breaks when its reader returns after a pause of `away`.
fn minding(stream: ByteStream, away: Duration) -> ByteStream {
    let mut since = None::<tokio::time::Instant>;
    let minding = stream.map(move |piece| {
        let was_away = since.is_some_and(|since| since.elapsed() >= away);
        since = Some(tokio::time::Instant::now());
        if was_away { Err(failed(ErrorKind::Unavailable)) } else { piece }
    });
    minding.boxed()
}

#[async_trait]
impl Backend for Wayward {
    async fn write_extent(
        &self,
        device: DeviceId,
        extent: NewExtent,
        body: ByteStream,
    ) -> Result<ExtentRef> {
        self.writes.lock().push(device);
        let conduct = self.conduct(device).await?;
        let body = match conduct {
            Conduct::WriteStalls(bytes) => after(body, bytes, None),
            Conduct::WriteBreaks(bytes, kind) => after(body, bytes, Some(kind)),
            Conduct::WriteSlow(pace) => body
                .then(move |piece| async move {
                    tokio::time::sleep(pace).await;
                    piece
                })
                .boxed(),
            Conduct::WriteFlips => body
                .map(|piece| {
                    piece.map(|piece| {
                        let mut piece = bytes::BytesMut::from(&piece[..]);
                        piece[0] ^= 1;
                        piece.freeze()
                    })
                })
                .boxed(),
            _ => body,
        };
        let mut written = self.memory.write_extent(device, extent, body).await?;
        match conduct {
            Conduct::WritesLate(by) => tokio::time::sleep(by).await,
            Conduct::WritesAnother => written = self.memory.replace_bytes(device, written.id),
            _ => {}
        }
        Ok(written)
    }

    async fn read_extent(
        &self,
        device: DeviceId,
        id: ExtentId,
        range: Range<u64>,
    ) -> Result<ByteStream> {
        self.reads.lock().push((device, range.clone()));
        let conduct = self.conduct(device).await?;
        let stream = self.memory.read_extent(device, id, range).await?;
        let stream = match conduct {
            Conduct::ReadBreaks(bytes, kind) => after(stream, bytes, Some(kind)),
            Conduct::ReadStalls(bytes) => after(stream, bytes, None),
            Conduct::ReadMinds(away) => minding(stream, away),
            _ => stream,
        };
        self.open.fetch_add(1, Ordering::SeqCst);
        let open = Open(self.open.clone());
        Ok(stream.inspect(move |_| _ = &open).boxed())
    }

    async fn call(&self, device: DeviceId, call: Call<'_>) -> Result<Reply> {
        if let Call::StatExtent(_)
        | Call::DeleteExtents(_)
        | Call::Presence(_)
        | Call::PresenceBy { .. } = call
        {
            self.conduct(device).await?;
        }
        self.memory.call(device, call).await
    }

    async fn devices(&self) -> Result<Vec<DeviceStatus>> {
        self.memory.devices().await
    }
}
