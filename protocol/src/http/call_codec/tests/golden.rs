//! Golden bytes: those of every call and reply, as each version of the internal protocol sent them.
//!
//! ```text
//! protocol/testdata/wire/version-1.txt:   call read 1111…0e
//! ```
//!
//! A file is kept for each version that a release speaks. `MARTLET_WRITE_GOLDEN=1` writes the file
//! of the newest version, once, before its release. If a test fails later, a change has broken the
//! protocol: append a field with a default, or add a call, instead.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::*;
use crate::backend::{
    AgedBucket, AgedPage, AgedRegister, ArrivedHints, DeviceHealth, DeviceStatus, ExtentStat,
    Garbage, HeldBuckets, Hint, Holding, NewExtent, OldPage, OldPlace, OldRegister, PromiseReply,
    QuarantineKind, QuarantinePage, QuarantinedItem,
};
use crate::entry::{Attributes, Body, ETag, Manifest, Object};
use crate::extent::{ExtentLocation, ExtentRecord, ExtentRole, Layout, Owner, Stripe};
use crate::extent_sums::{ExtentBin, ExtentClass, ExtentSum, PolicySums};
use crate::http::message_codec::decode_message;
use crate::release::WIRE;
use crate::run_usage::RunUsage;
use crate::tree::Sum;

/// Bytes that a later release appends to a message.
const APPENDED: [u8; 3] = [7, 1, 0x7a];

/// Messages by kind and name.
type Messages = BTreeMap<String, Vec<u8>>;

fn path(version: u16) -> PathBuf {
    let file = format!("testdata/wire/version-{version}.txt");
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(file)
}

fn golden(version: u16) -> Messages {
    let text = std::fs::read_to_string(path(version)).unwrap();
    let line = |line: &str| {
        let (name, bytes) = line.rsplit_once(' ').unwrap();
        (name.to_owned(), hex::decode(bytes).unwrap())
    };
    text.lines().map(line).collect()
}

fn extent() -> ExtentRef {
    copy()
}

fn owner() -> Owner {
    let (bucket, write_id) = (BucketId([0x11; 16]), WriteId([2; 16]));
    let upload = Some(UploadId([8; 16]));
    Owner { bucket, key: "cat é".into(), write_id, upload, role: ExtentRole::Data, offset: 65_536 }
}

fn layout() -> Layout {
    Layout { policy: PolicyId(3), stripe: Some(Stripe { k: 4, m: 2, length: 280_000 }) }
}

fn record() -> ExtentRecord {
    ExtentRecord { extent: extent(), owner: owner(), birth_ms: 1_000_000, layout: layout() }
}

fn object() -> Entry {
    let manifest = Manifest {
        policy: PolicyId(3),
        extents: vec![extent()],
        parts: vec![70_000],
        part_checksums: Vec::new(),
    };
    let attributes = Attributes {
        content_type: Some("text/plain".into()),
        user_metadata: vec![("a".into(), "b".into())],
        ..Attributes::default()
    };
    let object = Object {
        size: 70_000,
        etag: ETag::Multipart { md5: [9; 16], parts: 1 },
        modified_ms: 5,
        attributes,
        checksums: Vec::new(),
        upload: Some(UploadId([8; 16])),
        body: Body::Extents(manifest),
        version: None,
    };
    Entry { value: Value::Object(Box::new(object)), ..write().entry }
}

fn view() -> RegisterView {
    let inline = Some(Bytes::from_static(b"bytes"));
    RegisterView { promise: stamp(), entry: Some(object()), inline }
}

fn aged() -> AgedPage {
    let tombstone = Some(stamp());
    AgedPage {
        aged: vec![AgedRegister { key: key(), tombstone }],
        buckets: vec![AgedBucket { bucket: BucketId([1; 16]), order: stamp(), entries: 300 }],
        visited: 4000,
        next: Some(key()),
    }
}

fn extent_sums() -> Vec<PolicySums> {
    let class = ExtentClass { k: 4, m: 2, needed: 4, fragment: 5 };
    let sum = (ExtentBin { bin: 300, class }, ExtentSum { hash: 1 << 40, count: 2 });
    vec![PolicySums { policy: PolicyId(3), power: 12, sums: vec![sum] }]
}

