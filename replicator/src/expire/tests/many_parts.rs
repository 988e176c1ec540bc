//! Uploads with many parts: their pages are short, and what was freed is not read again and again.

use std::sync::atomic::{AtomicUsize, Ordering};

use martlet_protocol::ManualClock;
use martlet_protocol::backend::{Call, Reply};
use martlet_protocol::testing::{CallHook, FaultyBackend};

use super::*;

/// Parts of a page at most.
const PAGE_MAX: usize = 64;

/// Listings of parts.
#[derive(Default)]
struct PartListings {
    calls: AtomicUsize,
    /// Parts of the longest reply.
    parts_max: AtomicUsize,
}

struct PartHook(Arc<PartListings>);

impl CallHook for PartHook {
    fn before<'a>(&self, _device: DeviceId, call: Call<'a>) -> Result<Call<'a>> {
        if let Call::List(request) | Call::ListRows { request, .. } = &call
            && request.kind == RegisterKind::Part
        {
            self.0.calls.fetch_add(1, Ordering::SeqCst);
        }
        Ok(call)
    }

    fn after(&self, reply: Reply) -> Reply {
        if let Reply::List(page) = &reply {
            let parts = page.entries.iter().filter(|(_, it)| matches!(it.value, Value::Part(_)));
            self.0.parts_max.fetch_max(parts.count(), Ordering::SeqCst);
        }
        reply
    }
}

impl Fixture {
    /// Makes a cluster with a bucket whose listings of parts are counted.
    async fn counted() -> (Self, Arc<PartListings>) {
        let listings = Arc::new(PartListings::default());
        let seen = listings.clone();
        let clock = Arc::new(ManualClock::at(1_000_000_000));
        let world = MultiNodeWorld::wrapped(5, clock, move |_, inner| {
            Arc::new(FaultyBackend::hooked(inner, PartHook(seen.clone())))
        });
        let fixture = Self { world, bucket: BucketId::random() };
        fixture.set_bucket(martlet_protocol::Settings::default(), 3).await;
        (fixture, listings)
    }

    /// Makes an aborted upload with so many parts.
    async fn aborted(&self, parts: u16) -> (RegisterKey, Vec<RegisterKey>) {
        let (at, id) = self.upload("key", UploadState::Aborted).await;
        let mut written = Vec::new();
        for number in 1..=parts {
            written.push(self.part(&at, id, number, 3).await);
        }
        (at, written)
    }

    /// Advances one upload, as its first primary lists it.
    async fn visit(&self, at: &RegisterKey) -> Result<bool> {
        let (shared, clock) = (self.world.shared.clone(), self.world.clock.clone());
        let expire = Expire::new(shared, clock, DeviceScope::All, OPTIONS);
        let device = self.world.primaries(at)[0];
        let listing = UploadListing {
            bucket: self.bucket,
            name: Bytes::from_static(b"bucket"),
            index_shards: SHARDS,
            shards: vec![at.shard],
            device,
            start: ListStart::First,
            rules: Arc::default(),
        };
        let entry = self.world.held(device, at).await.entry.unwrap();
        expire.expire(&self.world.step(), &listing, at, &entry).await
    }

    async fn are_gone(&self, parts: &[RegisterKey]) -> bool {
        for part in parts {
            if !self.is_gone(part).await {
                return false;
            }
        }
        true
    }
}

#[tokio::test]
async fn parts_come_in_short_pages_and_what_is_left_of_them_takes_a_call() {
    let (it, listings) = Fixture::counted().await;
    let (at, parts) = it.aborted(200).await;
    it.wait(2000);
    assert!(it.visit(&at).await.unwrap());
    assert!(it.are_gone(&parts).await);
    assert_eq!(listings.calls.swap(0, Ordering::SeqCst), parts.len().div_ceil(PAGE_MAX));
    assert_eq!(listings.parts_max.swap(0, Ordering::SeqCst), PAGE_MAX);
    for _ in 0..3 {
        assert!(!it.visit(&at).await.unwrap());
        assert_eq!(listings.calls.swap(0, Ordering::SeqCst), 1, "tombstones are passed over");
    }
    assert_eq!(listings.parts_max.load(Ordering::SeqCst), 0);
    it.wait(OPTIONS.ended_grace_ms);
    it.visit(&at).await.unwrap();
    assert!(it.is_gone(&at).await);
}

#[tokio::test]
async fn a_part_that_one_device_lacks_goes_with_its_upload_at_the_latest() {
    let (it, _) = Fixture::counted().await;
    let (at, id) = it.upload("key", UploadState::Aborted).await;
    let model = it.part(&at, id, 1, 3).await;
    let part = RegisterKey::part(&at, id, 2, WriteId::random());
    let mut put: EntryWrite = write(&part, it.world.stamps.issue(), 0, Body::Empty);
    put.entry.value = it.held(&model).await;
    it.world.write_on(&it.world.primaries(&at)[1..], &put).await;
    it.wait(OPTIONS.ended_grace_ms + 1000);
    it.visit(&at).await.unwrap();
    assert!(it.are_gone(&[model, part, at]).await);
}

#[tokio::test]
async fn a_silent_device_keeps_neither_parts_nor_their_upload() {
    let (it, _) = Fixture::counted().await;
    let (at, parts) = it.aborted(150).await;
    it.wait(OPTIONS.ended_grace_ms + 1000);
    let [_, silent, _] = it.world.primaries(&at)[..] else { panic!("three primaries") };
    it.world.memory(silent).set_offline(silent, true);
    it.visit(&at).await.unwrap();
    it.world.memory(silent).set_offline(silent, false);
    assert!(it.are_gone(&parts).await && it.is_gone(&at).await);
}
