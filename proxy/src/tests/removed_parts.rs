//! Parts among many removed writes of their number: requests read a bounded number of rows (ADR 94).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use martlet_protocol::backend::{Call, EntryWrite, ListReply, ListRequest, ListStart};
use martlet_protocol::entry::{Attributes, Entry, Value};
use martlet_protocol::limits::LIST_EMPTY_ROWS_MAX;
use martlet_protocol::register::WriteMode;
use martlet_protocol::testing::{CallHook, FaultyBackend, MemoryBackend};
use martlet_protocol::{
    Backend, BackendExt, Clock, DeviceId, ErrorKind, RegisterKey, RegisterKind, Stamp, SystemClock,
    Term, UploadId, WriteId,
};

use super::computed_rows::{ComputedRows, DEVICES};
use super::harness::{Harness, create, pattern, settle, store_with};
use super::multipart::{begin, naming, send};
use crate::{Error, NewUpload, ObjectStore, Selection};

/// Removed writes of a number: three pages of a device.
const REMOVED: usize = 3 * LIST_EMPTY_ROWS_MAX;

/// Counts listings of parts.
struct PartListings(Arc<AtomicUsize>);

impl CallHook for PartListings {
    fn before<'a>(&self, _device: DeviceId, call: Call<'a>) -> martlet_protocol::Result<Call<'a>> {
        if matches!(&call, Call::ListRows { request, .. } if request.kind == RegisterKind::Part) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
        Ok(call)
    }
}

/// A store of three replicas with an upload whose part 1 was removed [`REMOVED`] times.
struct RemovedWrites {
    harness: Harness,
    upload: UploadId,
    listings: Arc<AtomicUsize>,
}

impl RemovedWrites {
    async fn new() -> Self {
        let listings = Arc::new(AtomicUsize::new(0));
        let devices = (1..=3).map(DeviceId);
        let memory = Arc::new(MemoryBackend::new(Arc::new(SystemClock), devices));
        let hook = PartListings(listings.clone());
        let node: Arc<dyn Backend> = Arc::new(FaultyBackend::hooked(memory.clone(), hook));
        let store = store_with(&node, 3, 3, 0, Arc::new(SystemClock));
        create(&store, "b").await;
        let harness = Harness { store, memory };
        let upload = begin(&harness, "key").await;
        let removed = Self { harness, upload, listings };
        removed.bury().await;
        removed
    }

    /// Writes tombstones of part 1 to all devices.
    async fn bury(&self) {
        let Self { harness: Harness { store, memory }, upload, .. } = self;
        let bucket = store.bucket("b").await.unwrap();
        let beside = RegisterKey::upload(bucket.id, bucket.index_shards, "key", *upload);
        let order = Stamp::at_ms(SystemClock.now_ms());
        for _ in 0..REMOVED {
            let write_id = WriteId::random();
            let write = EntryWrite {
                key: RegisterKey::part(&beside, *upload, 1, write_id),
                entry: Entry { order, write_id, value: Value::Tombstone },
                inline: None,
                mode: WriteMode::Repair,
                generation: 1,
                commit_by_ms: u64::MAX,
                keep_body: false,
                term: Term::ANY,
            };
            for device in (1..=3).map(DeviceId) {
                memory.write(device, write.clone()).await.unwrap();
            }
        }
    }

    /// Number of live part registers on a device.
    async fn live(&self) -> usize {
        settle().await;
        let held = self.harness.memory.registers(DeviceId(1)).into_iter();
        held.filter(|(key, entry)| key.kind == RegisterKind::Part && !entry.value.is_tombstone())
            .count()
    }
}

#[tokio::test]
async fn a_part_among_removed_writes_takes_two_pages_of_each_device() {
    let removed = RemovedWrites::new().await;
    let RemovedWrites { harness, upload, listings } = &removed;
    for (number, most) in [(1, 2), (2, 1)] {
        send(harness, *upload, number, &pattern(100, number)).await.unwrap();
        let listings = listings.swap(0, Ordering::SeqCst);
        assert!(listings <= 3 * most, "{listings} listings of part {number}");
    }
}

