//! A row of the `extents` table: what a store knows of an extent without asking the disk.

use martlet_protocol::extent::ExtentRecord;
use martlet_protocol::{Error, Result};
use serde::{Deserialize, Serialize};

/// Where an extent lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Place {
    /// In a file of its own.
    File,
    /// In a volume: its number, and the offset of the record's header.
    Record(u32, u64),
    /// In quarantine: its bytes are not what was written.
    Quarantined,
}

/// A row: one byte of version, then postcard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Row {
    pub(super) place: Place,
    pub(super) record: ExtentRecord,
}

const VERSION: u8 = 1;

impl Row {
    pub(super) fn encode(&self) -> Vec<u8> {
        postcard::to_extend(self, vec![VERSION]).expect("a row can be encoded")
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self> {
        let malformed = || Error::corrupt("a row of the extents table is malformed");
        let (version, rest) = bytes.split_first().ok_or_else(malformed)?;
        if *version != VERSION {
            return Err(malformed());
        }
        postcard::from_bytes(rest).map_err(|_| malformed())
    }
}
