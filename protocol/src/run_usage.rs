//! Usage of a run: of the registers of one shard of a bucket, as each device keeps it.
//!
//! A device adds and subtracts what its registers hold, in the batch that changes them. So usage
//! costs no walk over registers. [`RunUsage::of`] defines what a register contributes.
//!
//! A version that moved from beside a head into the head leaves its copy beside. The head is right,
//! so a register beside it whose version is the head's doesn't count.

use std::ops::{AddAssign, Neg, SubAssign};

use serde::{Deserialize, Serialize};

use crate::entry::{Entry, EntryFacts, UploadState, Value, ValueKind};
use crate::error::{Error, Result};
use crate::id::{BucketId, Shard};
use crate::key::{RegisterKey, RegisterKind, VERSION_TAIL_BYTES};
use crate::usage::{ENTRY_BYTES, Usage};
use crate::version::VersionId;

/// Bytes of an encoded usage at most: eight numbers of ten bytes.
const BYTES_MAX: usize = 80;

/// A run: one shard of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Run {
    /// The bucket.
    pub bucket: BucketId,
    /// The shard.
    pub shard: Shard,
}

/// Usage of a run, or the change of one. Numbers wrap.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct RunUsage {
    /// Number of current objects.
    pub objects: i64,
    /// Number of noncurrent objects.
    pub versions: i64,
    /// Number of delete markers, current or not.
    pub markers: i64,
    /// Number of uploads that have not ended.
    pub uploads: i64,
    /// Number of parts, those of ended uploads included until they are freed.
    pub parts: i64,
    /// Bytes of current and noncurrent objects.
    pub bytes: i64,
    /// Bytes of the parts.
    pub part_bytes: i64,
    /// Bytes of the index, as in [`Usage::index`].
    pub index: i64,
}

impl RunUsage {
    /// Returns the contribution of a register that holds this encoded entry, empty for none. Most
    /// entries are not decoded.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) when the bytes are not an entry.
    pub fn of(kind: RegisterKind, name_bytes: usize, entry: &[u8]) -> Result<Self> {
        let mut usage = Self::default();
        if entry.is_empty() {
            return Ok(usage);
        }
        let EntryFacts { kind: value, size, value_bytes } = Entry::facts(entry)?;
        let size = i64::try_from(size).unwrap_or(i64::MAX);
        match value {
            ValueKind::Tombstone => return Ok(usage),
            ValueKind::Object if kind == RegisterKind::Version => {
                (usage.versions, usage.bytes) = (1, size);
            }
            ValueKind::Object => (usage.objects, usage.bytes) = (1, size),
            ValueKind::DeleteMarker => usage.markers = 1,
            ValueKind::Part => (usage.parts, usage.part_bytes) = (1, size),
            ValueKind::Upload if has_ended(entry)? => return Ok(usage),
            ValueKind::Upload => usage.uploads = 1,
            ValueKind::Bucket | ValueKind::Account => {}
        }
        // A delete marker counts its key alone, as in `Usage::of_marker`.
        let value_bytes = if value == ValueKind::DeleteMarker { 0 } else { value_bytes };
        let bytes = key_bytes(kind, name_bytes).saturating_add(value_bytes) as u64;
        usage.index = i64::try_from(ENTRY_BYTES.saturating_add(bytes)).unwrap_or(i64::MAX);
        Ok(usage)
    }

    /// Returns the bytes of a row.
    pub fn encode(&self) -> Vec<u8> {
        let row = Vec::with_capacity(BYTES_MAX);
        postcard::to_extend(self, row).expect("numbers in memory can be encoded")
    }

    /// Decodes the bytes of [`RunUsage::encode`].
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) when the bytes are not a usage.
    pub fn decode(row: &[u8]) -> Result<Self> {
        let malformed = || Error::corrupt("a row of usage is malformed");
        match postcard::take_from_bytes(row) {
            Ok((usage, [])) => Ok(usage),
            Ok(_) => Err(malformed()),
            Err(error) => Err(malformed().with_source(error)),
        }
    }

    /// Returns the usage for quotas and operators. Parts count while uploads are open: parts of
    /// ended uploads are freed within a short time, and a completed object has their bytes.
    pub fn totals(&self) -> Usage {
        let number = |number: i64| u64::try_from(number).unwrap_or(0);
        let parts = if self.uploads > 0 { number(self.part_bytes) } else { 0 };
        Usage {
            bytes: number(self.bytes).saturating_add(parts),
            objects: number(self.objects).saturating_add(number(self.versions)),
            index: number(self.index),
        }
    }
}

