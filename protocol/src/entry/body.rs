//! Where the bytes of objects and parts are.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::extent::ExtentRef;
use crate::id::PolicyId;

/// Where the bytes of an object or part are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Body {
    /// There are none.
    Empty,
    /// In the index, beside the entry.
    Inline {
        /// CRC32C of the bytes.
        crc32c: u32,
    },
    /// In extents.
    Extents(Manifest),
    /// In extents that a manifest names which was too long for the entry.
    Spilled {
        /// The policy that both kinds of extents live under.
        policy: PolicyId,
        /// The extents that hold the encoded [`Manifest`], in order.
        manifest: Vec<ExtentRef>,
    },
}

/// The extents of an object, in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The policy they live under.
    pub policy: PolicyId,
    /// The extents, in the order of the object's bytes.
    pub extents: Vec<ExtentRef>,
    /// The length in bytes of each part that a multipart object was completed from; else empty.
    pub parts: Vec<u64>,
    /// The raw checksum of each of those parts, by the algorithm of the object's; else empty.
    #[serde(skip)]
    pub part_checksums: Vec<Vec<u8>>,
}

impl Body {
    /// Whether any of it lies in extents.
    pub fn has_extents(&self) -> bool {
        matches!(self, Self::Extents(_) | Self::Spilled { .. })
    }
}

impl Manifest {
    /// The bytes of the whole.
    pub fn length(&self) -> u64 {
        self.extents.iter().map(|extent| u64::from(extent.length)).sum()
    }

    /// The manifest as a spilled body stores it.
    pub fn encode(&self) -> Vec<u8> {
        let bytes = postcard::to_stdvec(self).expect("a manifest in memory can be encoded");
        if self.part_checksums.is_empty() {
            return bytes;
        }
        postcard::to_extend(&self.part_checksums, bytes).expect("checksums can be encoded")
    }

    /// The inverse of [`Manifest::encode`].
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) when the bytes are no manifest.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let corrupt =
            |error| Error::corrupt("a stored manifest does not decode").with_source(error);
        let (mut manifest, rest): (Self, _) = postcard::take_from_bytes(bytes).map_err(corrupt)?;
        if !rest.is_empty() {
            manifest.part_checksums = postcard::from_bytes(rest).map_err(corrupt)?;
        }
        Ok(manifest)
    }
}
