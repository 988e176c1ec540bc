//! Stored bytes: whatever they are, decoding returns. A decoded value is encoded to bytes that decode
//! to the same value.

use std::fmt::Debug;

use crate::backend::ExtentHashes;
use crate::entry::{
    AccountDocument, Attributes, Body, Bucket, BucketState, Checksum, ChecksumAlgorithm,
    ChecksumKind, DeleteMarker, ETag, Entry, KeyCondition, Manifest, Mark, Marks, Object, Part,
    Upload, UploadState, Value, ValueKind,
};
use crate::extent::{ExtentRecord, ExtentRef, ExtentRole, Layout, Owner, Stripe};
use crate::extent_token::{ExtentGrant, ExtentTokenKey};
use crate::id::{BucketId, DeviceId, ExtentId, PolicyId, UploadId, WriteId};
use crate::key::{RegisterKey, RegisterKind};
use crate::lifecycle::{Expiration, Filter, Lifecycle, Rule, Scope};
use crate::lock::BucketLock;
use crate::run_usage::RunUsage;
use crate::settings::{Setting, Settings};
use crate::stamp::{Stamp, WriterId};
use crate::testing::fuzz_target::FuzzTarget;
use crate::usage::Quota;
use crate::version::{Version, VersionId, VersioningSetting};
use crate::{Error, Level};

/// Stored values. An input is the number of a format, then bytes of that format.
///
/// Properties: decoding never panics; `decode(encode(decode(bytes)))` equals `decode(bytes)`; the
/// partial decoders of an entry agree with the whole one.
pub const ENTRIES: FuzzTarget =
    FuzzTarget { name: "entries", check, seeds, heap_bytes_max: 16 << 20 };