fn stat() -> ExtentStat {
    let location = ExtentLocation { path: "/d1/extents/03".into(), offset: 0, length: 70_000 };
    ExtentStat { record: record(), location }
}

/// A reply of every kind.
fn usage() -> RunUsage {
    RunUsage {
        versions: 1,
        markers: 2,
        uploads: 3,
        parts: 4,
        bytes: 1 << 40,
        part_bytes: 5,
        ..RunUsage::default()
    }
}

fn place() -> OldPlace {
    OldPlace { at: stamp(), key: key() }
}

fn quarantined() -> QuarantinePage {
    let item = |name: &str, kind, bytes| QuarantinedItem {
        name: name.to_owned(),
        kind,
        bytes,
        since_ms: Some(1_000_000),
    };
    let items = vec![
        item("03", QuarantineKind::Extent(ExtentId([3; 16])), Some(70_000)),
        item("index-7", QuarantineKind::Index { generation: 7 }, None),
        item("odd", QuarantineKind::Other, Some(1)),
        item("volume-3-8192-4096", QuarantineKind::Record { volume: 3, offset: 8192 }, Some(4096)),
    ];
    QuarantinePage { items, next: Some("volume-3-8192-4096".to_owned()) }
}

fn hint() -> Hint {
    let (entry, inline) = (write().entry, write().inline);
    Hint { key: key(), entry, inline, keep_body: true, since_ms: 1_000_000 }
}

fn reply(kind: CallKind) -> Reply {
    let next = Some(BinKey::of(&key()));
    match kind {
        CallKind::Read | CallKind::ReadHint => Reply::View(view()),
        CallKind::Write | CallKind::KeepHint => Reply::Write(WriteReply::Behind(stamp())),
        CallKind::Promise => Reply::Promise(PromiseReply::Promised(view())),
        CallKind::List | CallKind::ListRows | CallKind::ListHints => {
            let entries = vec![(Bytes::from_static(b"cat"), object())];
            Reply::List(ListReply { entries, truncated: true })
        }
        CallKind::Registers | CallKind::Walk => Reply::Registers(vec![(key(), view())]),
        CallKind::Hints => Reply::Hints(vec![hint()]),
        CallKind::HintArrivals => {
            Reply::HintArrivals(ArrivedHints { hints: vec![hint()], last: 300, missed: true })
        }
        CallKind::Fences | CallKind::FencesAfter | CallKind::FencesOf => {
            Reply::Fences(vec![BucketFence::of_deleted(BucketId([1; 16]))])
        }
        CallKind::StatExtent => Reply::Stat(stat()),
        CallKind::ListExtents => Reply::Extents(vec![record()]),
        CallKind::Presence | CallKind::PresenceBy => {
            Reply::Presence(vec![Presence::Here, Presence::Deleted])
        }
        CallKind::AuditExtents => Reply::ExtentAudit(AuditResult {
            items: 300,
            bytes: 1 << 40,
            corrupt: vec![ExtentId([3; 16])],
            next: Some(ExtentId([4; 16])),
        }),
        CallKind::Garbage | CallKind::GarbageAfter => Reply::Garbage(vec![Garbage {
            id: GarbageId(Bytes::from_static(b"g")),
            key: key(),
            body: Body::Inline { crc32c: 4 },
        }]),
        CallKind::Sums => Reply::Sums(vec![Sum { hash: 1 << 100, count: 300 }]),
        CallKind::Bins => {
            Reply::Bins(vec![(BinKey::of(&key()), Sum { hash: 1 << 100, count: 300 })])
        }
        CallKind::Holdings => Reply::Holdings(vec![Holding {
            held: Some((stamp(), WriteId([2; 16]))),
            promise: stamp(),
            hint: Some(stamp()),
            collectable: true,
        }]),
        CallKind::AuditRegisters => {
            Reply::RegisterAudit(AuditResult { items: 300, bytes: 0, corrupt: Vec::new(), next })
        }
        CallKind::Claims => Reply::Claims(vec![
            ClaimsReply::Answered(vec![ClaimState::too_long()]),
            ClaimsReply::Outdated(Term(14)),
        ]),
        CallKind::SeekExtents => {
            Reply::Sought(vec![Sought::Here(Box::new(record())), Sought::Deleted])
        }
        CallKind::Aged => Reply::Aged(aged()),
        CallKind::ExtentSums => Reply::ExtentSums(extent_sums()),
        CallKind::Usage => Reply::Usage(vec![RunUsage { objects: 300, index: -1, ..usage() }]),
        CallKind::OldRegisters => Reply::OldRegisters(OldPage {
            registers: vec![OldRegister { place: place(), collectable: true }],
            next: Some(place()),
        }),
        CallKind::Quarantine => Reply::Quarantine(quarantined()),
        CallKind::HeldBuckets => Reply::HeldBuckets(HeldBuckets {
            buckets: vec![AgedBucket { bucket: BucketId([1; 16]), order: stamp(), entries: 300 }],
            next: Some(BucketId([2; 16])),
        }),
        _ => Reply::Done(()),
    }
}

