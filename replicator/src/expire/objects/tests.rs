//! Start, continuation and end of the walk over objects.

use async_trait::async_trait;
use martlet_protocol::lifecycle::{ExpiryOutcome, ListedHead, VersionCursor};
use martlet_protocol::{Error, Result, UploadId, VersionId};
use parking_lot::Mutex;

use super::*;
use crate::cursors::MemoryCursors;

const DAY: Day = Day::of_seconds(10);

/// Two ranges in each shard; calls for the bucket `bad` fail, and the second one for `once`.
#[derive(Default)]
struct ScriptedExpiry(Mutex<Vec<Stretch>>);

#[async_trait]
impl ObjectExpiry for ScriptedExpiry {
    async fn carry_out(&self, stretch: &Stretch) -> Result<ExpiryOutcome> {
        let mut calls = self.0.lock();
        calls.push(stretch.clone());
        let of_once = calls.iter().filter(|it| it.bucket == "once").count();
        drop(calls);
        if stretch.bucket == "bad" || stretch.bucket == "once" && of_once == 2 {
            return Err(Error::unavailable("not today"));
        }
        let head = ListedHead { version: VersionId::Null, modified_ms: 3 };
        let within = VersionCursor { version: VersionId::Null, newer: 1, since_ms: 2, head };
        let next = ExpiryCursor { key: "m\n".into(), within: Some(within) };
        let next = stretch.after.is_none().then_some(next);
        Ok(ExpiryOutcome { seen: 3, done: 2, kept: 1, next })
    }

    async fn finish_upload(&self, _: &str, _: &str, _: UploadId) -> Result<bool> {
        Ok(false)
    }
}

fn task(bucket: &str, id: u8, shard: u16) -> Task {
    Task::new(&Bytes::copy_from_slice(bucket.as_bytes()), BucketId([id; 16]), Shard(shard))
}

/// Returns the calls since the last time: bucket, shard, and the key after which to continue.
fn stretches_of(expiry: &ScriptedExpiry) -> Vec<(String, u16, Option<String>)> {
    let stretches = std::mem::take(&mut *expiry.0.lock());
    let names = stretches.into_iter().map(|it| {
        assert_eq!(it.day, DAY);
        (it.bucket, it.shard.0, it.after.map(|place| place.key))
    });
    names.collect()
}

async fn run(objects: &mut Objects) -> StepProgress {
    let mut sum = StepProgress::default();
    while objects.is_under_way() {
        sum.add(&objects.step(DAY).await);
    }
    sum
}

#[tokio::test]
async fn every_shard_is_scanned_to_its_end_and_a_failing_one_delays_no_other() {
    let expiry = Arc::new(ScriptedExpiry::default());
    let mut objects = Objects::new(expiry.clone(), Arc::new(MemoryCursors::default()));
    objects.await_turn(vec![task("b", 2, 1), task("bad", 1, 0), task("b", 2, 0)], 0, 1000);
    assert!(!objects.is_under_way(), "the uploads come first");
    assert!(objects.begin());
    let progress = run(&mut objects).await;
    assert_eq!((progress.items, progress.done, progress.kept), (12, 8, 7));
    let expected = [("bad", 0, None), ("b", 0, None), ("b", 0, Some("m\n")), ("b", 1, None)];
    let stretches = stretches_of(&expiry);
    let names: Vec<_> =
        stretches.iter().map(|(it, at, key)| (&**it, *at, key.as_deref())).collect();
    assert_eq!(names[..4], expected);
    assert_eq!(names[4..], [("b", 1, Some("m\n")), ("bad", 0, None), ("bad", 0, None)]);
}

#[tokio::test]
async fn a_shard_that_failed_goes_on_at_the_end_of_the_walk() {
    let expiry = Arc::new(ScriptedExpiry::default());
    let mut objects = Objects::new(expiry.clone(), Arc::new(MemoryCursors::default()));
    objects.await_turn(vec![task("once", 1, 0), task("b", 2, 0)], 0, 1000);
    assert!(objects.begin());
    run(&mut objects).await;
    let again = Some("m\n".to_owned());
    let of = |bucket: &str, after: &Option<String>| (bucket.to_owned(), 0, after.clone());
    let first = [of("once", &None), of("once", &again), of("b", &None), of("b", &again)];
    assert_eq!(stretches_of(&expiry), [&first[..], &[of("once", &again)]].concat());
}

