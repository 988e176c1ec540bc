//! An extent that is open for a reader outside of the cluster: its bytes, with the checksums by
//! which the reader can verify them.
//!
//! Invariants:
//! * Bytes of [`ExtentInPlace::read`] were compared with their checksums, as those of a read by a
//!   member of the cluster. A wrong block ends the read and quarantines the extent.
//! * Unverified bytes are only returned by methods that are named so.
//! * A thread of a device waits for a client only while most threads don't, and for a bounded time.
//! * A delete doesn't change the bytes of an open extent. Their space is reused once it is dropped.
//! * No socket gets references to pages of a volume: a later record may change these pages before
//!   the client has received them.

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use martlet_protocol::limits::BLOCK_BYTES;
use martlet_protocol::{ByteStream, Error, ExtentId, Result};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::net::sockopt::{Timeout, set_socket_timeout};

use super::ExtentStore;
use super::open::OpenExtent;
use super::read::{self, ExtentReader};
use super::store::StoreState;

/// Longest time that a call waits on its thread for a socket to take bytes.
const LINGER: Duration = Duration::from_millis(20);
/// Longest time that a call waits for a socket that takes bytes again and again.
const LINGERS_FOR: Duration = Duration::from_secs(1);
/// Most bytes that one system call sends. A socket that takes a third of a 4 MiB buffer in each [`LINGER`]
/// takes them in 0.3 s.
const SENT_AT_ONCE_MAX: usize = 16 * 1024 * 1024;

/// Result of [`ExtentInPlace::send_unverified`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentBytes {
    /// Number of bytes that the socket took.
    pub bytes: u64,
    /// Reason for the end of the call.
    pub end: SendEnd,
}

/// End of a call that sent bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendEnd {
    /// The socket took all bytes, or a further call returns an error.
    Taken,
    /// The socket takes none now. The call did not wait, or waited often.
    Full,
    /// The socket took none for 20 ms.
    Slow,
}

/// An extent that is open for a reader in place. Cheap to clone.
#[derive(Clone)]
pub struct ExtentInPlace {
    reader: ExtentReader,
    extent: Arc<OpenExtent>,
}

impl std::fmt::Debug for ExtentInPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ExtentInPlace").field(&self.extent.id).finish()
    }
}

impl ExtentStore {
    /// Opens an extent for a reader in place.
    pub async fn open_in_place(&self, id: ExtentId) -> Result<ExtentInPlace> {
        let extent = match self.0.opened.get(&id) {
            Some(extent) => extent,
            None => StoreState::open_extent(&self.0, id).await?,
        };
        Ok(ExtentInPlace { reader: ExtentReader::of(&self.0).by_windows(), extent })
    }
}

impl ExtentInPlace {
    /// Length in bytes.
    pub fn length(&self) -> u64 {
        self.extent.length
    }

    /// Returns true if the extent lies in a volume, whose pages may be written again once the extent
    /// is dropped. A socket keeps references to the pages that `sendfile` gave it.
    pub fn is_packed(&self) -> bool {
        self.extent.is_packed()
    }

    /// BLAKE3 of the bytes.
    pub fn blake3(&self) -> [u8; 32] {
        self.extent.blake3
    }

    /// CRC32C of each block under a range. The last block ends with the extent.
    pub fn checksums(&self, range: &Range<u64>) -> &[u32] {
        let block = |at: u64| usize::try_from(at).expect("an extent has few blocks");
        let blocks = block(range.start / BLOCK_BYTES)..block(range.end.div_ceil(BLOCK_BYTES));
        self.extent.crcs.get(blocks).unwrap_or_default()
    }

    /// Reads verified bytes. The first chunk is read before this returns.
    pub async fn read(&self, range: Range<u64>) -> Result<ByteStream> {
        self.check(&range)?;
        read::stream(self.reader.clone(), self.extent.clone(), range).await
    }

    /// Reads bytes without verifying them.
    pub async fn read_unverified(&self, range: Range<u64>) -> Result<ByteStream> {
        self.check(&range)?;
        read::stream(self.reader.clone().unverified(), self.extent.clone(), range).await
    }

    /// Sends bytes to a socket that doesn't block, without verifying them and without a copy in this
    /// process. Runs on a thread of the device, for it may wait for the disk. If `lingers`, it also
    /// waits there for the socket, for [`LINGER`] at a time, unless many calls do. The socket blocks
    /// meanwhile, so that the kernel waits: nothing else may read from it or write to it.
    ///
    /// # Errors
    /// `Invalid` for a packed extent. Others are those before the first byte: after an error that
    /// comes later, the bytes before it are returned.
    pub async fn send_unverified(
        &self,
        socket: &Arc<OwnedFd>,
        range: Range<u64>,
        lingers: bool,
    ) -> Result<SentBytes> {
        self.check(&range)?;
        if self.is_packed() {
            return Err(Error::invalid("a packed extent is sent by copies only"));
        }
        let (extent, socket) = (self.extent.clone(), socket.clone());
        let threads = self.reader.threads().clone();
        let send = move || {
            let lingering = lingers.then(|| threads.linger()).flatten();
            let blocking = lingering.as_ref().and_then(|_| BlockingSocket::set(socket.as_fd()));
            send_while_taken(&extent, socket.as_fd(), range, blocking.is_some())
        };
        self.reader.threads().run(send).await
    }

    fn check(&self, range: &Range<u64>) -> Result<()> {
        if !range.is_empty() && range.end <= self.extent.length {
            return Ok(());
        }
        let OpenExtent { id, length, .. } = &*self.extent;
        Err(Error::invalid(format!("extent {id} of {length} bytes has no range {range:?}")))
    }
}

/// Sends bytes until the socket takes no more: for [`LINGER`] if it `blocks`, else now.
fn send_while_taken(
    extent: &OpenExtent,
    socket: BorrowedFd<'_>,
    range: Range<u64>,
    blocks: bool,
) -> Result<SentBytes> {
    let begin = Instant::now();
    let mut at = range.start;
    let mut end = SendEnd::Taken;
    while at < range.end {
        if blocks && begin.elapsed() > LINGERS_FOR {
            end = SendEnd::Full;
            break;
        }
        let length = usize::try_from(range.end - at).unwrap_or(usize::MAX).min(SENT_AT_ONCE_MAX);
        match extent.file.send(socket, extent.base + at, length) {
            Ok(Some(bytes)) => at += bytes as u64,
            Ok(None) => {
                end = if blocks { SendEnd::Slow } else { SendEnd::Full };
                break;
            }
            // A further call meets the error before its first byte.
            Err(_) if at > range.start => break,
            Err(error) => return Err(error),
        }
    }
    Ok(SentBytes { bytes: at - range.start, end })
}

/// A socket that blocks for at most [`LINGER`] without progress, until this is dropped. All descriptors
/// of the socket block so long.
struct BlockingSocket<'a> {
    socket: BorrowedFd<'a>,
    flags: OFlags,
}

impl<'a> BlockingSocket<'a> {
    /// Lets a socket block. None if the kernel refuses that.
    fn set(socket: BorrowedFd<'a>) -> Option<Self> {
        set_socket_timeout(socket, Timeout::Send, Some(LINGER)).ok()?;
        let flags = fcntl_getfl(socket).ok()?;
        fcntl_setfl(socket, flags - OFlags::NONBLOCK).ok()?;
        Some(Self { socket, flags })
    }
}

impl Drop for BlockingSocket<'_> {
    fn drop(&mut self) {
        if let Err(error) = fcntl_setfl(self.socket, self.flags) {
            tracing::error!(%error, "a socket goes on blocking");
        }
    }
}