fn new_extent() -> NewExtent {
    NewExtent {
        id: ExtentId([3; 16]),
        owner: owner(),
        length: Some(70_000),
        birth_ms: Some(1_000_000),
        layout: layout(),
        hashes: None,
    }
}

fn devices() -> Vec<DeviceStatus> {
    vec![DeviceStatus {
        device: DeviceId(3),
        identity: DeviceIdentity([5; 16]),
        voting: true,
        path: "/d1".into(),
        health: DeviceHealth::Suspect("a sync failed".into()),
        total_bytes: 1 << 40,
        free_bytes: 1 << 39,
        extent_bytes: 1 << 38,
        extents: 300,
        quarantined: 1,
        hints: 2,
        term: Term(14),
        joined: 12,
    }]
}

/// Messages of this release.
fn present() -> Messages {
    let mut messages = Messages::new();
    for (call, _) in calls() {
        let name = call.kind().name();
        messages.insert(format!("call {name}"), encode_call(&call).unwrap().to_vec());
        let reply = encode_reply(&reply(call.kind())).unwrap();
        messages.insert(format!("reply {name}"), reply.to_vec());
    }
    messages.insert("extent new".into(), bytes(&new_extent()));
    messages.insert("reply devices".into(), bytes(&devices()));
    messages.insert("reply extent".into(), bytes(&extent()));
    messages
}

#[test]
fn this_release_sends_what_its_versions_read() {
    if std::env::var_os("MARTLET_WRITE_GOLDEN").is_some() {
        let line = |(name, bytes): (&String, &Vec<u8>)| format!("{name} {}\n", hex::encode(bytes));
        let text: String = present().iter().map(line).collect();
        std::fs::write(path(WIRE.newest), text).unwrap();
    }
    let present = present();
    // Version 0 sent the bytes of version 1, and nothing passed over its end.
    for version in (1..=WIRE.newest).filter(|version| WIRE.contains(*version)) {
        for (name, golden) in golden(version) {
            let sent = &present[&name];
            assert!(
                sent.starts_with(&golden),
                "{name} of version {version}: its fields changed, so that other releases can't \
                 read it\n golden {}\n   sent {}",
                hex::encode(&golden),
                hex::encode(sent),
            );
        }
    }
    assert!(present.keys().eq(golden(WIRE.newest).keys()), "the newest file has every message");
}

#[test]
fn this_release_reads_what_its_versions_sent_and_what_the_next_will_append() {
    for version in (1..=WIRE.newest).filter(|version| WIRE.contains(*version)) {
        let golden = golden(version);
        for (call, _) in calls() {
            let (kind, name) = (call.kind(), call.kind().name());
            let (Some(sent), Some(replied)) =
                (golden.get(&format!("call {name}")), golden.get(&format!("reply {name}")))
            else {
                continue;
            };
            let later = |message: &[u8]| [message, &APPENDED].concat();
            for message in [sent.clone(), later(sent)] {
                assert_eq!(decode_call(kind, &message).unwrap(), call, "call {name}");
            }
            for message in [replied.clone(), later(replied)] {
                assert_eq!(
                    decode_reply(kind, &message.into()).unwrap(),
                    reply(kind),
                    "reply {name}"
                );
            }
        }
        let later = |name: &str| [&golden[name], &APPENDED[..]].concat();
        assert_eq!(decode_message::<NewExtent>(&later("extent new")).unwrap(), new_extent());
        assert_eq!(decode::<Vec<DeviceStatus>>(&later("reply devices")).unwrap(), devices());
        assert_eq!(decode::<ExtentRef>(&later("reply extent")).unwrap(), extent());
    }
}