/// A third of the names lies in the first page. The other writes are met from random names on.
#[tokio::test]
async fn m1_a_part_that_is_sent_again_is_freed_among_removed_writes_too() {
    const SENT: u32 = 80;
    let removed = RemovedWrites::new().await;
    let RemovedWrites { harness, upload, .. } = &removed;
    let mut last = None;
    for seed in 0..SENT {
        last = Some(send(harness, *upload, 1, &pattern(100, seed)).await.unwrap());
    }
    let live = removed.live().await;
    assert!(live < 35, "{live} of {SENT} writes are left");
    let complete = naming(&[(1, &last.unwrap())]);
    harness.store.uploads().complete("b", "key", *upload, complete).await.unwrap();
    let bytes = harness.get("key", Selection::Whole).await.unwrap();
    assert_eq!(bytes, pattern(100, SENT - 1));
}

/// Parts of any upload that were all removed, each as number 1.
#[derive(Default)]
struct OnlyRemoved {
    count: AtomicUsize,
    /// Rows that devices looked at.
    looked_at: AtomicUsize,
}

/// Position of a name among the removed writes of number 1. A random name lies behind them.
fn position(name: &[u8]) -> usize {
    let written = name.get(18..34).and_then(|it| it.try_into().ok());
    written.map_or(0, |it| usize::try_from(u128::from_be_bytes(it)).unwrap_or(usize::MAX))
}

#[async_trait]
impl ComputedRows for OnlyRemoved {
    async fn page(&self, request: &ListRequest) -> Option<ListReply> {
        if request.kind != RegisterKind::Part {
            return None;
        }
        let at = match &request.start {
            ListStart::First => 0,
            ListStart::At(name) => position(name),
            ListStart::After(name) => position(name).saturating_add(1),
        };
        let mut reply = ListReply::default();
        let left = self.count.load(Ordering::SeqCst).saturating_sub(at);
        let passed = left.min(LIST_EMPTY_ROWS_MAX);
        self.looked_at.fetch_add(passed, Ordering::SeqCst);
        if passed == LIST_EMPTY_ROWS_MAX {
            let last = ((at + passed - 1) as u128).to_be_bytes();
            let name = [&request.prefix[..16], &1_u16.to_be_bytes(), &last].concat();
            reply.end_at(Bytes::from(name));
        }
        Some(reply)
    }
}

/// Lists the parts of an upload, and completes it with a part. Returns both outcomes.
async fn read_parts(store: &ObjectStore) -> (Result<usize, Error>, Error) {
    let uploads = store.uploads();
    let new = NewUpload { attributes: Attributes::default(), checksum: None };
    let upload = uploads.create("b", "key", new).await.unwrap().id;
    let sent = uploads.put_part("b", "key", upload, 1, super::harness::body("x".into())).await;
    let listed = uploads.list_parts("b", "key", upload, 0, 10).await;
    let complete = naming(&[(1, &sent.unwrap())]);
    let completed = uploads.complete("b", "key", upload, complete).await;
    (listed.map(|page| page.parts.len()), completed.unwrap_err())
}

#[tokio::test]
async fn no_request_reads_removed_parts_without_end() {
    let rows = Arc::new(OnlyRemoved::default());
    let store = rows.clone().store();
    create(&store, "b").await;
    rows.count.store(100_000, Ordering::SeqCst);
    let (listed, refused) = read_parts(&store).await;
    assert!(matches!(listed, Ok(0)), "{listed:?}");
    assert!(matches!(refused, Error::InvalidPart(1)), "{refused:?}");
    rows.count.store(10_000_000, Ordering::SeqCst);
    rows.looked_at.store(0, Ordering::SeqCst);
    let (listed, refused) = read_parts(&store).await;
    for refused in [listed.unwrap_err(), refused] {
        let is_unavailable =
            |error: &martlet_protocol::Error| error.kind() == ErrorKind::Unavailable;
        assert!(matches!(&refused, Error::Backend(error) if is_unavailable(error)), "{refused:?}");
    }
    let looked_at = rows.looked_at.load(Ordering::SeqCst);
    // A listing and a completion, and two pages for the part that was sent.
    let most = 2 * 1_000_000 + 4 * DEVICES * LIST_EMPTY_ROWS_MAX;
    assert!(looked_at <= most, "{looked_at} rows");
}
