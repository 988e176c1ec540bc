//! A row of the `extents` table: extent metadata that needs no access to the extent.

use martlet_protocol::extent::{ExtentRecord, ExtentRef, ExtentRole, Layout};
use martlet_protocol::{BucketId, Error, Result, UploadId, WriteId};
use serde::{Deserialize, Serialize};

use super::record::BlockRun;
use super::seal::SealLocation;
use crate::index::{DiskPlace, PlacedRow, UsedPlace};

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

/// Fields that a walk over all rows needs, decoded without an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RowHead {
    pub(super) place: RowLocation,
    pub(super) extent: ExtentRef,
    pub(super) layout: Layout,
}

/// Owner and birth of a row, borrowed.
type PassedOver<'a> = ((BucketId, &'a str, WriteId, Option<UploadId>, ExtentRole, u64), u64);

const VERSION: u8 = 1;

fn malformed() -> Error {
    Error::corrupt("a row of the extents table is malformed")
}

/// Returns the fields of an encoded row.
fn fields(row: &[u8]) -> Result<&[u8]> {
    match row.split_first() {
        Some((&VERSION, fields)) => Ok(fields),
        _ => Err(malformed()),
    }
}

impl RowHead {
    /// Decodes the fields. The bytes of the owner are passed over.
    pub(super) fn decode(row: &[u8]) -> Result<Self> {
        let head = postcard::take_from_bytes(fields(row)?).map_err(|_| malformed())?;
        let ((place, extent, _), rest): ((_, _, PassedOver<'_>), &[u8]) = head;
        let layout = match rest {
            [] => Layout::default(),
            rest => postcard::from_bytes(rest).map_err(|_| malformed())?,
        };
        Ok(Self { place, extent, layout })
    }
}

impl Row {
    pub(super) fn encode(&self) -> Vec<u8> {
        postcard::to_extend(self, vec![VERSION]).expect("a row can be encoded")
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self> {
        let (place, rest) = postcard::take_from_bytes(fields(bytes)?).map_err(|_| malformed())?;
        let record = ExtentRecord::decode(rest).map_err(|_| malformed())?;
        Ok(Self { place, record })
    }

    /// Returns the encoded row, with the disk space that the extent uses.
    pub(super) fn placed(&self) -> PlacedRow {
        PlacedRow { id: self.record.extent.id, row: self.encode(), place: self.used_place() }
    }

    /// Returns the disk space that the extent uses.
    pub(super) fn used_place(&self) -> Option<UsedPlace> {
        self.place.used_by(self.record.extent)
    }
}

/// Returns the places of rows.
pub(super) fn places(rows: &[Row]) -> Vec<DiskPlace> {
    rows.iter().filter_map(|row| Some(row.used_place()?.at)).collect()
}

impl RowLocation {
    /// Returns the disk space that an extent with this location uses; none in quarantine.
    pub(super) fn used_by(self, extent: ExtentRef) -> Option<UsedPlace> {
        match self {
            Self::Record(volume, offset) => {
                let spot = SealLocation { volume, offset };
                Some(BlockRun::of_record(spot, u64::from(extent.length)).used_place())
            }
            Self::File => {
                let bytes = extent.length.into();
                Some(UsedPlace { at: DiskPlace::File(extent.id), bytes })
            }
            Self::Quarantined => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use martlet_protocol::extent::{Owner, Stripe};
    use martlet_protocol::{ExtentId, PolicyId};

    use super::*;

    #[test]
    fn the_head_of_a_row_is_that_of_the_whole_row() {
        let owner = Owner {
            bucket: BucketId([5; 16]),
            key: "a key".to_owned(),
            write_id: WriteId([6; 16]),
            upload: None,
            role: ExtentRole::Data,
            offset: 300,
        };
        let places =
            [RowLocation::File, RowLocation::Record(3725, 4 << 30), RowLocation::Quarantined];
        let stripes = [None, Some(Stripe { k: 4, m: 2, length: 1 << 20 }), None];
        let lengths = [1, 300_000, u32::MAX];
        for ((place, length), stripe) in places.into_iter().zip(lengths).zip(stripes) {
            let extent = ExtentRef { id: ExtentId([9; 16]), length, blake3: [7; 32] };
            let (owner, layout) = (owner.clone(), Layout { policy: PolicyId(2), stripe });
            let row = Row { place, record: ExtentRecord { extent, owner, birth_ms: 9, layout } };
            let encoded = row.encode();
            assert_eq!(RowHead::decode(&encoded).unwrap(), RowHead { place, extent, layout });
            let old = [
                &[VERSION][..],
                &postcard::to_stdvec(&(place, extent, &row.record.owner, 9_u64)).unwrap(),
            ]
            .concat();
            let layout = Layout::default();
            assert_eq!(RowHead::decode(&old).unwrap(), RowHead { place, extent, layout });
            assert_eq!(Row::decode(&encoded).unwrap(), row);
            assert!(RowHead::decode(&encoded[..20]).is_err() && RowHead::decode(&[]).is_err());
            assert!(RowHead::decode(&[&[VERSION + 1], &encoded[1..]].concat()).is_err());
        }
    }
}