/// Bytes of the object's key in a register's name; 24 too few for a null version beside a head.
fn key_bytes(kind: RegisterKind, name_bytes: usize) -> usize {
    match kind {
        RegisterKind::Object | RegisterKind::Account => name_bytes,
        RegisterKind::Version => name_bytes.saturating_sub(VERSION_TAIL_BYTES),
        // The value of an upload has the key, and parts are named by their upload.
        RegisterKind::Upload | RegisterKind::Part => 0,
    }
}

fn has_ended(entry: &[u8]) -> Result<bool> {
    Ok(match Entry::decode(entry)?.value {
        Value::Upload(upload) => {
            !matches!(upload.state, UploadState::Open | UploadState::Completing { .. })
        }
        _ => false,
    })
}

/// Returns the version that an encoded entry holds, empty for no entry.
///
/// # Errors
/// As [`RunUsage::of`].
pub fn version_in(entry: &[u8]) -> Result<Option<VersionId>> {
    if entry.is_empty() {
        return Ok(None);
    }
    let version = Entry::decode_summary(entry)?.value.version();
    Ok(version.map(crate::version::Version::name))
}

/// Returns the head's register and the version of a register beside a head; none for registers of
/// other kinds.
pub fn head_of(key: &RegisterKey) -> Option<(RegisterKey, VersionId)> {
    if key.kind != RegisterKind::Version {
        return None;
    }
    let (name, version) = RegisterKey::version_of(&key.name)?;
    let head = RegisterKey {
        kind: RegisterKind::Object,
        name: bytes::Bytes::copy_from_slice(name),
        ..key.clone()
    };
    Some((head, version))
}

macro_rules! each_field {
    ($($field:ident),*) => {
        impl AddAssign for RunUsage {
            fn add_assign(&mut self, other: Self) {
                $(self.$field = self.$field.wrapping_add(other.$field);)*
            }
        }

        impl SubAssign for RunUsage {
            fn sub_assign(&mut self, other: Self) {
                $(self.$field = self.$field.wrapping_sub(other.$field);)*
            }
        }

        impl Neg for RunUsage {
            type Output = Self;

            fn neg(self) -> Self {
                Self { $($field: self.$field.wrapping_neg(),)* }
            }
        }
    };
}

