//! Runs of rewraps that are interrupted, that race with clients, and that meet silent devices.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use martlet_protocol::backend::CallKind;
use martlet_protocol::testing::Fault;
use martlet_protocol::{AchievedLevel, Clock, DeviceId, ErrorKind, SystemClock, UploadId};
use tokio::time::Instant;

use super::super::super::harness::{create, faulty, settle};
use super::super::super::multipart::naming;
use super::super::super::rewrite::fixture::{RewriteFixture, until};
use super::super::vault;
use super::*;
use crate::{Cluster, StoreOptions, WriteConditions};

/// A run that stands still after its first page until it is released.
struct HeldRun {
    rewrap: Arc<Rewrap>,
    released: Arc<AtomicBool>,
}

impl HeldRun {
    fn new() -> Self {
        let (released, pages) = (Arc::new(AtomicBool::new(false)), AtomicU32::new(0));
        let is_released = released.clone();
        let clients_wait = move || {
            // The first page has no reason to wait.
            pages.fetch_add(1, Ordering::Relaxed) > 0 && !is_released.load(Ordering::Relaxed)
        };
        let clients_wait: Arc<crate::ClientsWait> = Arc::new(clients_wait);
        let options =
            RewrapOptions { clients_wait: Some(clients_wait), ..RewrapOptions::default() };
        Self { rewrap: Arc::new(Rewrap::new("b", options).with_page(1)), released }
    }

    /// Runs; calls `meanwhile` after the first page.
    async fn run(&self, store: &ObjectStore, meanwhile: impl AsyncFnOnce()) -> Result<()> {
        let (running, rewrap) = (store.clone(), self.rewrap.clone());
        let task = tokio::spawn(async move { running.data_keys().rewrap(&rewrap).await });
        until(|| self.rewrap.progress().seen == 1).await;
        meanwhile().await;
        self.released.store(true, Ordering::Relaxed);
        task.await.unwrap()
    }
}

/// A store with master keys that keeps no bucket in memory.
fn uncached(store: &ObjectStore, keys: &[u8]) -> ObjectStore {
    let cluster = Cluster::clone(&store.topology().cluster());
    let options = StoreOptions { bucket_cache_ms: 0, ..StoreOptions::default() };
    ObjectStore::with_vault(cluster, Arc::new(SystemClock), options, vault(keys))
}

async fn begin(store: &ObjectStore, key: &str) -> UploadId {
    let new = NewUpload { attributes: Attributes::default(), checksum: None };
    session(store, managed()).uploads().create("b", key, new).await.unwrap().id
}

async fn complete(store: &ObjectStore, key: &str, upload: UploadId) {
    let session = session(store, Keys::default());
    let part = session.uploads().put_part("b", key, upload, 1, body(pattern(500, 7)));
    let part = part.await.unwrap();
    session.uploads().complete("b", key, upload, naming(&[(1, &part)])).await.unwrap();
}

#[tokio::test]
async fn an_upload_that_completes_behind_the_cursor_is_rewrapped_too() {
    let harness = Harness::with_bucket(1).await;
    let old = with_keys(&harness.store, &[1]);
    for key in ["b", "c", "d"] {
        put(&old, managed(), key, body(pattern(100, 1))).await.unwrap();
    }
    let upload = begin(&old, "a").await;
    let both = with_keys(&harness.store, &[2, 1]);
    let held = HeldRun::new();
    held.run(&both, async || complete(&both, "a", upload).await).await.unwrap();
    let progress = held.rewrap.progress();
    assert_eq!((progress.pass, progress.seen, progress.rewrapped), (2, 4, 4), "{progress:?}");
    let new = with_keys(&harness.store, &[2]);
    for key in ["a", "b", "c", "d"] {
        assert!(get(&new, Keys::default(), key, Selection::Whole).await.is_ok(), "{key}");
    }
}

