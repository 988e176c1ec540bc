//! An extent that is open for a reader outside of the cluster: its bytes, with the checksums by
//! which the reader can verify them.
//!
//! Invariants:
//! * Bytes of [`ExtentInPlace::read`] were compared with their checksums, as those of a read by a
//!   member of the cluster. A wrong block ends the read and quarantines the extent.
//! * Unverified bytes are only returned by methods that are named so.
//! * A delete doesn't change the bytes of an open extent. Their space is reused once it is dropped.

use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use martlet_protocol::limits::BLOCK_BYTES;
use martlet_protocol::{ByteStream, Error, ExtentId, Result};

use super::ExtentStore;
use super::open::OpenExtent;
use super::read::{self, ExtentReader};
use super::store::StoreState;

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
        Ok(ExtentInPlace { reader: ExtentReader::of(&self.0), extent })
    }
}

impl ExtentInPlace {
    /// Length in bytes.
    pub fn length(&self) -> u64 {
        self.extent.length
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
    /// process. Returns the number of bytes that the socket took, or none if it took none now.
    /// Waits for the disk on a thread of the device.
    pub async fn send_unverified(
        &self,
        socket: &Arc<OwnedFd>,
        range: Range<u64>,
    ) -> Result<Option<usize>> {
        self.check(&range)?;
        let (extent, socket) = (self.extent.clone(), socket.clone());
        let length = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        let send = move || extent.file.send(socket.as_fd(), extent.base + range.start, length);
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
