//! Keys of registers in the index.
//!
//! ```text
//! bucket id (16) | shard (2, big-endian) | kind (1) | name
//! ```
//!
//! Encoded keys sort in the order of the index: all names of one kind in one shard of one bucket
//! form a sorted run. An object, its uploads and their parts share the object's shard, so that one
//! index partition holds everything about a key.

use std::cmp::Ordering;
use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::id::{BucketId, Shard, UploadId, WriteId};
use crate::limits::INDEX_SHARDS_DEFAULT;
use crate::version::VersionId;

/// Kind of a register; determines its value and the format of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[repr(u8)]
pub enum RegisterKind {
    /// An object, named by its key. In the root bucket: a bucket, by its name.
    Object = 1,
    /// A multipart upload, named by key, NUL, upload id, so that uploads list in S3's order.
    Upload = 2,
    /// A part, named by upload id, part number, write id. A part that is sent again gets its own
    /// register, so that a part chosen by a Complete is never overwritten.
    Part = 3,
    /// A noncurrent version of an object. Its name is the key, NUL, and a zero for the null
    /// version, else a one, its inverted position and its write id. So the versions of a key are
    /// adjacent: the null version first, then the latest first.
    Version = 4,
    /// A document about a tenant, user or access key, in the root bucket.
    Account = 5,
}

impl RegisterKind {
    /// Kinds of registers in ordinary buckets. The root bucket alone has [`RegisterKind::Account`].
    pub const IN_BUCKETS: [Self; 4] = [Self::Object, Self::Upload, Self::Part, Self::Version];

    fn from_byte(byte: u8) -> Result<Self> {
        match byte {
            1 => Ok(Self::Object),
            2 => Ok(Self::Upload),
            3 => Ok(Self::Part),
            4 => Ok(Self::Version),
            5 => Ok(Self::Account),
            other => Err(Error::corrupt(format!("an index key names the unknown kind {other}"))),
        }
    }
}

/// Key of one register.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RegisterKey {
    /// Bucket of the register.
    pub bucket: BucketId,
    /// Shard of the bucket's index, by [`shard_of`] of the object's key.
    pub shard: Shard,
    /// Kind of the register.
    pub kind: RegisterKind,
    /// Name within the kind.
    pub name: Bytes,
}

/// Bytes after the key in the name of a numbered version: NUL, a one, position and write id.
pub(crate) const VERSION_TAIL_BYTES: usize = 2 + 8 + 16;
const NULL_VERSION: u8 = 0;
const NUMBERED_VERSION: u8 = 1;

/// Bytes of an encoded key before its name.
pub const PREFIX_BYTES: usize = 16 + 2 + 1;

/// Returns the shard of an object's key in a bucket of `shards` shards (a power of two).
///
/// # Panics
/// If `shards` is not a power of two.
pub fn shard_of(key: &[u8], shards: u16) -> Shard {
    assert!(shards.is_power_of_two(), "a bucket has a power of two of shards");
    let hash = blake3::hash(key);
    let first = u16::from_be_bytes([hash.as_bytes()[0], hash.as_bytes()[1]]);
    Shard(first & (shards - 1))
}

/// Returns the position of a bucket's shard on the index ring.
pub fn index_placement(bucket: BucketId, shard: Shard) -> u64 {
    let mut input = [0; 18];
    input[..16].copy_from_slice(&bucket.0);
    input[16..].copy_from_slice(&shard.0.to_be_bytes());
    let hash = blake3::hash(&input);
    let mut first = [0; 8];
    first.copy_from_slice(&hash.as_bytes()[..8]);
    u64::from_be_bytes(first)
}

impl RegisterKey {
    /// Key of an object's register.
    pub fn object(bucket: BucketId, shards: u16, key: &str) -> Self {
        Self {
            bucket,
            shard: shard_of(key.as_bytes(), shards),
            kind: RegisterKind::Object,
            name: Bytes::copy_from_slice(key.as_bytes()),
        }
    }

    /// Key of the register of a document about a tenant, user or access key.
    pub fn account(name: &str) -> Self {
        let kind = RegisterKind::Account;
        Self { kind, ..Self::object(BucketId::ROOT, INDEX_SHARDS_DEFAULT, name) }
    }

    /// Key of the register of an upload of `key`.
    pub fn upload(bucket: BucketId, shards: u16, key: &str, upload: UploadId) -> Self {
        let mut name = BytesMut::with_capacity(key.len() + 17);
        name.put_slice(key.as_bytes());
        name.put_u8(0);
        name.put_slice(&upload.0);
        Self {
            bucket,
            shard: shard_of(key.as_bytes(), shards),
            kind: RegisterKind::Upload,
            name: name.freeze(),
        }
    }