#[tokio::test]
async fn a_stop_ends_a_run_and_the_next_one_does_the_rest() {
    let harness = Harness::with_bucket(1).await;
    let old = with_keys(&harness.store, &[1]);
    for key in ["a", "b", "c", "d"] {
        put(&old, managed(), key, body(pattern(100, 1))).await.unwrap();
    }
    let both = with_keys(&harness.store, &[2, 1]);
    let held = HeldRun::new();
    let stopped = held.run(&both, async || held.rewrap.stop()).await.unwrap_err().to_string();
    assert!(stopped.contains("was stopped"), "{stopped}");
    let last = held.rewrap.progress();
    assert_eq!((last.seen, last.rewrapped, last.failed), (1, 1, 0), "{last:?}");
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert_eq!(held.rewrap.progress(), last, "an ended run doesn't go on");
    let (outcome, progress) = rewrap(&both, 10).await;
    assert_eq!((outcome.is_ok(), progress.seen, progress.rewrapped), (true, 4, 3));
}

#[tokio::test(start_paused = true)]
async fn a_stop_interrupts_the_pause_of_a_slow_run() {
    let harness = Harness::with_bucket(1).await;
    let both = with_keys(&harness.store, &[2, 1]);
    for key in ["a", "b"] {
        put(&both, managed(), key, body(pattern(100, 1))).await.unwrap();
    }
    let options = RewrapOptions { versions_per_s: Some(1), ..RewrapOptions::default() };
    let paced = Rewrap::new("b", options.clone()).with_page(1);
    let began = Instant::now();
    both.data_keys().rewrap(&paced).await.unwrap();
    // The last page may be an empty one.
    assert!((1..=2).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    let began = Instant::now();
    let rewrap = Arc::new(Rewrap::new("b", options).with_page(1));
    let (running, run) = (both.clone(), rewrap.clone());
    let task = tokio::spawn(async move { running.data_keys().rewrap(&run).await });
    until(|| rewrap.progress().seen == 1).await;
    rewrap.stop();
    assert!(task.await.unwrap().is_err());
    assert!(began.elapsed() < Duration::from_millis(500), "{:?}", began.elapsed());
}

#[tokio::test]
async fn overwrites_and_deletes_during_a_run_stay() {
    let harness = Harness::with_bucket(1).await;
    let old = with_keys(&harness.store, &[1]);
    for key in ["a", "b", "c", "d"] {
        put(&old, managed(), key, body(pattern(100, 1))).await.unwrap();
    }
    let both = with_keys(&harness.store, &[2, 1]);
    let held = HeldRun::new();
    let clients = async || {
        put(&both, managed(), "a", body(pattern(200, 2))).await.unwrap();
        put(&both, managed(), "b", body(pattern(200, 3))).await.unwrap();
        both.delete("b", "c", &WriteConditions::default()).await.unwrap();
    };
    held.run(&both, clients).await.unwrap();
    let new = with_keys(&harness.store, &[2]);
    let whole = Selection::Whole;
    assert_eq!(get(&new, Keys::default(), "a", whole).await.unwrap(), pattern(200, 2));
    assert_eq!(get(&new, Keys::default(), "b", whole).await.unwrap(), pattern(200, 3));
    assert_eq!(get(&new, Keys::default(), "d", whole).await.unwrap(), pattern(100, 1));
    assert!(matches!(get(&new, Keys::default(), "c", whole).await, Err(Error::NoSuchKey)));
}

#[tokio::test]
async fn a_bucket_that_is_made_again_ends_the_run() {
    let harness = Harness::with_bucket(1).await;
    let old = uncached(&harness.store, &[1]);
    for key in ["a", "b", "c"] {
        put(&old, managed(), key, body(pattern(100, 1))).await.unwrap();
    }
    let both = uncached(&harness.store, &[2, 1]);
    let held = HeldRun::new();
    let again = async || {
        for key in ["a", "b", "c"] {
            harness.delete(key).await;
        }
        harness.store.buckets().delete("b").await.unwrap();
        create(&harness.store, "b").await;
        put(&old, managed(), "a", body(pattern(100, 1))).await.unwrap();
        put(&old, managed(), "z", body(pattern(100, 1))).await.unwrap();
    };
    let ended = held.run(&both, again).await.unwrap_err().to_string();
    assert!(ended.contains("deleted and made again"), "{ended}");
    assert!(rewrap(&both, 10).await.0.is_ok());
    let new = with_keys(&harness.store, &[2]);
    assert!(get(&new, Keys::default(), "a", Selection::Whole).await.is_ok());
}

/// Rule A1: a write acknowledged without a quorum is kept as a hint, and a rewrap must not restore
/// the older object over it.
#[tokio::test(start_paused = true)]
async fn a1_a_write_that_is_kept_for_others_is_not_overtaken() {
    let fixture = RewriteFixture::new().await;
    let old = with_keys(&fixture.store, &[1]);
    put(&old, managed(), "key", body(pattern(3000, 1))).await.unwrap();
    let (out, key) = (fixture.primaries("key").await, fixture.register("key").await);
    let cut_off = fixture.store_that(move |call| {
        let is_out = out.contains(&call.device) && call.key == Some(&key);
        if is_out { Fault::Refuse(ErrorKind::Unavailable) } else { Fault::None }
    });
    let cut_off = session(&with_keys(&cut_off, &[1]), managed());
    // Only their clocks order writes of two proxies, one of which sees no quorum.
    let before_ms = SystemClock.now_ms();
    until(|| SystemClock.now_ms() > before_ms).await;
    let none = WriteConditions::default();
    let newer = body(pattern(3000, 2));
    super::super::super::harness::put(&cut_off, "key", newer, none).await.unwrap();
    assert_eq!(cut_off.given(), AchievedLevel::Degraded);

    let both = with_keys(&fixture.store, &[2, 1]);
    let (outcome, progress) = rewrap(&both, 10).await;
    assert!(outcome.is_err());
    assert_eq!((progress.rewrapped, progress.failed), (0, 1), "{progress:?}");
    assert!(progress.failure.unwrap().contains("holds hints of these registers for other devices"));
    fixture.deliver().await;
    let (outcome, progress) = rewrap(&both, 10).await;
    assert_eq!((outcome.is_ok(), progress.rewrapped), (true, 1), "{progress:?}");
    let new = with_keys(&fixture.store, &[2]);
    let newest = get(&new, Keys::default(), "key", Selection::Whole).await.unwrap();
    assert_eq!(newest, pattern(3000, 2));
}

/// A hint may be delivered behind the cursor, where no page and no query at the end finds its key.
#[tokio::test]
async fn a_hint_that_is_delivered_behind_the_cursor_is_rewrapped_too() {
    let fixture = RewriteFixture::new().await;
    let old = with_keys(&fixture.store, &[1]);
    for key in ["b", "c", "d"] {
        put(&old, managed(), key, body(pattern(100, 1))).await.unwrap();
    }
    let (out, key) = (fixture.primaries("a").await, fixture.register("a").await);
    let cut_off = fixture.store_that(move |call| {
        let is_out = out.contains(&call.device) && call.key == Some(&key);
        if is_out { Fault::Refuse(ErrorKind::Unavailable) } else { Fault::None }
    });
    let cut_off = session(&with_keys(&cut_off, &[1]), managed());
    let (none, bytes) = (WriteConditions::default(), body(pattern(500, 7)));
    super::super::super::harness::put(&cut_off, "a", bytes, none).await.unwrap();
    assert_eq!(cut_off.given(), AchievedLevel::Degraded);

    // The first page is that of "b": the hint is delivered behind it.
    let both = with_keys(&fixture.store, &[2, 1]);
    let held = HeldRun::new();
    let outcome = held.run(&both, async || fixture.deliver().await).await;
    let new = with_keys(&fixture.store, &[2]);
    let read = get(&new, Keys::default(), "a", Selection::Whole).await;
    assert!(outcome.is_err() || read.is_ok(), "{outcome:?}, {:?}", held.rewrap.progress());
    assert!(rewrap(&both, 10).await.0.is_ok());
    assert!(get(&new, Keys::default(), "a", Selection::Whole).await.is_ok());
}

/// A hint may have a key of the old master key, so a run with a hint somewhere is no success.
#[tokio::test(start_paused = true)]
async fn hints_and_silent_devices_are_no_success() {
    let fixture = RewriteFixture::new().await;
    let both = with_keys(&fixture.store, &[2, 1]);
    put(&both, managed(), "key", body(pattern(3000, 1))).await.unwrap();
    let others = fixture.handoffs("key").await;
    let silent = fixture.store_that(move |call| match call.op {
        CallKind::ListHints if call.device == others[0] => Fault::Hang,
        _ => Fault::None,
    });
    let (outcome, progress) = rewrap(&with_keys(&silent, &[2, 1]), 10).await;
    let sentence = outcome.unwrap_err().to_string();
    assert!(sentence.contains("once all devices answer"), "{sentence}");
    assert_eq!((progress.seen, progress.failed), (1, 0));
    assert!(rewrap(&both, 10).await.0.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_run_survives_a_restart_of_nodes_and_gives_up_without_them() {
    let harness = Harness::new(3, 3);
    create(&harness.store, "b").await;
    let old = with_keys(&harness.store, &[1]);
    for number in 0..40 {
        put(&old, managed(), &format!("k{number:02}"), body(pattern(100, 1))).await.unwrap();
    }
    settle().await;
    let is_down = Arc::new(AtomicBool::new(false));
    let down = is_down.clone();
    let flaky = faulty(&harness.memory, 3, 3, move |call| {
        let is_out = down.load(Ordering::Relaxed) && call.device != DeviceId(1);
        if is_out { Fault::Refuse(ErrorKind::Unavailable) } else { Fault::None }
    });
    let run = |keys: &[u8]| {
        let (down, pages) = (is_down.clone(), AtomicU32::new(0));
        // Two of three nodes end after the first page.
        let clients_wait: Arc<crate::ClientsWait> = Arc::new(move || {
            down.fetch_or(pages.fetch_add(1, Ordering::Relaxed) == 1, Ordering::Relaxed);
            false
        });
        let options =
            RewrapOptions { clients_wait: Some(clients_wait), ..RewrapOptions::default() };
        (with_keys(&flaky, keys), Rewrap::new("b", options).with_page(8))
    };
    let up = is_down.clone();
    let restart = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(20)).await;
        up.store(false, Ordering::Relaxed);
    });
    let (store, rewrap) = run(&[2, 1]);
    let began = Instant::now();
    store.data_keys().rewrap(&rewrap).await.unwrap();
    restart.await.unwrap();
    let progress = rewrap.progress();
    assert_eq!((progress.seen, progress.rewrapped), (40, 40), "{progress:?}");
    assert!(began.elapsed() >= Duration::from_secs(20));

    let (store, rewrap) = run(&[3, 2]);
    let began = Instant::now();
    assert!(store.data_keys().rewrap(&rewrap).await.is_err());
    assert!(began.elapsed() < Duration::from_mins(10), "{:?}", began.elapsed());
    let left = rewrap.progress();
    assert_eq!((left.seen, left.rewrapped), (8, 8), "{left:?}");
}

#[tokio::test]
async fn the_last_count_of_the_bucket_is_the_expected_number() {
    let harness = Harness::with_bucket(1).await;
    let both = with_keys(&harness.store, &[2, 1]);
    for key in ["a", "b", "c"] {
        put(&both, managed(), key, body(pattern(100, 1))).await.unwrap();
    }
    settle().await;
    let count = both.count_bucket("b", &mut |_| ()).await.unwrap();
    martlet_protocol::usage::UsageCounter::report(&both, &count).await.unwrap();
    put(&both, managed(), "later", body(pattern(100, 1))).await.unwrap();
    let (outcome, progress) = rewrap(&both, 10).await;
    outcome.unwrap();
    assert_eq!((progress.expected, progress.seen), (Some(3), 4));
}
