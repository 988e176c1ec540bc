//! Description of an extent on disk: a file's footer or a record's header.
//!
//! Both have two parts. The *head* fits in one 512-byte sector, which a disk writes whole or not at
//! all. The *body* holds everything else, and the head contains its hash. So a damaged head is bit
//! rot. A valid head with a wrong body may also be a write that never ended.

use martlet_protocol::ExtentId;
use martlet_protocol::extent::{ExtentRecord, ExtentRef};

use super::blocks::BlockHasher;

/// Unit in bytes that a disk writes whole or not at all.
pub(super) const SECTOR: usize = 512;
/// Format version that this code writes.
const VERSION: u16 = 1;
const HASHED: usize = 96;

/// Hash key and magic of a file or volume. They make its heads differ from any bytes that a client
/// can send.
#[derive(Clone, Debug)]
pub(super) struct Seal {
    key: [u8; 32],
    magic: [u8; 8],
}

/// Description of an extent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Description {
    /// Id, length, hash, owner, birth.
    pub(super) record: ExtentRecord,
    /// CRC32C of each block.
    pub(super) crcs: Vec<u32>,
}

/// Location of a head: volume and offset of a record's header; zeros for a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SealLocation {
    pub(super) volume: u32,
    pub(super) offset: u64,
}

/// The first sector of a record's header, or the last one of a file:
///
/// ```text
///   0   8  magic
///   8   2  format version, little-endian as all numbers here
///  10   2  zero
///  12   4  volume               (a file: 0)
///  16   8  offset of the header (a file: 0)
///  24   4  length of the extent
///  28   4  bytes of the body
///  32   4  number of block checksums
///  36   4  bytes of the postcard of the ExtentRecord
///  40  16  id
///  56  32  keyed BLAKE3 of the body
///  88   8  zero
///  96  32  keyed BLAKE3 of bytes 0..96
/// 128      zeros up to 512
/// ```
///
/// The body is the block checksums (CRC32C, 4 bytes each), the postcard, and zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SealSector {
    pub(super) spot: SealLocation,
    pub(super) length: u32,
    pub(super) body_bytes: u32,
    pub(super) crcs: u32,
    pub(super) record_bytes: u32,
    pub(super) id: ExtentId,
    pub(super) body_hash: [u8; 32],
}

/// Result of reading a sector as a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SectorState {
    /// No head: the magic is missing.
    Absent,
    /// Begins with the magic and is no valid head.
    Rotten,
    /// A valid head for this location.
    Good(SealSector),
}

impl Seal {
    /// Seal of files' footers. They are found by the file's name and length, so the key needs no
    /// secret.
    pub(super) fn file() -> Self {
        Self {
            key: blake3::derive_key("martlet 2026 extent file footer", b""),
            magic: *b"MRTLTEXT",
        }
    }

    /// Seal of a volume's headers. Clients choose the bytes of deleted records. The secret prevents
    /// a scan of the volume from accepting such bytes as headers.
    pub(super) fn volume(secret: &[u8; 32]) -> Self {
        let key = blake3::derive_key("martlet 2026 volume record header", secret);
        let mut magic = [0; 8];
        magic.copy_from_slice(&blake3::keyed_hash(&key, b"magic").as_bytes()[..8]);
        Self { key, magic }
    }

    fn hash(&self, bytes: &[u8]) -> [u8; 32] {
        *blake3::keyed_hash(&self.key, bytes).as_bytes()
    }