    /// Splits the name of an upload's register into the object's key and the upload id.
    pub fn upload_of(name: &[u8]) -> Option<(&[u8], UploadId)> {
        let (rest, id) = name.split_last_chunk::<16>()?;
        let (&0, key) = rest.split_last()? else { return None };
        Some((key, UploadId(*id)))
    }

    /// Key of the register of one write of part `number`, in the shard of `beside`, its upload's
    /// register.
    pub fn part(beside: &Self, upload: UploadId, number: u16, write_id: WriteId) -> Self {
        let mut name = BytesMut::with_capacity(34);
        name.put_slice(&upload.0);
        name.put_u16(number);
        name.put_slice(&write_id.0);
        Self {
            bucket: beside.bucket,
            shard: beside.shard,
            kind: RegisterKind::Part,
            name: name.freeze(),
        }
    }

    /// Key of the register of a noncurrent version; `beside` is the object's register.
    pub fn version(beside: &Self, version: VersionId) -> Self {
        let mut name = BytesMut::with_capacity(beside.name.len() + VERSION_TAIL_BYTES);
        name.put_slice(&beside.name);
        name.put_u8(0);
        match version {
            VersionId::Null => name.put_u8(NULL_VERSION),
            VersionId::Numbered { position, write_id } => {
                name.put_u8(NUMBERED_VERSION);
                name.put_u64(!position);
                name.put_slice(&write_id.0);
            }
        }
        Self {
            bucket: beside.bucket,
            shard: beside.shard,
            kind: RegisterKind::Version,
            name: name.freeze(),
        }
    }

    /// Splits the name of a version's register into the object's key and the version.
    pub fn version_of(name: &[u8]) -> Option<(&[u8], VersionId)> {
        let end = name.iter().position(|byte| *byte == 0)?;
        let (key, tail) = (&name[..end], &name[end + 1..]);
        match tail.split_first()? {
            (&NULL_VERSION, []) => Some((key, VersionId::Null)),
            (&NUMBERED_VERSION, id) if id.len() == VERSION_TAIL_BYTES - 2 => {
                let (mut position, mut write_id) = ([0; 8], [0; 16]);
                position.copy_from_slice(&id[..8]);
                write_id.copy_from_slice(&id[8..]);
                let position = !u64::from_be_bytes(position);
                let write_id = WriteId(write_id);
                Some((key, VersionId::Numbered { position, write_id }))
            }
            _ => None,
        }
    }

    /// Returns the part number in the name of a part's register.
    pub fn part_number(name: &[u8]) -> Option<u16> {
        let number = name.get(16..18)?;
        Some(u16::from_be_bytes([number[0], number[1]]))
    }

    /// Returns the encoded prefix of one kind in one shard of one bucket.
    pub fn prefix(bucket: BucketId, shard: Shard, kind: RegisterKind) -> [u8; PREFIX_BYTES] {
        let mut prefix = [0; PREFIX_BYTES];
        prefix[..16].copy_from_slice(&bucket.0);
        prefix[16..18].copy_from_slice(&shard.0.to_be_bytes());
        prefix[18] = kind as u8;
        prefix
    }

    /// Returns the key in the index's format.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(PREFIX_BYTES + self.name.len());
        bytes.extend_from_slice(&Self::prefix(self.bucket, self.shard, self.kind));
        bytes.extend_from_slice(&self.name);
        bytes
    }

    /// Decodes the bytes of [`RegisterKey::encode`].
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) when the bytes are not an index key.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let (prefix, name) = bytes
            .split_at_checked(PREFIX_BYTES)
            .ok_or_else(|| Error::corrupt("an index key is too short"))?;
        let mut bucket = [0; 16];
        bucket.copy_from_slice(&prefix[..16]);
        Ok(Self {
            bucket: BucketId(bucket),
            shard: Shard(u16::from_be_bytes([prefix[16], prefix[17]])),
            kind: RegisterKind::from_byte(prefix[18])?,
            name: Bytes::copy_from_slice(name),
        })
    }

    /// Returns the kind of an encoded key.
    ///
    /// # Errors
    /// As [`RegisterKey::decode`].
    pub fn kind_of(bytes: &[u8]) -> Result<RegisterKind> {
        let byte = bytes.get(PREFIX_BYTES - 1);
        byte.map_or_else(
            || Err(Error::corrupt("an index key is too short")),
            |byte| RegisterKind::from_byte(*byte),
        )
    }

    /// Position on the index ring.
    pub fn placement(&self) -> u64 {
        index_placement(self.bucket, self.shard)
    }
}

impl PartialOrd for RegisterKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for RegisterKey {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.bucket, self.shard, self.kind, &self.name).cmp(&(
            other.bucket,
            other.shard,
            other.kind,
            &other.name,
        ))
    }
}