each_field!(objects, versions, markers, uploads, parts, bytes, part_bytes, index);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::entry::{Attributes, Body, DeleteMarker, ETag, Object, Part, Upload};
    use crate::id::{PolicyId, UploadId, WriteId};
    use crate::stamp::Stamp;
    use crate::version::Version;

    fn encoded(value: Value) -> Vec<u8> {
        Entry { order: Stamp::at_ms(7), write_id: WriteId([3; 16]), value }.encode()
    }

    fn object(size: u64, version: Option<Version>) -> Value {
        Value::Object(Box::new(Object {
            size,
            etag: ETag::Md5([9; 16]),
            modified_ms: 5,
            attributes: Attributes::default(),
            checksums: Vec::new(),
            upload: None,
            body: Body::Inline { crc32c: 4 },
            version,
        }))
    }

    fn upload(state: UploadState) -> Value {
        Value::Upload(Box::new(Upload {
            key: "k".into(),
            id: UploadId([2; 16]),
            initiated_ms: 1,
            policy: PolicyId(1),
            attributes: Attributes::default(),
            checksum: None,
            state,
        }))
    }

    fn of(kind: RegisterKind, value: Value) -> RunUsage {
        RunUsage::of(kind, 40, &encoded(value)).unwrap()
    }

    #[test]
    fn registers_count_by_what_they_hold() {
        let part = Part {
            size: 70,
            tag: [1; 16],
            modified_ms: 2,
            checksums: Vec::new(),
            body: Body::Empty,
        };
        let marker =
            || Value::DeleteMarker(Box::new(DeleteMarker { modified_ms: 4, version: None }));
        let nothing = RunUsage::default();
        let without_index = |usage: RunUsage| RunUsage { index: 0, ..usage };
        let [head, beside] = [RegisterKind::Object, RegisterKind::Version];
        for (kind, value, expected) in [
            (head, object(300, None), RunUsage { objects: 1, bytes: 300, ..nothing }),
            (beside, object(1 << 40, None), RunUsage { versions: 1, bytes: 1 << 40, ..nothing }),
            (head, marker(), RunUsage { markers: 1, ..nothing }),
            (beside, marker(), RunUsage { markers: 1, ..nothing }),
            (
                RegisterKind::Part,
                Value::Part(Box::new(part)),
                RunUsage { parts: 1, part_bytes: 70, ..nothing },
            ),
            (RegisterKind::Upload, upload(UploadState::Open), RunUsage { uploads: 1, ..nothing }),
        ] {
            let usage = of(kind, value.clone());
            assert_eq!(without_index(usage), expected, "{value:?}");
            let key_bytes = match kind {
                RegisterKind::Object => 40,
                RegisterKind::Version => 14,
                _ => 0,
            };
            let value_bytes = match &value {
                Value::DeleteMarker(_) => 0,
                value => postcard::to_stdvec(value).unwrap().len(),
            };
            let expected = 512 + key_bytes + i64::try_from(value_bytes).unwrap();
            assert_eq!(usage.index, expected, "{value:?}");
        }
        assert_eq!(of(RegisterKind::Upload, upload(UploadState::Aborted)), nothing);
        assert_eq!(of(head, Value::Tombstone), nothing);
        assert_eq!(RunUsage::of(head, 3, &[]).unwrap(), nothing);
        assert!(RunUsage::of(head, 3, &[9; 60]).is_err());
    }

    #[test]
    fn parts_count_while_an_upload_is_open() {
        let usage = RunUsage { bytes: 5, part_bytes: 70, parts: 2, ..RunUsage::default() };
        assert_eq!(usage.totals().bytes, 5, "they are left from an upload that has ended");
        assert_eq!(RunUsage { uploads: 1, ..usage }.totals().bytes, 75);
        let below = RunUsage { objects: -3, versions: 5, bytes: -1, ..RunUsage::default() };
        assert_eq!(below.totals(), Usage { bytes: 0, objects: 5, index: 0 });
    }

    #[test]
    fn a_register_beside_a_head_names_the_head_and_the_version() {
        let head = RegisterKey::object(BucketId([1; 16]), 4, "a/b");
        let version = Version { position: 9, id: Some(WriteId([5; 16])) };
        let beside = RegisterKey::version(&head, version.name());
        assert_eq!(head_of(&beside), Some((head.clone(), version.name())));
        assert_eq!(head_of(&head), None);
        assert_eq!(version_in(&encoded(object(1, Some(version)))).unwrap(), Some(version.name()));
        assert_eq!(version_in(&encoded(object(1, None))).unwrap(), Some(VersionId::Null));
        assert_eq!(version_in(&encoded(Value::Tombstone)).unwrap(), None);
        assert_eq!(version_in(&[]).unwrap(), None);
    }

    #[test]
    fn rows_are_for_good() {
        let usage = RunUsage { objects: 1, bytes: 300, index: -2, ..RunUsage::default() };
        assert_eq!(usage.encode(), [2, 0, 0, 0, 0, 0xd8, 4, 0, 3], "for good");
        for wrong in [&[][..], &[2; 7], &[2; 9]] {
            assert!(RunUsage::decode(wrong).is_err(), "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn addition_and_subtraction_cancel(numbers: [[i64; 8]; 2]) {
            let [one, two] = numbers.map(|[objects, versions, markers, uploads, parts, bytes, part_bytes, index]| {
                RunUsage { objects, versions, markers, uploads, parts, bytes, part_bytes, index }
            });
            let mut sum = one;
            sum += two;
            prop_assert_eq!(RunUsage::decode(&sum.encode()).unwrap(), sum);
            prop_assert!(sum.encode().len() <= BYTES_MAX);
            sum -= one;
            sum += -two;
            prop_assert_eq!(sum, RunUsage::default());
        }
    }
}
