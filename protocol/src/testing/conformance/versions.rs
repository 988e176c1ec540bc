//! Checks of version registers: stored, listed and removed separately from their keys' registers.

use bytes::Bytes;

use super::listing::request;
use super::{object, plain, register, stamp, tombstone};
use crate::backend::{Backend, BackendExt, BucketFence, EntryWrite, ListStart, Want, WriteReply};
use crate::entry::{Body, DeleteMarker, Value};
use crate::id::{BucketId, DeviceId, WriteId};
use crate::key::{RegisterKey, RegisterKind};
use crate::register::WriteMode;
use crate::term::Term;
use crate::version::{Version, VersionId};

fn version(position: u64) -> Version {
    Version { position, id: Some(WriteId([u8::try_from(position).unwrap_or(0); 16])) }
}

fn beside(bucket: BucketId, key: &str, of: Version, tick: u64) -> EntryWrite {
    let key = RegisterKey::version(&register(bucket, key), of.name());
    let mut write = plain(&key, stamp(tick));
    let Value::Object(mut held) = object(Body::Empty) else { return write };
    held.version = Some(of);
    write.entry.value = Value::Object(held);
    write
}

pub(super) async fn all(backend: &dyn Backend, device: DeviceId) {
    let bucket = BucketId::random();
    let null = Version { position: 2, id: None };
    let head = plain(&register(bucket, "k"), stamp(9));
    let writes = [
        head.clone(),
        beside(bucket, "k", version(1), 1),
        beside(bucket, "k", null, 2),
        beside(bucket, "k", version(3), 3),
        beside(bucket, "kk", version(4), 4),
        beside(bucket, "k\u{1}", version(5), 5),
    ];
    for write in &writes {
        backend.write(device, write.clone()).await.unwrap();
        let view = backend.read(device, &write.key, Want::Entry, Term::ANY).await.unwrap();
        assert_eq!(view.entry.as_ref(), Some(&write.entry), "its version comes back with it");
    }
    let marker = DeleteMarker { modified_ms: 7, version: Some(version(6)) };
    let mut marked = beside(bucket, "kk", version(6), 6);
    marked.entry.value = Value::DeleteMarker(Box::new(marker));
    backend.write(device, marked.clone()).await.unwrap();

    let mut list = request(bucket, "", ListStart::First);
    let heads = backend.list(device, &list).await.unwrap().entries;
    assert_eq!(heads.len(), 1, "what is beside a key is in no listing of keys");
    list.kind = RegisterKind::Version;
    let listed = backend.list(device, &list).await.unwrap().entries;
    let mut expected: Vec<_> = writes[1..].iter().chain([&marked]).collect();
    expected.sort_by(|a, b| a.key.name.cmp(&b.key.name));
    let expected: Vec<_> = expected.iter().map(|it| (it.key.name.clone(), &it.entry)).collect();
    let listed: Vec<_> = listed.iter().map(|(name, entry)| (name.clone(), entry)).collect();
    assert_eq!(listed, expected);
    list.prefix = Bytes::from_static(b"k\0");
    let of_key = backend.list(device, &list).await.unwrap().entries;
    let names = of_key.iter().map(|(name, _)| RegisterKey::version_of(name).unwrap());
    let names: Vec<_> = names.collect();
    let k = &b"k"[..];
    let latest_first = [VersionId::Null, version(3).name(), version(1).name()];
    assert_eq!(names, latest_first.map(|version| (k, version)));

    // A removed version stays removed: a late write of a lower order doesn't restore it.
    let gone = tombstone(&writes[3].key, stamp(20));
    backend.write(device, gone).await.unwrap();
    backend.write(device, beside(bucket, "k", version(3), 19)).await.unwrap();
    let view = backend.read(device, &writes[3].key, Want::Entry, Term::ANY).await.unwrap();
    assert!(view.entry.unwrap().value.is_tombstone());
    let view = backend.read(device, &head.key, Want::Entry, Term::ANY).await.unwrap();
    assert_eq!(view.entry, Some(head.entry));

    promises_of_heads_hold_beside_them(backend, device, bucket).await;

    let fence = BucketFence { bucket, generation: 9, open: false };
    backend.fence(device, fence).await.unwrap();
    backend.purge_bucket(device, bucket).await.unwrap();
    list.prefix = Bytes::new();
    assert!(backend.list(device, &list).await.unwrap().entries.is_empty());
}

/// A ballot on a head shuts out slower ballots beside the head too, whether or not it writes there.
async fn promises_of_heads_hold_beside_them(
    backend: &dyn Backend,
    device: DeviceId,
    bucket: BucketId,
) {
    let head = register(bucket, "promised");
    backend.promise(device, &head, stamp(40), Term::ANY).await.unwrap();
    let slower = beside(bucket, "promised", version(1), 39);
    let reply = backend.write(device, slower.clone()).await.unwrap();
    assert_eq!(reply, WriteReply::Behind(stamp(40)), "it read before the promise");
    let own = beside(bucket, "promised", version(1), 40);
    assert_eq!(backend.write(device, own).await.unwrap(), WriteReply::Stored);
    // Copies of what other replicas accepted have earlier orders.
    for (position, mode) in [(2, WriteMode::Settled), (3, WriteMode::Repair)] {
        let copied = EntryWrite { mode, ..beside(bucket, "promised", version(position), 20) };
        assert_eq!(backend.write(device, copied).await.unwrap(), WriteReply::Stored, "{mode:?}");
    }
    let elsewhere = beside(bucket, "promise", version(1), 39);
    assert_eq!(backend.write(device, elsewhere).await.unwrap(), WriteReply::Stored);
}
