//! Locations of the bytes of objects and parts.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::extent::ExtentRef;
use crate::id::PolicyId;

/// Location of the bytes of an object or part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Body {
    /// No bytes.
    Empty,
    /// In the index, beside the entry.
    Inline {
        /// CRC32C of the bytes.
        crc32c: u32,
    },
    /// In extents that the entry names.
    Extents(Manifest),
    /// In extents that a spilled manifest names: the manifest was too long for the entry.
    Spilled {
        /// Storage policy of both kinds of extents.
        policy: PolicyId,
        /// The extents that hold the encoded [`Manifest`], in order.
        manifest: Vec<ExtentRef>,
    },
}

/// The extents of an object, in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Storage policy of the extents.
    pub policy: PolicyId,
    /// The extents, in the order of the object's bytes.
    pub extents: Vec<ExtentRef>,
    /// Length in bytes of each part of a multipart object; else empty.
    pub parts: Vec<u64>,
    /// Raw checksum of each of these parts, by the object's algorithm; else empty.
    #[serde(skip)]
    pub part_checksums: Vec<Vec<u8>>,
}

impl Body {
    /// True if the bytes lie in extents.
    pub fn has_extents(&self) -> bool {
        matches!(self, Self::Extents(_) | Self::Spilled { .. })
    }
}

impl Manifest {
    /// Total length in bytes.
    pub fn length(&self) -> u64 {
        self.extents.iter().map(|extent| u64::from(extent.length)).sum()
    }

    /// Returns the manifest in the format of a spilled body.
    pub fn encode(&self) -> Vec<u8> {
        let bytes = postcard::to_stdvec(self).expect("a manifest in memory can be encoded");
        if self.part_checksums.is_empty() {
            return bytes;
        }
        postcard::to_extend(&self.part_checksums, bytes).expect("checksums can be encoded")
    }

    /// Decodes the bytes of [`Manifest::encode`].
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) when the bytes are not a manifest.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let corrupt =
            |error| Error::corrupt("a stored manifest can't be decoded").with_source(error);
        let (mut manifest, rest): (Self, _) = postcard::take_from_bytes(bytes).map_err(corrupt)?;
        if !rest.is_empty() {
            manifest.part_checksums = postcard::from_bytes(rest).map_err(corrupt)?;
        }
        Ok(manifest)
    }
}
