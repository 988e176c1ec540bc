//! Places of an object's bytes for clients that read them in place, without a proxy.

use std::ops::Range;
use std::sync::Arc;

use martlet_protocol::entry::Object;
use martlet_protocol::extent::ExtentRef;
use martlet_protocol::{DataPort, DeviceId, ExtentId, Stamp};

/// Most extents in one reply.
pub const LOCATED_EXTENTS_MAX: usize = 1000;
/// Most pieces in one reply: it bounds the reply for objects with many fragments an extent.
pub const LOCATED_PIECES_MAX: usize = 4000;

/// An object, and the places of a selection of its bytes.
#[derive(Clone, Debug)]
pub struct Located {
    /// The object.
    pub object: Arc<Object>,
    /// Order of the object's entry.
    pub stamp: Stamp,
    /// The extents under the selection, or the reason why the object can't be read in place.
    pub extents: Result<LocatedExtents, NotDirect>,
}

/// Reason why an object can't be read in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotDirect {
    /// Its bytes lie in the index.
    Inline,
    /// Its bytes are encrypted.
    Encrypted,
}

/// A page of extents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LocatedExtents {
    /// Extents in the order of the object.
    pub extents: Vec<LocatedExtent>,
    /// First byte of the selection that the page doesn't describe; none at the end.
    pub next: Option<u64>,
}

/// An extent under the selection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocatedExtent {
    /// Id, length and hash of the whole extent.
    pub extent: ExtentRef,
    /// Offset of its first byte in the object.
    pub offset: u64,
    /// Erasure code of the extent; none for copies.
    pub code: Option<LocatedCode>,
    /// Its pieces under the selection.
    pub pieces: Vec<LocatedPiece>,
}

/// Erasure code of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocatedCode {
    /// Number of data fragments.
    pub k: u8,
    /// Number of parity fragments.
    pub m: u8,
    /// Distance between the first bytes of two data fragments.
    pub fragment_bytes: u64,
}

/// A piece of an extent as devices store it: a copy of the extent, or a data fragment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocatedPiece {
    /// Number of the fragment; 0 for a copy.
    pub number: u8,
    /// Id of the piece on its devices.
    pub id: ExtentId,
    /// Offset of its first byte in the extent.
    pub from: u64,
    /// Length in bytes.
    pub length: u64,
    /// Bytes of the piece under the selection.
    pub selected: Range<u64>,
    /// Devices that hold the piece, the preferred one first. Empty if none was found.
    pub holders: Vec<PieceHolder>,
}

/// A device that holds a piece, behind a data port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PieceHolder {
    /// The device.
    pub device: DeviceId,
    /// Data port of its node.
    pub port: DataPort,
}
