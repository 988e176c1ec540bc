//! Id types: numbers and random names.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::limits::FRAGMENTS_MAX;

/// Fills a buffer from the operating system's random source.
///
/// # Panics
/// When the operating system provides no randomness.
pub fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    #[cfg(feature = "testing")]
    if crate::testing::seeded_ids::fill(&mut bytes) {
        return bytes;
    }
    getrandom::fill(&mut bytes).expect("the operating system provides randomness");
    bytes
}

macro_rules! random_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name(pub [u8; 16]);

        impl $name {
            /// Returns a new random id, unique for all practical purposes.
            pub fn random() -> Self {
                Self(random_bytes())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&hex::encode(self.0))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }

        impl FromStr for $name {
            type Err = hex::FromHexError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let mut bytes = [0; 16];
                hex::decode_to_slice(text, &mut bytes)?;
                Ok(Self(bytes))
            }
        }
    };
}

random_id! {
    /// Bucket id, new at each creation: a bucket created again under its former name shares no
    /// state with the deleted one (rule M2).
    BucketId
}

random_id! {
    /// Permanent id of one client write, independent of its order (rule R4).
    WriteId
}

random_id! {
    /// Id of an immutable extent. Never used again.
    ExtentId
}

random_id! {
    /// Id of a multipart upload.
    UploadId
}

random_id! {
    /// Id of one formatting of a device. A wiped or replaced device has a new identity, and no
    /// votes until it has synced (rule G1).
    DeviceIdentity
}

impl BucketId {
    /// The root bucket, which holds the buckets: its keys are bucket names.
    pub const ROOT: Self = Self([0; 16]);
}

/// Bits of an extent's id that number its fragments.
const FRAGMENT_BITS: u8 = FRAGMENTS_MAX - 1;

impl ExtentId {
    /// Returns the id of fragment `number` of an extent: the last five bits are the number. The id
    /// of an extent stored as fragments has zeros there, as does fragment 0.
    #[must_use]
    pub fn fragment(mut self, number: u8) -> Self {
        self.0[15] = self.0[15] & !FRAGMENT_BITS | number & FRAGMENT_BITS;
        self
    }

    /// Returns the extent's id for a fragment's id. The [`Layout`](crate::extent::Layout)
    /// determines if an id is a fragment's.
    #[must_use]
    pub fn whole(self) -> Self {
        self.fragment(0)
    }

    /// Returns the fragment number; only meaningful for a fragment's id.
    pub fn fragment_number(self) -> u8 {
        self.0[15] & FRAGMENT_BITS
    }

    /// Position on the data ring: the first eight bytes. Ids are uniformly random, so no further
    /// hash is needed.
    pub fn placement(self) -> u64 {
        let mut first = [0; 8];
        first.copy_from_slice(&self.0[..8]);
        u64::from_be_bytes(first)
    }
}

/// Number of a device in the rings. Never used again once removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DeviceId(pub u32);

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "d{}", self.0)
    }
}

/// Number of a partition of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Partition(pub u32);

/// Number of a shard of a bucket's index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Shard(pub u16);

/// Number of a storage policy: its ring and its redundancy.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct PolicyId(pub u16);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_print_as_hex_and_parse_back() {
        let id = ExtentId::random();
        assert_eq!(id.to_string().len(), 32);
        assert_eq!(id.to_string().parse::<ExtentId>().unwrap(), id);
        assert!("xyz".parse::<ExtentId>().is_err());
    }

    #[test]
    fn fragments_share_all_but_five_bits() {
        let whole = ExtentId([0xff; 16]).whole();
        assert_eq!(whole.0[15], 0xe0);
        for number in 0..32 {
            let fragment = whole.fragment(number);
            assert_eq!(fragment.fragment_number(), number);
            assert_eq!((fragment.whole(), fragment.placement()), (whole, whole.placement()));
        }
    }

    #[test]
    fn placement_is_the_first_eight_bytes_big_endian() {
        let mut bytes = [0; 16];
        bytes[7] = 9;
        bytes[8] = 0xff;
        assert_eq!(ExtentId(bytes).placement(), 9);
    }
}
