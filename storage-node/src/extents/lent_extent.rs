//! An extent that is lent, and the reasons against lending one.

use std::sync::Arc;

use martlet_protocol::{DeviceId, Error, ExtentId};

use super::file_lease::FileLease;
use crate::disk::LentFiles;

/// An extent whose descriptors another process receives.
#[derive(Debug)]
pub struct LentExtent {
    /// Length of the extent in bytes. Its file has the extent's bytes from offset 0 on.
    pub length: u64,
    /// CRC32C of each block. The bytes were not compared with them.
    pub crcs: Vec<u32>,
    /// The file of the extent.
    pub files: LentFiles,
    /// True if the files can't be opened for writing, by any user.
    pub is_read_only: bool,
    /// Keeps the bytes of the extent.
    pub lease: Arc<FileLease>,
}

/// Reason for which an extent is not lent.
#[derive(Debug, thiserror::Error)]
pub enum LendError {
    /// The extent shares its file with others.
    #[error("extent {0} is packed, and its volume holds bytes of other objects")]
    Packed(ExtentId),
    /// The extent has no bytes of an object.
    #[error("extent {0} is a parity fragment")]
    Parity(ExtentId),
    /// The user could open the file for writing.
    #[error("device {device} has no read-only mount for this user: {reason}")]
    Writable {
        /// Device of the extent.
        device: DeviceId,
        /// Reason why there is no mount.
        reason: String,
    },
    /// The device doesn't lend its extents, is not open, or has no such extent.
    #[error(transparent)]
    Store(#[from] Error),
}

/// Device that lends its extents not to all users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LendingLimit {
    /// The device.
    pub device: DeviceId,
    /// Reason why it has no read-only mount.
    pub reason: String,
}