impl fmt::Debug for RegisterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}({}/{}/{})", self.kind, self.bucket, self.shard.0, self.name.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_key() -> impl Strategy<Value = RegisterKey> {
        let kind = prop_oneof![
            Just(RegisterKind::Object),
            Just(RegisterKind::Upload),
            Just(RegisterKind::Part),
            Just(RegisterKind::Version),
            Just(RegisterKind::Account)
        ];
        let name = proptest::collection::vec(any::<u8>(), 0..40);
        (any::<[u8; 16]>(), any::<u16>(), kind, name).prop_map(|(bucket, shard, kind, name)| {
            RegisterKey {
                bucket: BucketId(bucket),
                shard: Shard(shard),
                kind,
                name: Bytes::from(name),
            }
        })
    }

    #[test]
    fn ordinary_buckets_have_registers_of_all_kinds_but_accounts() {
        let known = (0..=u8::MAX).filter_map(|byte| RegisterKind::from_byte(byte).ok());
        let others: Vec<_> =
            known.filter(|kind| !RegisterKind::IN_BUCKETS.contains(kind)).collect();
        assert_eq!(others, [RegisterKind::Account]);
    }

    proptest! {
        #[test]
        fn keys_decode_to_what_was_encoded(key in any_key()) {
            prop_assert_eq!(RegisterKey::kind_of(&key.encode()).unwrap(), key.kind);
            prop_assert_eq!(RegisterKey::decode(&key.encode()).unwrap(), key);
        }

        #[test]
        fn encoded_bytes_sort_as_keys_do(a in any_key(), b in any_key()) {
            prop_assert_eq!(a.encode().cmp(&b.encode()), a.cmp(&b));
        }

        #[test]
        fn shards_stay_below_their_count(key in any::<Vec<u8>>(), power in 0u32..13) {
            prop_assert!(shard_of(&key, 1 << power).0 < 1 << power);
        }
    }

    #[test]
    fn everything_about_a_key_shares_its_shard() {
        let bucket = BucketId::random();
        let upload = UploadId::random();
        let object = RegisterKey::object(bucket, 16, "a/b");
        let upload_key = RegisterKey::upload(bucket, 16, "a/b", upload);
        assert_eq!(object.shard, upload_key.shard);
        assert_eq!(RegisterKey::upload_of(&upload_key.name), Some((&b"a/b"[..], upload)));
        assert_eq!(RegisterKey::upload_of(&object.name), None);
        assert_eq!(RegisterKey::upload_of(&[1; 17]), None);
        let part = RegisterKey::part(&upload_key, upload, 7, WriteId::random());
        assert_eq!(object.shard, part.shard);
        assert_eq!(RegisterKey::part_number(&part.name), Some(7));
    }

    #[test]
    fn versions_of_a_key_lie_together_and_the_latest_first() {
        let at = |key, version| {
            let object = RegisterKey::object(BucketId([1; 16]), 1, key);
            RegisterKey::version(&object, version)
        };
        let numbered = |position| VersionId::Numbered { position, write_id: WriteId([7; 16]) };
        let in_order = [
            at("a", VersionId::Null),
            at("a", numbered(u64::MAX)),
            at("a", numbered(7)),
            at("a", numbered(0)),
            at("a\u{1}", numbered(9)),
            at("ab", VersionId::Null),
        ];
        assert!(in_order.is_sorted());
        assert_eq!(in_order[0].shard, RegisterKey::object(BucketId([1; 16]), 1, "a").shard);
        for (register, key) in in_order.iter().zip(["a", "a", "a", "a", "a\u{1}", "ab"]) {
            let (of, version) = RegisterKey::version_of(&register.name).unwrap();
            assert_eq!(of, key.as_bytes());
            assert_eq!(at(key, version), *register);
        }
        for name in [&b"a"[..], b"a\0", b"a\0\x01short", b"a\0\x02"] {
            assert_eq!(RegisterKey::version_of(name), None, "{name:?}");
        }
    }

    #[test]
    fn short_and_unknown_keys_are_corrupt() {
        assert!(RegisterKey::decode(&[0; 5]).is_err());
        assert!(RegisterKey::decode(&[0; 19]).is_err());
        assert!(RegisterKey::kind_of(&[0; 5]).is_err());
        assert!(RegisterKey::kind_of(&[0; 19]).is_err());
    }

    #[test]
    fn placement_is_pinned() {
        // Golden value: a change would lose every bucket's entries.
        assert_eq!(index_placement(BucketId::ROOT, Shard(3)), 0x8293_b941_6b2c_738c);
        assert_eq!(shard_of(b"hello", 16), Shard(15));
    }
}
