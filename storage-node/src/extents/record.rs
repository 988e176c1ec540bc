//! Packed extents: records in volumes.

use martlet_protocol::limits::ALIGN_BYTES;
use martlet_protocol::{Error, Result};

use super::buffer::ALIGN;
use super::seal::{Description, SECTOR, Seal, SealLocation, SealSector, SectorState, array, small};
use crate::index::{DiskPlace, RecordPlace, UsedPlace};

const MAGIC: [u8; 8] = *b"MRTLTVOL";
const VERSION: u16 = 1;
const HASHED: usize = 64;
/// Length of a record's header in bytes.
pub(super) const HEADER_BYTES: usize = ALIGN;

/// The first 4 KiB of a volume:
///
/// ```text
///   0   8  magic "MRTLTVOL"
///   8   2  format version
///  10   2  zero
///  12   4  number of the volume
///  16  32  secret: seals the headers of its records
///  48  16  zero
///  64  32  BLAKE3 of bytes 0..64
///  96      zeros up to 4096
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct VolumeHead {
    pub(super) number: u32,
    pub(super) secret: [u8; 32],
}

impl VolumeHead {
    pub(super) fn encode(&self) -> [u8; ALIGN] {
        let mut bytes = [0; ALIGN];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.number.to_le_bytes());
        bytes[16..48].copy_from_slice(&self.secret);
        let hash = blake3::hash(&bytes[..HASHED]);
        bytes[HASHED..HASHED + 32].copy_from_slice(hash.as_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let hashed = blake3::hash(&bytes[..HASHED]).as_bytes()[..] == bytes[HASHED..HASHED + 32];
        let version = u16::from_le_bytes(array(&bytes[8..10]));
        (hashed && bytes[..8] == MAGIC && version == VERSION).then(|| Self {
            number: u32::from_le_bytes(array(&bytes[12..16])),
            secret: array(&bytes[16..48]),
        })
    }
}

/// A run of a volume, in multiples of 4 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct BlockRun {
    pub(super) volume: u32,
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

impl BlockRun {
    pub(super) fn end(&self) -> u64 {
        self.offset + self.bytes
    }

    /// Offset of the record's data.
    pub(super) fn data_offset(&self) -> u64 {
        self.offset + ALIGN_BYTES
    }

    pub(super) fn spot(&self) -> SealLocation {
        SealLocation { volume: self.volume, offset: self.offset }
    }

    pub(super) fn place(&self) -> RecordPlace {
        RecordPlace { volume: self.volume, offset: self.offset }
    }

    /// Returns the disk space of a record with this run.
    pub(super) fn used_place(&self) -> UsedPlace {
        UsedPlace { at: DiskPlace::Record(self.place()), bytes: self.bytes }
    }

    /// Returns the run of a record at `spot` with `length` bytes of data.
    pub(super) fn of_record(spot: SealLocation, length: u64) -> Self {
        Self { volume: spot.volume, offset: spot.offset, bytes: record_bytes(length) }
    }
}

/// Length in a volume of a record with `length` bytes of data.
pub(super) fn record_bytes(length: u64) -> u64 {
    ALIGN_BYTES + length.next_multiple_of(ALIGN_BYTES)
}

/// Result of reading 4 KiB as a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Header {
    /// No header.
    Absent,
    /// A valid head with a wrong body: torn write or bit rot.
    Torn(SealSector),
    /// A header with bit rot.
    Rotten,
    /// The record's description; its bytes are not verified.
    Good(Description),
}

/// An encoded header of a record.
pub(super) struct RecordHeader {
    pub(super) head: SealSector,
    pub(super) body: Vec<u8>,
}

/// Encodes a record's header. `Invalid` if head and body exceed 4 KiB.
pub(super) fn prepare(description: &Description) -> Result<RecordHeader> {
    let (mut head, mut body) = description.encode();
    if body.len() > ALIGN - SECTOR {
        return Err(Error::invalid("the owner of the extent is too long"));
    }
    body.resize(ALIGN - SECTOR, 0);
    head.body_bytes = small(body.len());
    Ok(RecordHeader { head, body })
}

/// Writes a record's header, 4 KiB before its data: the head's sector, then the body.
pub(super) fn write_header(
    header: &mut [u8],
    seal: &Seal,
    spot: SealLocation,
    RecordHeader { head, body }: &RecordHeader,
) {
    header[SECTOR..].copy_from_slice(body);
    seal.write(&mut header[..SECTOR], SealSector { spot, ..*head }, body);
}

/// Reads the 4 KiB at `spot` as a header.
pub(super) fn inspect(seal: &Seal, spot: SealLocation, header: &[u8]) -> Header {
    match seal.read(&header[..SECTOR], spot) {
        SectorState::Absent => Header::Absent,
        SectorState::Rotten => Header::Rotten,
        SectorState::Good(head) => {
            seal.open(&head, &header[SECTOR..]).map_or(Header::Torn(head), Header::Good)
        }
    }
}