#[tokio::test]
async fn a_walk_begins_once_in_a_period() {
    let mut objects =
        Objects::new(Arc::new(ScriptedExpiry::default()), Arc::new(MemoryCursors::default()));
    let mut begins = |now_ms| {
        objects.await_turn(vec![task("b", 1, 0)], now_ms, 1000);
        let begins = objects.begin();
        objects.left.clear();
        begins
    };
    assert!(begins(5) && !begins(1004) && begins(1005) && !begins(1006));
    objects.await_turn(Vec::new(), 9000, 1000);
    assert!(!objects.begin(), "there is nothing to go through");
}

#[tokio::test]
async fn a_new_process_goes_on_where_the_last_one_stood() {
    let (expiry, cursors) =
        (Arc::new(ScriptedExpiry::default()), Arc::new(MemoryCursors::default()));
    let tasks = || vec![task("a", 1, 0), task("b", 2, 0), task("b", 2, 1)];
    let mut objects = Objects::new(expiry.clone(), cursors.clone());
    objects.await_turn(tasks(), 0, 1000);
    objects.begin();
    for _ in 0..3 {
        objects.step(DAY).await;
    }
    drop((objects, stretches_of(&expiry)));
    let mut objects = Objects::new(expiry.clone(), cursors.clone());
    objects.await_turn(tasks(), 0, 1000);
    objects.begin();
    run(&mut objects).await;
    let rest = stretches_of(&expiry);
    assert_eq!(rest[0], ("b".to_owned(), 0, Some("m\n".to_owned())));
    assert_eq!(rest.len(), 3);
    // At its end the walk begins anew, in this process and in another one.
    objects.await_turn(tasks(), 1000, 1000);
    objects.begin();
    run(&mut objects).await;
    assert_eq!(stretches_of(&expiry).len(), 6);
    let mut objects = Objects::new(expiry.clone(), cursors);
    objects.await_turn(tasks(), 1999, 1000);
    assert!(!objects.begin(), "a restart is no reason for another walk");
    objects.await_turn(tasks(), 2000, 1000);
    objects.begin();
    run(&mut objects).await;
    assert_eq!(stretches_of(&expiry).len(), 6);
}

#[tokio::test]
async fn a_walk_is_spread_over_half_of_its_period() {
    let (expiry, cursors) =
        (Arc::new(ScriptedExpiry::default()), Arc::new(MemoryCursors::default()));
    let mut objects = Objects::new(expiry, cursors);
    assert_eq!(objects.pause(0, 1000), Duration::ZERO, "no walk is under way");
    let tasks: Vec<Task> = (0..10).map(|shard| task("b", 1, shard)).collect();
    objects.await_turn(tasks, 0, 80_000);
    objects.begin();
    assert_eq!(objects.pause(0, 80_000), PAUSE_MAX);
    // Two steps a shard: eight shards are left, for 16 steps in the last eight seconds.
    for _ in 0..4 {
        objects.step(DAY).await;
    }
    assert_eq!(objects.pause(32_000, 80_000), Duration::from_millis(500));
    assert_eq!(objects.pause(40_000, 80_000), Duration::ZERO, "it is late");
}

#[test]
fn cursors_are_read_as_they_are_written_and_nonsense_is_none() {
    let id = BucketId([7; 16]);
    for key in [None, Some("a b\t\u{e4}"), Some("")] {
        let after = key.map(|key| ExpiryCursor { key: key.to_owned(), within: None });
        let cursor = Task { after, ..task("b", 7, 3) }.cursor();
        let saved = SavedPosition { id, shard: Shard(3), key: key.map(str::to_owned) };
        assert_eq!(parse(&cursor), Some(saved), "{cursor}");
    }
    for nonsense in
        ["", "-", "x 1 -", &format!("{id} x -"), &format!("{id} 1 0g"), &format!("{id} 1")]
    {
        assert_eq!(parse(nonsense), None, "{nonsense}");
    }
    let gone = SavedPosition { id: BucketId([9; 16]), shard: Shard(0), key: Some("k".to_owned()) };
    assert_eq!(from(vec![task("a", 1, 0)], gone), []);
}
