//! The objects of a device: keys, entries and extents, made from their numbers.

use martlet_protocol::backend::EntryWrite;
use martlet_protocol::entry::{Attributes, Body, ETag, Entry, Manifest, Object, Value};
use martlet_protocol::extent::{ExtentRecord, ExtentRef, ExtentRole, Layout, Owner};
use martlet_protocol::register::WriteMode;
use martlet_protocol::{
    BucketId, Clock, ExtentId, PolicyId, RegisterKey, RegisterKind, Shard, Stamp, SystemClock,
    Term, WriteId,
};
use martlet_storage_node::BulkObject;

pub(crate) const BUCKET: BucketId = BucketId([5; 16]);
/// Shards of the bucket on the device.
pub(crate) const SHARDS: u16 = 16;
/// One of so many places is free, as after deletes.
pub(crate) const FREE_EVERY: u64 = 8;
const BYTES_MIN: u64 = 8 * 1024;
const BYTES_MAX: u64 = 312 * 1024;

/// Returns a number that looks random, the same for each `seed`.
pub(crate) fn scrambled(seed: u64) -> u64 {
    let mut mixed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Returns the length of an object: 160 KB on average.
pub(crate) fn length(seed: u64) -> u32 {
    let bytes = BYTES_MIN + scrambled(seed) % (BYTES_MAX - BYTES_MIN);
    u32::try_from(bytes).expect("an object of the bench has less than 4 GiB")
}

/// Returns the name of an object.
pub(crate) fn name(folder: &str, number: u64) -> String {
    format!("{folder}/{:04}/{number:010}.bin", number / 10_000)
}

/// Returns the key of an object.
pub(crate) fn key(folder: &str, number: u64) -> RegisterKey {
    RegisterKey {
        bucket: BUCKET,
        shard: Shard(u16::try_from(number % u64::from(SHARDS)).unwrap_or_default()),
        kind: RegisterKind::Object,
        name: name(folder, number).into(),
    }
}

/// Returns an object of a bulk load.
pub(crate) fn bulk(number: u64) -> BulkObject {
    let key = key("data", number);
    let write_id = WriteId(random(number, 1));
    let id = ExtentId(random(number, 2));
    let extent = ExtentRef { id, length: length(number), blake3: [7; 32] };
    let owner = owner("data", number, write_id);
    let record = ExtentRecord { extent, owner, birth_ms: 1, layout: Layout::default() };
    let order = Stamp::at_ms(1_700_000_000_000);
    let entry = Entry { order, write_id, value: value(extent) };
    BulkObject { key, entry, extents: vec![record] }
}

/// Returns the tombstone of an object.
pub(crate) fn deleted(number: u64) -> BulkObject {
    let order = Stamp::at_ms(1_700_000_000_000);
    let entry = Entry { order, write_id: WriteId(random(number, 1)), value: Value::Tombstone };
    BulkObject { key: key("data", number), entry, extents: Vec::new() }
}

/// Returns the owner of an object's extent.
pub(crate) fn owner(folder: &str, number: u64, write_id: WriteId) -> Owner {
    Owner {
        bucket: BUCKET,
        key: name(folder, number),
        write_id,
        upload: None,
        role: ExtentRole::Data,
        offset: 0,
    }
}

/// Returns the write of an object whose bytes are in `extent`.
pub(crate) fn write(folder: &str, number: u64, write_id: WriteId, extent: ExtentRef) -> EntryWrite {
    EntryWrite {
        key: key(folder, number),
        entry: Entry { order: Stamp::at_ms(SystemClock.now_ms()), write_id, value: value(extent) },
        inline: None,
        mode: WriteMode::Fresh,
        generation: 1,
        commit_by_ms: u64::MAX,
        keep_body: false,
        term: Term::ANY,
    }
}

fn value(extent: ExtentRef) -> Value {
    let manifest = Manifest {
        policy: PolicyId(0),
        extents: vec![extent],
        parts: Vec::new(),
        part_checksums: Vec::new(),
    };
    Value::Object(Box::new(Object {
        size: u64::from(extent.length),
        etag: ETag::Md5([7; 16]),
        modified_ms: 1,
        attributes: Attributes::default(),
        checksums: Vec::new(),
        upload: None,
        body: Body::Extents(manifest),
        version: None,
    }))
}

fn random(number: u64, salt: u64) -> [u8; 16] {
    let seed = number.wrapping_mul(4).wrapping_add(salt);
    let halves = [scrambled(seed), scrambled(!seed)].map(u64::to_be_bytes);
    std::array::from_fn(|at| halves[at / 8][at % 8])
}