    /// Writes `head` into a sector, with the hash of `body`.
    pub(super) fn write(&self, sector: &mut [u8], mut head: SealSector, body: &[u8]) {
        head.body_hash = self.hash(body);
        sector.fill(0);
        sector[..8].copy_from_slice(&self.magic);
        sector[8..10].copy_from_slice(&VERSION.to_le_bytes());
        sector[12..16].copy_from_slice(&head.spot.volume.to_le_bytes());
        sector[16..24].copy_from_slice(&head.spot.offset.to_le_bytes());
        sector[24..28].copy_from_slice(&head.length.to_le_bytes());
        sector[28..32].copy_from_slice(&head.body_bytes.to_le_bytes());
        sector[32..36].copy_from_slice(&head.crcs.to_le_bytes());
        sector[36..40].copy_from_slice(&head.record_bytes.to_le_bytes());
        sector[40..56].copy_from_slice(&head.id.0);
        sector[56..88].copy_from_slice(&head.body_hash);
        let seal = self.hash(&sector[..HASHED]);
        sector[HASHED..HASHED + 32].copy_from_slice(&seal);
    }

    /// Reads the sector at `spot` as a head.
    pub(super) fn read(&self, sector: &[u8], spot: SealLocation) -> SectorState {
        if sector[..8] != self.magic {
            return SectorState::Absent;
        }
        let sealed = self.hash(&sector[..HASHED])[..] == sector[HASHED..HASHED + 32];
        let number = |at: usize| u32::from_le_bytes(array(&sector[at..at + 4]));
        let offset = u64::from_le_bytes(array(&sector[16..24]));
        let found = SealLocation { volume: number(12), offset };
        let version = u16::from_le_bytes(array(&sector[8..10]));
        if !sealed || found != spot || version != VERSION {
            return SectorState::Rotten;
        }
        SectorState::Good(SealSector {
            spot,
            length: number(24),
            body_bytes: number(28),
            crcs: number(32),
            record_bytes: number(36),
            id: ExtentId(array(&sector[40..56])),
            body_hash: array(&sector[56..88]),
        })
    }

    /// Returns the description in `body`, if `head` contains the hash of `body`.
    pub(super) fn open(&self, head: &SealSector, body: &[u8]) -> Option<Description> {
        if self.hash(body) != head.body_hash {
            return None;
        }
        let (crcs, rest) = body.split_at_checked(head.crcs as usize * 4)?;
        let crcs = crcs.chunks_exact(4).map(|crc| u32::from_le_bytes(array(crc))).collect();
        let record = ExtentRecord::decode(rest.get(..head.record_bytes as usize)?).ok()?;
        let same = record.extent.id == head.id && record.extent.length == head.length;
        same.then_some(Description { record, crcs })
    }
}

impl Description {
    /// Completes an extent's record with its length and hashes, after its last byte.
    ///
    /// # Errors
    /// Those of [`BlockHasher::finish`].
    pub(super) fn complete(
        facts: ExtentRecord,
        length: u64,
        hasher: &mut BlockHasher,
    ) -> martlet_protocol::Result<Self> {
        let length = u32::try_from(length).expect("the gatherer bounds an extent's length");
        let (blake3, crcs) = hasher.finish()?;
        let extent = ExtentRef { length, blake3, ..facts.extent };
        Ok(Self { record: ExtentRecord { extent, ..facts }, crcs })
    }

    /// Returns the matching head and the bytes of the body, unpadded.
    pub(super) fn encode(&self) -> (SealSector, Vec<u8>) {
        let mut body = Vec::with_capacity(self.crcs.len() * 4 + 1536);
        for crc in &self.crcs {
            body.extend_from_slice(&crc.to_le_bytes());
        }
        let crc_bytes = body.len();
        let body = postcard::to_extend(&self.record, body).expect("a record can be encoded");
        let head = SealSector {
            spot: SealLocation::default(),
            length: self.record.extent.length,
            body_bytes: 0,
            crcs: small(self.crcs.len()),
            record_bytes: small(body.len() - crc_bytes),
            id: self.record.extent.id,
            body_hash: [0; 32],
        };
        (head, body)
    }
}

/// Converts a count within an extent to its stored type.
pub(super) fn small(count: usize) -> u32 {
    u32::try_from(count).expect("counts within an extent are below 2^32")
}

pub(super) fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.try_into().expect("the slice was cut to this length")
}
