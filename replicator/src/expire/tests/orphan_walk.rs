//! The walk over late parts: its bounds, its position after a restart, and holders outside of their place.

use martlet_protocol::DeviceId;
use martlet_protocol::backend::CallKind;

use super::*;
use crate::cursors::MemoryCursors;
use crate::testing::recorded::recorded;

/// Age from which on a part can't be in flight, with a margin for clocks.
const OLD_MS: u64 = OPTIONS.ended_grace_ms + martlet_protocol::limits::CLOCK_SKEW_MS_MAX + 1;
/// Open uploads stay.
const KEEPING: ExpireOptions = ExpireOptions { open_age_ms: None, ..OPTIONS };
/// More steps than any test needs.
const STEPS_MAX: usize = 10_000;

impl Fixture {
    fn expire(&self, cursors: &Arc<MemoryCursors>) -> Expire {
        let (shared, clock) = (self.world.shared.clone(), self.world.clock.clone());
        Expire::new(shared, clock, DeviceScope::All, KEEPING).with_cursors(cursors.clone())
    }

    /// Writes a part of each of so many uploads that are gone, all in one shard.
    async fn orphans(&self, count: usize) -> Vec<RegisterKey> {
        let mut parts = Vec::new();
        for _ in 0..count {
            let id = UploadId::random();
            let at = RegisterKey::upload(self.bucket, SHARDS, "key", id);
            parts.push(self.part(&at, id, 1, 3).await);
        }
        parts
    }

    async fn left_of(&self, parts: &[RegisterKey]) -> usize {
        let mut left = 0;
        for part in parts {
            left += usize::from(!self.is_gone(part).await);
        }
        left
    }
}

/// Returns the number of listings of a walk over so many old open uploads of one shard, less one for each.
async fn listings_beside_parts(bucket: BucketId, uploads: usize) -> usize {
    let (world, requests) = recorded(5, |reply| reply);
    let it = Fixture { world, bucket };
    it.set_bucket(martlet_protocol::Settings::default(), 3).await;
    for _ in 0..uploads {
        let (at, id) = it.upload("key", UploadState::Open).await;
        it.part(&at, id, 1, 3).await;
    }
    it.wait(OLD_MS);
    let mut expire = it.expire(&Arc::default());
    assert_eq!(run_once(&mut expire).await.unwrap().done, 0);
    let rows = |(_, kind): &&(DeviceId, Option<CallKind>)| *kind == Some(CallKind::ListRows);
    requests.lock().iter().filter(rows).count() - uploads
}

/// The upload's primaries lost it: a device of an earlier ring is its only holder, and will bring it back.
#[tokio::test]
async fn an_upload_that_only_a_device_outside_of_its_place_holds_keeps_its_parts() {
    let it = Fixture::new().await;
    let (model, id) = it.upload("other", UploadState::Open).await;
    let Value::Upload(mut upload) = it.held(&model).await else { panic!("it was just written") };
    let id = UploadId(id.0.map(|byte| !byte));
    let at = RegisterKey::upload(it.bucket, SHARDS, "key", id);
    (upload.id, upload.key) = (id, "key".into());
    let part = it.part(&at, id, 1, 3).await;
    let outside: DeviceId = it.world.handoff(&at);
    let mut put: EntryWrite = write(&at, it.world.stamps.issue(), 0, Body::Empty);
    put.entry.value = Value::Upload(upload);
    it.world.write_on(&[outside], &put).await;
    it.wait(OLD_MS);
    let progress = run_once(&mut it.expire(&Arc::default())).await.unwrap();
    assert_eq!((progress.done, progress.kept), (0, 0));
    assert!(!it.is_gone(&part).await);
    it.world.memory(outside).set_offline(outside, true);
    let progress = run_once(&mut it.expire(&Arc::default())).await.unwrap();
    assert!(progress.done == 0 && progress.kept > 0, "its silence keeps them too: {progress:?}");
}

#[tokio::test]
async fn a_step_frees_a_bounded_number_of_uploads() {
    let it = Fixture::new().await;
    let parts = it.orphans(200).await;
    it.wait(OLD_MS);
    let mut expire = it.expire(&Arc::default());
    let (mut freed, mut steps) = (0, 0);
    loop {
        let progress = expire.step().await.unwrap();
        assert!(progress.done <= 64, "{progress:?}");
        (freed, steps) = (freed + progress.done, steps + 1);
        if progress.idle {
            break;
        }
        assert!(steps < STEPS_MAX);
    }
    assert_eq!((freed, it.left_of(&parts).await), (200, 0));
}

