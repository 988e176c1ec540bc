//! An extent that is open for a reader outside of the cluster: its bytes, with the checksums by
//! which the reader can verify them.
//!
//! Invariants:
//! * Bytes of [`ExtentInPlace::read`] were compared with their checksums, as those of a read by a
//!   member of the cluster. A wrong block ends the read and quarantines the extent.
//! * Unverified bytes are only returned by methods that are named so.
//! * No thread on which calls wait for the disk waits for a client.
//! * A delete doesn't change the bytes of an open extent. Their space is reused once it is dropped.
//!   [`ExtentInPlace::space_needed`] ends once a full device needs this space.
//! * A socket whose send failed gets no further bytes: the thread of that send may go on later.
//! * No socket gets references to pages of a volume: a later record may change these pages before
//!   the client has received them.

use std::future::pending;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use martlet_protocol::limits::BLOCK_BYTES;
use martlet_protocol::{ByteStream, Error, ExtentId, Result};
use tokio::sync::watch;

use super::ExtentStore;
use super::open::OpenExtent;
use super::read::{self, ExtentReader};
use super::sender::{CachedSend, SendEnd, Senders};
use super::store::StoreState;

/// Most bytes that one call sends from the disk.
const SENT_AT_ONCE_MAX: u64 = 16 * 1024 * 1024;

/// Result of [`ExtentInPlace::send_unverified`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentBytes {
    /// Number of bytes that the socket took.
    pub bytes: u64,
    /// Reason for the end of the call.
    pub end: SendEnd,
    /// Time in which the call waited for the socket, and not for the disk.
    pub waited: Duration,
}

/// An extent that is open for a reader in place. Cheap to clone.
#[derive(Clone)]
pub struct ExtentInPlace {
    reader: ExtentReader,
    senders: Arc<Senders>,
    /// Changes at each reclaim while the device is short of space.
    shortages: watch::Receiver<()>,
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
        let (reader, senders) = (ExtentReader::of(&self.0).by_windows(), self.0.senders.clone());
        let shortages = self.0.shortages.subscribe();
        Ok(ExtentInPlace { reader, senders, shortages, extent })
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

    /// Waits until the device needs the space of the extent: its file is deleted, and the device is
    /// short of space. Never ends for a packed extent.
    pub async fn space_needed(&self) {
        let mut shortages = self.shortages.clone();
        while shortages.changed().await.is_ok() {
            if self.is_deleted_file() {
                return;
            }
        }
        // The store has closed.
        pending::<()>().await;
    }

    /// Returns true if the extent is a file without a name. Quarantine leaves a file its name.
    fn is_deleted_file(&self) -> bool {
        // The kernel has the answer in memory, so this waits for no disk.
        !self.is_packed() && self.extent.file.is_named().is_ok_and(|is_named| !is_named)
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
    /// process. Bytes in memory are sent by a thread that waits for the socket, for a second at most.
    /// Others are sent by a thread that waits for the disk, until the socket takes no more.
    ///
    /// # Errors
    /// `Invalid` for a packed extent. After an error, as after [`SendEnd::Failed`], a thread that hangs
    /// may still send bytes: the caller ends the connection.
    pub async fn send_unverified(
        &self,
        socket: &Arc<OwnedFd>,
        range: Range<u64>,
    ) -> Result<SentBytes> {
        self.check(&range)?;
        if self.is_packed() {
            return Err(Error::invalid("a packed extent is sent by copies only"));
        }
        let CachedSend { bytes, end, waited } =
            self.senders.send(&self.extent, socket, range.clone()).await?;
        if let Some(end) = end {
            return Ok(SentBytes { bytes, end, waited });
        }
        let (extent, socket, from) = (self.extent.clone(), socket.clone(), range.start + bytes);
        let send = move || send_while_taken(&extent, socket.as_fd(), from..range.end);
        match self.reader.threads().run(send).await {
            Ok((more, end)) => Ok(SentBytes { bytes: bytes + more, end, waited }),
            // A call that hangs goes on once the disk answers. A further call would send its bytes too.
            Err(_) if bytes > 0 => Ok(SentBytes { bytes, end: SendEnd::Failed, waited }),
            Err(error) => Err(error),
        }
    }

    fn check(&self, range: &Range<u64>) -> Result<()> {
        if !range.is_empty() && range.end <= self.extent.length {
            return Ok(());
        }
        let OpenExtent { id, length, .. } = &*self.extent;
        Err(Error::invalid(format!("extent {id} of {length} bytes has no range {range:?}")))
    }
}

/// Sends bytes until the socket takes no more, at most [`SENT_AT_ONCE_MAX`]. Returns their number.
fn send_while_taken(
    extent: &OpenExtent,
    socket: BorrowedFd<'_>,
    range: Range<u64>,
) -> Result<(u64, SendEnd)> {
    let mut at = range.start;
    let to = range.end.min(at + SENT_AT_ONCE_MAX);
    while at < to {
        let length = usize::try_from(to - at).expect("a call sends few bytes");
        match extent.file.send(socket, extent.base + at, length) {
            Ok(Some(bytes)) => at += bytes as u64,
            Ok(None) => return Ok((at - range.start, SendEnd::Full)),
            // A further call meets the error before its first byte.
            Err(_) if at > range.start => break,
            Err(error) => return Err(error),
        }
    }
    Ok((at - range.start, SendEnd::Taken))
}
