//! A row of the `extents` table: extent metadata that needs no access to the extent.

use martlet_protocol::extent::ExtentRecord;
use martlet_protocol::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::index::RecordPlace;

/// Location of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum RowLocation {
    /// In a file of its own.
    File,
    /// In a volume: volume number, and offset of the record's header.
    Record(u32, u64),
    /// In quarantine, because its bytes are corrupt.
    Quarantined,
}

/// A row, under the extent's id:
///
/// ```text
/// 0  1  format version
/// 1     postcard of the fields below, in this order
/// ```
///
/// Postcard writes numbers as varints (7 bits a byte, lowest first), strings and lists behind their
/// length, `None` as 0, `Some` as 1 and the value, and a variant of an enum as its number:
///
/// ```text
/// place         0 file | 1 record: volume, offset of its header | 2 quarantined
/// extent id     16 bytes
/// length
/// BLAKE3        32 bytes
/// owner         bucket (16 bytes) | key | write id (16) | upload (none, or 16) | role | offset
/// birth         in milliseconds since 1970
/// layout        policy | stripe (none, or k (a byte), m (a byte), bytes of the extent)
/// ```
///
/// Rows that are older than layouts end with the birth: copies under policy 0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Row {
    pub(super) place: RowLocation,
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
        let (place, rest) = postcard::take_from_bytes(rest).map_err(|_| malformed())?;
        let record = ExtentRecord::decode(rest).map_err(|_| malformed())?;
        Ok(Self { place, record })
    }

    /// Returns the place of a record in a volume.
    pub(super) fn record_place(&self) -> Option<RecordPlace> {
        match self.place {
            RowLocation::Record(volume, offset) => Some(RecordPlace { volume, offset }),
            RowLocation::File | RowLocation::Quarantined => None,
        }
    }
}