/// A format: its name in seeds, and its check.
struct Format(&'static str, fn(&[u8]) -> bool);

/// The formats by their numbers.
const FORMATS: [Format; 10] = [
    Format("entry", entry),
    Format("manifest", manifest),
    Format("key", register_key),
    Format("record", extent_record),
    Format("lifecycle", lifecycle),
    Format("quota", quota),
    Format("usage", run_usage),
    Format("lock", bucket_lock),
    Format("versioning", versioning),
    Format("hashes", extent_hashes_and_token),
];

fn check(input: &[u8]) -> bool {
    let Some((format, bytes)) = input.split_first() else { return false };
    let Format(_, check) = FORMATS[usize::from(*format) % FORMATS.len()];
    check(bytes)
}

/// Asserts that a value comes back. Returns true, and false for bytes that were refused.
fn comes_back<T: Debug + PartialEq, E: Debug>(
    decoded: Result<T, E>,
    encode: impl Fn(&T) -> Vec<u8>,
    decode: impl Fn(&[u8]) -> Result<T, E>,
) -> bool {
    let Ok(value) = decoded else { return false };
    let again = decode(&encode(&value)).expect("an encoded value can be decoded");
    assert_eq!(again, value);
    true
}

fn entry(bytes: &[u8]) -> bool {
    // All of them take any bytes.
    let (head, facts) = (Entry::peek(bytes), Entry::facts(bytes));
    let summary = Entry::decode_summary(bytes);
    let (is_tombstone, is_object) = (Entry::is_tombstone(bytes), Entry::is_object(bytes));
    let usage = RunUsage::of(RegisterKind::Version, 30, bytes);
    let of_wire = |bytes: &[u8]| -> Result<Entry, _> { postcard::from_bytes(bytes) };
    let to_wire = |entry: &Entry| postcard::to_stdvec(entry).expect("entries are data");
    comes_back(of_wire(bytes), to_wire, of_wire);
    let Ok(entry) = Entry::decode(bytes) else { return false };
    assert_eq!(head.expect("a whole entry has a head"), (entry.order, entry.write_id));
    let facts = facts.expect("a whole entry has facts");
    let (kind, size) = facts_of(&entry.value);
    assert_eq!((facts.kind, facts.size), (kind, size));
    assert_eq!(is_tombstone.expect("the head is whole"), entry.value.is_tombstone());
    assert_eq!(is_object.expect("the head is whole"), entry.value.is_object());
    assert_eq!(summary.expect("a whole entry has a summary"), entry.clone().into_summary());
    usage.expect("a whole entry has a usage").totals();
    comes_back(Ok::<_, Error>(entry), Entry::encode, Entry::decode)
}

fn facts_of(value: &Value) -> (ValueKind, u64) {
    match value {
        Value::Tombstone => (ValueKind::Tombstone, 0),
        Value::Object(object) => (ValueKind::Object, object.size),
        Value::Bucket(_) => (ValueKind::Bucket, 0),
        Value::Upload(_) => (ValueKind::Upload, 0),
        Value::Part(part) => (ValueKind::Part, part.size),
        Value::DeleteMarker(_) => (ValueKind::DeleteMarker, 0),
        Value::Account(_) => (ValueKind::Account, 0),
    }
}

fn manifest(bytes: &[u8]) -> bool {
    comes_back(Manifest::decode(bytes), Manifest::encode, Manifest::decode)
}

fn register_key(bytes: &[u8]) -> bool {
    let kind = RegisterKey::kind_of(bytes);
    let Ok(key) = RegisterKey::decode(bytes) else { return false };
    assert_eq!(key.encode(), bytes, "keys have one encoding");
    assert_eq!(kind.expect("a whole key has a kind"), key.kind);
    if let Some((name, upload)) = RegisterKey::upload_of(&key.name) {
        assert_eq!([name, &[0], &upload.0].concat(), key.name);
    }
    if let Some((name, version)) = RegisterKey::version_of(&key.name) {
        let beside = RegisterKey { name: name.to_vec().into(), ..key.clone() };
        assert_eq!(RegisterKey::version(&beside, version).name, key.name);
    }
    let _ = (RegisterKey::part_number(&key.name), key.placement());
    true
}

fn extent_record(bytes: &[u8]) -> bool {
    let encode = |record: &ExtentRecord| postcard::to_stdvec(record).expect("records are data");
    let decoded = ExtentRecord::decode(bytes);
    if let Ok(record) = &decoded {
        let _ = (record.named(), record.replica());
    }
    comes_back(decoded, encode, ExtentRecord::decode)
}

fn lifecycle(bytes: &[u8]) -> bool {
    comes_back(Lifecycle::of(bytes), Lifecycle::document, Lifecycle::of)
}

fn quota(bytes: &[u8]) -> bool {
    let decoded = Quota::decode(bytes);
    if let Ok(quota) = &decoded {
        let _ = quota.index_max();
    }
    comes_back(decoded, Quota::encode, Quota::decode)
}

fn run_usage(bytes: &[u8]) -> bool {
    let decoded = RunUsage::decode(bytes);
    if let Ok(usage) = &decoded {
        let _ = usage.totals();
    }
    comes_back(decoded, RunUsage::encode, RunUsage::decode)
}

fn bucket_lock(bytes: &[u8]) -> bool {
    let decode = |bytes: &[u8]| BucketLock::of(Some(bytes)).map(Option::unwrap_or_default);
    let decoded = decode(bytes);
    if let Ok(lock) = &decoded {
        let _ = lock.complete(&mut Marks::default(), 1_700_000_000_000);
    }
    comes_back(decoded, BucketLock::document, decode)
}

fn versioning(bytes: &[u8]) -> bool {
    let setting = VersioningSetting::of(Some(bytes));
    assert_eq!(VersioningSetting::of(Some(&setting.document())), setting);
    true
}

fn extent_hashes_and_token(bytes: &[u8]) -> bool {
    let key = ExtentTokenKey::derive(b"fuzz");
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(grant) = key.open(text)
    {
        assert_eq!(key.open(&key.seal(&grant)), Ok(grant));
        return true;
    }
    let Some(hashes) = ExtentHashes::decode(bytes) else { return false };
    assert_eq!(hashes.encode(), bytes, "hashes have one encoding");
    true
}

/// Returns a seed of a format.
fn seed(format: &str, bytes: &[u8]) -> Vec<u8> {
    let number = (0..).zip(FORMATS).find(|(_, Format(name, _))| *name == format);
    let (number, _): (u8, _) = number.expect("each format has a number");
    [&[number], bytes].concat()
}

fn seeds() -> Vec<Vec<u8>> {
    let entries = values().into_iter().map(|value| {
        let order = Stamp { time: 1_700_000_000_123 << 16, writer: WriterId(300) };
        seed("entry", &Entry { order, write_id: WriteId([3; 16]), value }.encode())
    });
    entries.chain(small_seeds()).collect()
}

fn extent(number: u8) -> ExtentRef {
    ExtentRef { id: ExtentId([number; 16]), length: 70_000, blake3: [number; 32] }
}

fn manifest_of(part_checksums: Vec<Vec<u8>>) -> Manifest {
    let extents = vec![extent(1), extent(2)];
    Manifest { policy: PolicyId(1), extents, parts: vec![5 << 20, 7], part_checksums }
}

fn object(body: Body) -> Box<Object> {
    let mut attributes = Attributes {
        content_type: Some("text/plain".into()),
        storage_class: Some("COLD".into()),
        user_metadata: vec![("a".into(), "b".into())],
        tags: vec![("team".into(), "ml".into())],
        ..Attributes::default()
    };
    attributes.marks.set(Mark::Acl, vec![1, 2]);
    attributes.marks.set(Mark::Retention, vec![1, 0, 9]);
    let (algorithm, kind) = (ChecksumAlgorithm::Crc32c, ChecksumKind::Composite);
    Box::new(Object {
        size: 140_000,
        etag: ETag::Multipart { md5: [9; 16], parts: 2 },
        modified_ms: 1_700_000_000_123,
        attributes,
        checksums: vec![Checksum { algorithm, kind, value: vec![1, 2, 3, 4] }],
        upload: Some(UploadId([4; 16])),
        body,
        version: Some(Version { position: 9, id: Some(WriteId([5; 16])) }),
    })
}

fn bucket() -> Bucket {
    let mut settings = Settings::default();
    settings.set(Setting::Policy, b"{}".to_vec()).expect("a short document fits");
    Bucket {
        id: BucketId([4; 16]),
        created_ms: 9,
        generation: 3,
        state: BucketState::Open,
        index_shards: 16,
        policy: PolicyId(1),
        owner: "team".into(),
        consistency: Level::default(),
        settings,
    }
}

fn upload(state: UploadState) -> Value {
    Value::Upload(Box::new(Upload {
        key: "a/key".into(),
        id: UploadId([2; 16]),
        initiated_ms: 1,
        policy: PolicyId(1),
        attributes: Attributes::default(),
        checksum: Some((ChecksumAlgorithm::Crc64Nvme, ChecksumKind::FullObject)),
        state,
    }))
}

fn values() -> Vec<Value> {
    let spilled = Body::Spilled { policy: PolicyId(2), manifest: vec![extent(3)] };
    let (write_id, order) = (WriteId([1; 16]), Stamp::at_ms(3));
    let completing = UploadState::Completing {
        write_id,
        order,
        object: object(Body::Extents(manifest_of(vec![vec![1; 4], vec![2; 4]]))),
        condition: KeyCondition::default(),
        follows: Some(WriteId([6; 16])),
    };
    let body = Body::Extents(manifest_of(Vec::new()));
    let (size, tag, modified_ms, checksums) = (70_000, [1; 16], 2, Vec::new());
    let version = Some(Version::UNVERSIONED);
    vec![
        Value::Tombstone,
        Value::Object(object(Body::Empty)),
        Value::Object(object(Body::Inline { crc32c: 4 })),
        Value::Object(object(Body::Extents(manifest_of(vec![vec![7; 4]])))),
        Value::Object(object(spilled)),
        Value::Bucket(Box::new(bucket())),
        upload(UploadState::Open),
        upload(completing),
        upload(UploadState::Completed {
            write_id,
            etag: ETag::Opaque { value: [1; 16], parts: None },
        }),
        Value::Part(Box::new(Part { size, tag, modified_ms, checksums, body })),
        Value::DeleteMarker(Box::new(DeleteMarker { modified_ms: 4, version })),
        Value::Account(AccountDocument::new(vec![7; 9])),
    ]
}

fn small_seeds() -> Vec<Vec<u8>> {
    let bucket = BucketId([5; 16]);
    let owner = Owner {
        bucket,
        key: "a key".to_owned(),
        write_id: WriteId([6; 16]),
        upload: None,
        role: ExtentRole::Data,
        offset: 300,
    };
    let stripe = Some(Stripe { k: 4, m: 2, length: 1 << 20 });
    let layout = Layout { policy: PolicyId(2), stripe };
    let record = ExtentRecord { extent: extent(9), owner, birth_ms: 9, layout };
    let rule = Rule {
        id: "r".to_owned(),
        is_enabled: true,
        scope: Scope::Filter(Filter { prefix: Some("a/".into()), ..Filter::default() }),
        expiration: Some(Expiration::Days(7)),
        noncurrent: None,
        abort_upload_days: Some(1),
    };
    let rules = Lifecycle { rules: vec![rule], transition_minimum: None };
    let quota_of = |index| Quota { bytes: Some(1 << 40), objects: None, index };
    let object_key = RegisterKey::object(bucket, 16, "a/key");
    let numbered = VersionId::Numbered { position: 7, write_id: WriteId([8; 16]) };
    let grant = ExtentGrant {
        device: DeviceId(3),
        extent: ExtentId([7; 16]),
        first: 0,
        last: 99,
        expires_ms: 5_000,
        tenant: "team".into(),
        networks: Vec::new(),
    };
    let token = ExtentTokenKey::derive(b"fuzz").seal(&grant);
    let hashes = ExtentHashes { blake3: [3; 32], crcs: vec![1, 2] };
    vec![
        seed("manifest", &manifest_of(Vec::new()).encode()),
        seed("manifest", &manifest_of(vec![vec![1; 32], vec![2; 32]]).encode()),
        seed("key", &object_key.encode()),
        seed("key", &RegisterKey::version(&object_key, numbered).encode()),
        seed("key", &RegisterKey::upload(bucket, 16, "k", UploadId([1; 16])).encode()),
        seed("record", &postcard::to_stdvec(&record).expect("a record is data")),
        seed("lifecycle", &rules.document()),
        seed("quota", &quota_of(None).encode()),
        seed("quota", &quota_of(Some(1 << 30)).encode()),
        seed("usage", &RunUsage { objects: 3, bytes: -7, ..RunUsage::default() }.encode()),
        seed("lock", &BucketLock::default().document()),
        seed("versioning", b"Enabled 1764000000000"),
        seed("hashes", &hashes.encode()),
        seed("hashes", token.as_bytes()),
    ]
}