/// Another process goes on where the last one was, at any step, and begins no walk before its time.
#[tokio::test]
async fn a_walk_that_is_cut_off_at_any_step_goes_on_there() {
    let mut seen = 0;
    // The number of steps before the first part is freed depends on random ids.
    for (round, cut) in (4..16).cycle().enumerate().take(16 * 12) {
        if round >= 12 && seen > 0 {
            break;
        }
        let it = Fixture::new().await;
        let parts = it.orphans(150).await;
        it.wait(OLD_MS);
        let cursors = Arc::new(MemoryCursors::default());
        let mut first = it.expire(&cursors);
        let mut items = 0;
        for _ in 0..cut {
            items += first.step().await.unwrap().items;
        }
        drop(first);
        let left = it.left_of(&parts).await;
        seen += usize::from(left > 0 && left < 150);
        let rest = run_once(&mut it.expire(&cursors)).await.unwrap();
        assert_eq!(it.left_of(&parts).await, 0, "cut after {cut} steps");
        assert_eq!(rest.done, left as u64, "after {cut} steps and {items} items");
        let more = it.orphans(1).await;
        it.wait(OLD_MS);
        run_once(&mut it.expire(&cursors)).await.unwrap();
        assert_eq!(it.left_of(&more).await, 1, "a walk a day");
        it.wait(24 * 60 * 60 * 1000);
        run_once(&mut it.expire(&cursors)).await.unwrap();
        assert_eq!(it.left_of(&more).await, 0);
    }
    assert!(seen > 0, "a walk was cut off between two uploads that are freed");
}

/// The uploads of a shard are listed once for many old ones, by the first primary alone.
#[tokio::test]
async fn many_open_uploads_are_looked_for_by_one_listing() {
    let bucket = BucketId::random();
    let of_one = listings_beside_parts(bucket, 1).await;
    let of_many = listings_beside_parts(bucket, 2100).await;
    assert_eq!(of_many, of_one + 2, "three pages in the place of one");
}

/// Uploads come back under a hold. What was found before a gap in which one was in force may be wrong.
#[tokio::test]
async fn an_upload_that_came_back_between_two_steps_keeps_its_parts() {
    let it = Fixture::new().await;
    let parts = it.orphans(100).await;
    it.wait(OLD_MS);
    let mut expire = it.expire(&Arc::default());
    while it.left_of(&parts).await == 100 {
        expire.step().await.unwrap();
    }
    let left = it.left_of(&parts).await;
    assert!(left > 0, "a step frees some of them");
    for part in &parts {
        if !it.is_gone(part).await {
            let id = UploadId(*part.name.first_chunk().unwrap());
            let at = RegisterKey::upload(it.bucket, SHARDS, "key", id);
            it.set(&at, id, "key", UploadState::Open).await;
        }
    }
    it.wait(crate::rebuild::loss::HOLD_SETTLES_MS);
    assert_eq!(run_once(&mut expire).await.unwrap().done, 0);
    assert_eq!(it.left_of(&parts).await, left);
}

/// A walk over many parts takes days: uploads that end meanwhile don't wait for its end.
#[tokio::test]
async fn uploads_are_aborted_while_a_walk_is_under_way() {
    let it = Fixture::new().await;
    it.orphans(100).await;
    it.wait(OLD_MS);
    let (shared, clock) = (it.world.shared.clone(), it.world.clock.clone());
    let mut expire = Expire::new(shared, clock, DeviceScope::All, OPTIONS);
    let (at, _) = it.upload("open", UploadState::Open).await;
    while !expire.walks_parts() {
        expire.step().await.unwrap();
    }
    it.wait(10 * 60 * 1000);
    for _ in 0..STEPS_MAX {
        if matches!(it.held(&at).await, Value::Upload(it) if it.state == UploadState::Aborted) {
            break;
        }
        assert!(expire.orphans.is_under_way(), "the upload was aborted before the end of the walk");
        expire.step().await.unwrap();
    }
    assert!(expire.orphans.is_under_way());
}
