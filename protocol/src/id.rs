//! Newtypes for everything that has a number or a random name.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::limits::FRAGMENTS_MAX;

/// Fills a buffer from the operating system's random source.
///
/// # Panics
/// When the operating system has no randomness to give: nothing safe can be done without it.
pub fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    #[cfg(feature = "testing")]
    if crate::testing::chance::fill(&mut bytes) {
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
            /// A new id that was never used before and never will be.
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
    /// A bucket's id, new at each creation: a bucket made again under the same name shares nothing
    /// with the one before (rule M2).
    BucketId
}

random_id! {
    /// Names one client write for life, whatever order it ends up at (rule R4).
    WriteId
}

random_id! {
    /// An immutable extent. Never used again.
    ExtentId
}

random_id! {
    /// A multipart upload.
    UploadId
}

random_id! {
    /// One formatting of a device. A device that was wiped or replaced comes back with another, and
    /// has no votes until it has synced (rule G1).
    DeviceIdentity
}

impl BucketId {
    /// The bucket that holds the buckets: its keys are bucket names.
    pub const ROOT: Self = Self([0; 16]);
}

/// The bits of an extent's id that number its fragments.
const FRAGMENT_BITS: u8 = FRAGMENTS_MAX - 1;

impl ExtentId {
    /// The id of fragment `number` of an extent: the same but for the last five bits. An extent that
    /// is kept as fragments has zeros there, and so has fragment 0.
    #[must_use]
    pub fn fragment(mut self, number: u8) -> Self {
        self.0[15] = self.0[15] & !FRAGMENT_BITS | number & FRAGMENT_BITS;
        self
    }

    /// The extent that this is a fragment of, if it is one: its [`Layout`](crate::extent::Layout)
    /// says whether.
    #[must_use]
    pub fn whole(self) -> Self {
        self.fragment(0)
    }

    /// Which fragment this is, if it is one.
    pub fn fragment_number(self) -> u8 {
        self.0[15] & FRAGMENT_BITS
    }

    /// Where the extent stands on the data ring. Ids are uniformly random, so their first eight
    /// bytes are already the hash that a ring needs.
    pub fn placement(self) -> u64 {
        let mut first = [0; 8];
        first.copy_from_slice(&self.0[..8]);
        u64::from_be_bytes(first)
    }
}

/// A device in the ring. Never used again once removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DeviceId(pub u32);

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "d{}", self.0)
    }
}

/// A partition of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Partition(pub u32);

/// A shard of a bucket's index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Shard(pub u16);

/// A storage policy: which ring, and how many copies or fragments.
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
