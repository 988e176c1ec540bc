//! A free run, in 8 bytes.

use martlet_protocol::limits::{ALIGN_BYTES, PACKED_BYTES_MAX};

use super::super::record::BlockRun;
use super::super::seal::array;

/// Blocks of the longest record, its header included. Runs of at least that length share a class.
pub(super) const CLASS_MAX: u32 = 257;

const _: () = assert!(
    CLASS_MAX as u64 == PACKED_BYTES_MAX / ALIGN_BYTES + 1,
    "the classes have to tell the lengths of all records"
);

/// Bits of the length in blocks; the two bits above it hold the backing.
const LENGTH_BITS: u32 = 30;
const LENGTH_MASK: u32 = (1 << LENGTH_BITS) - 1;

/// Blocks of the file system under a free run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Backing {
    /// All of them, with bytes of deleted records.
    Stale,
    /// All of them, preallocated and never written.
    Fresh,
    /// Some of them, or all, or none.
    Unknown,
    /// None: they were returned to the file system.
    Hole,
}

impl Backing {
    pub(super) const ALL: [Self; 4] = [Self::Stale, Self::Fresh, Self::Unknown, Self::Hole];

    /// Returns true if a write needs no space of the file system.
    pub(super) fn has_blocks(self) -> bool {
        matches!(self, Self::Stale | Self::Fresh)
    }

    /// Position in [`Backing::ALL`], also on disk.
    pub(super) fn number(self) -> u32 {
        match self {
            Self::Stale => 0,
            Self::Fresh => 1,
            Self::Unknown => 2,
            Self::Hole => 3,
        }
    }

    fn of_number(number: u32) -> Self {
        Self::ALL[(number & 3) as usize]
    }

    /// Returns the backing of two runs that become one.
    fn join(self, other: Self) -> Self {
        if self == other {
            self
        } else if self.has_blocks() && other.has_blocks() {
            Self::Stale
        } else {
            Self::Unknown
        }
    }
}

/// A free run of a volume, in blocks of 4 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct FreeRun {
    start: u32,
    /// Length and backing.
    packed: u32,
}

/// Returns the number of blocks that `bytes` need.
pub(super) fn blocks(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(ALIGN_BYTES)).expect("a volume has less than 2^30 blocks")
}

impl FreeRun {
    pub(super) fn new(run: BlockRun, backing: Backing) -> Self {
        Self::of(blocks(run.offset), blocks(run.bytes), backing)
    }

    fn of(start: u32, blocks: u32, backing: Backing) -> Self {
        debug_assert!(blocks <= LENGTH_MASK, "a volume has less than 2^30 blocks");
        Self { start, packed: blocks | (backing.number() << LENGTH_BITS) }
    }

    pub(super) fn start(self) -> u32 {
        self.start
    }

    pub(in super::super) fn blocks(self) -> u32 {
        self.packed & LENGTH_MASK
    }

    /// First block behind the run.
    pub(in super::super) fn end(self) -> u32 {
        self.start.saturating_add(self.blocks())
    }

    pub(super) fn backing(self) -> Backing {
        Backing::of_number(self.packed >> LENGTH_BITS)
    }

    pub(super) fn bytes(self) -> u64 {
        u64::from(self.blocks()) * ALIGN_BYTES
    }

    /// Returns the length in blocks, or [`CLASS_MAX`] for a longer run.
    pub(super) fn class(self) -> u32 {
        self.blocks().min(CLASS_MAX)
    }

    /// Joins a run and the run that follows it.
    pub(super) fn join(self, next: Self) -> Self {
        Self::of(self.start, self.blocks() + next.blocks(), self.backing().join(next.backing()))
    }

    /// Splits off the first `bytes`; returns them and the rest, if there is one.
    pub(super) fn split(self, bytes: u64) -> (Self, Option<Self>) {
        let (taken, backing) = (blocks(bytes), self.backing());
        let left = self.blocks() - taken;
        let rest = (left > 0).then(|| Self::of(self.start + taken, left, backing));
        (Self::of(self.start, taken, backing), rest)
    }

    pub(super) fn to_block_run(self, volume: u32) -> BlockRun {
        BlockRun { volume, offset: u64::from(self.start) * ALIGN_BYTES, bytes: self.bytes() }
    }

    /// Returns the bytes of the run in the space map on disk.
    pub(in super::super) fn encode(self) -> [u8; 8] {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&self.start.to_le_bytes());
        bytes[4..].copy_from_slice(&self.packed.to_le_bytes());
        bytes
    }

    pub(in super::super) fn decode(bytes: [u8; 8]) -> Self {
        let number = |at: usize| u32::from_le_bytes(array(&bytes[at..at + 4]));
        Self { start: number(0), packed: number(4) }
    }
}
