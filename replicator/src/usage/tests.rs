//! Counts: their schedule, their workers, rows that are missing, and interrupted counts.

use std::collections::{BTreeMap, BTreeSet};

use martlet_protocol::key::shard_of;
use martlet_protocol::usage::Usage;
use martlet_protocol::{BucketId, Error, ManualClock};
use parking_lot::Mutex;

use super::*;
use crate::testing::multi_node::MultiNodeWorld;

const PERIOD: Duration = Duration::from_secs(10);

/// Buckets whose rows are read in a second. A listing has two parts, of a second each.
struct ScriptedUsage {
    clock: Arc<ManualClock>,
    buckets: Mutex<Vec<Countable>>,
    reports: Mutex<BTreeMap<String, Vec<(u64, Usage)>>>,
    /// Buckets whose rows are missing.
    unkept: Mutex<BTreeSet<&'static str>>,
    /// Usage by the rows of each bucket.
    usage: Mutex<Usage>,
    /// Number of buckets in each request for rows, and of looks.
    requests: Mutex<Vec<usize>>,
    looks: Mutex<usize>,
    /// Number of published counts that were read again.
    read_again: Mutex<usize>,
    /// Counts of this bucket fail.
    bad: Mutex<Option<&'static str>>,
}

#[async_trait]
impl UsageCounter for ScriptedUsage {
    async fn countable(&self, shards: &BTreeSet<Shard>) -> Result<Vec<Countable>> {
        *self.looks.lock() += 1;
        let is_in = |bucket: &Countable| {
            shards.contains(&shard_of(bucket.name.as_bytes(), INDEX_SHARDS_DEFAULT))
        };
        Ok(self.buckets.lock().iter().filter(|bucket| is_in(bucket)).cloned().collect())
    }

    async fn last_count(&self, bucket: &Countable) -> Result<Option<Counted>> {
        *self.read_again.lock() += 1;
        if *self.bad.lock() == Some(&*bucket.name) {
            return Err(Error::unavailable("not today"));
        }
        let buckets = self.buckets.lock();
        Ok(buckets.iter().find(|it| it.id == bucket.id).and_then(|it| it.counted))
    }

    async fn add_up(&self, buckets: &[Countable]) -> Result<Vec<Option<Usage>>> {
        self.clock.advance_ms(1000);
        self.requests.lock().push(buckets.len());
        let (unkept, usage) = (self.unkept.lock(), *self.usage.lock());
        let of = |bucket: &Countable| (!unkept.contains(&*bucket.name)).then_some(usage);
        Ok(buckets.iter().map(of).collect())
    }

    async fn count(&self, count: &mut Count) -> Result<()> {
        self.clock.advance_ms(1000);
        if *self.bad.lock() == Some(&*count.bucket.name) {
            return Err(Error::unavailable("not today"));
        }
        count.usage = count.usage.plus(Usage { bytes: 5, objects: 1, index: 0 });
        count.seen = 1;
        count.at = match count.at {
            CountAt::Versions(shard, None) => {
                CountAt::Versions(shard, Some(("m".to_owned(), None)))
            }
            _ => CountAt::Done,
        };
        Ok(())
    }

    async fn report(&self, count: &Count) -> Result<()> {
        let report = (count.began_ms, count.usage);
        self.reports.lock().entry(count.bucket.name.clone()).or_default().push(report);
        let mut buckets = self.buckets.lock();
        let bucket = buckets.iter_mut().find(|it| it.id == count.bucket.id).expect("it was asked");
        let (usage, began_ms) = (count.usage, count.began_ms);
        let took_ms = self.clock.now_ms() - began_ms;
        bucket.counted = Some(Counted { usage, began_ms, took_ms });
        Ok(())
    }
}

impl ScriptedUsage {
    fn reports_of(&self, name: &str) -> Vec<(u64, Usage)> {
        self.reports.lock().get(name).cloned().unwrap_or_default()
    }
}

const KEPT: Usage = Usage { bytes: 70, objects: 7, index: 700 };
const LISTED: Usage = Usage { bytes: 10, objects: 2, index: 0 };

fn bucket(id: u16, limited: bool) -> Countable {
    let mut bytes = [1; 16];
    bytes[..2].copy_from_slice(&id.to_be_bytes());
    let (name, owner) = (format!("b{id}"), "me".to_owned());
    let (own, counted) = (Usage::default(), None);
    Countable { id: BucketId(bytes), name, owner, index_shards: 4, limited, own, counted }
}

fn scripted(ids: impl Iterator<Item = u16>, limited: bool) -> Arc<ScriptedUsage> {
    Arc::new(ScriptedUsage {
        clock: Arc::new(ManualClock::at(1_000_000)),
        buckets: Mutex::new(ids.map(|id| bucket(id, limited)).collect()),
        reports: Mutex::default(),
        unkept: Mutex::default(),
        usage: Mutex::new(KEPT),
        requests: Mutex::default(),
        looks: Mutex::default(),
        read_again: Mutex::default(),
        bad: Mutex::default(),
    })
}

fn worker(counter: &Arc<ScriptedUsage>, scope: DeviceScope) -> CountUsage {
    worker_in(&MultiNodeWorld::new(4), counter, scope)
}

fn worker_in(
    world: &MultiNodeWorld,
    counter: &Arc<ScriptedUsage>,
    scope: DeviceScope,
) -> CountUsage {
    CountUsage::new(world.shared.clone(), counter.clock.clone(), scope, counter.clone(), PERIOD)
}

/// Runs until no work is left; returns the number of steps.
async fn run(worker: &mut CountUsage) -> (u32, StepProgress) {
    let (mut steps, mut sum) = (0, StepProgress::default());
    loop {
        steps += 1;
        sum.add(&worker.step().await.unwrap());
        if sum.idle {
            return (steps, sum);
        }
    }
}

#[tokio::test]
async fn buckets_are_added_up_many_at_a_time_and_published() {
    let counter = scripted(1..=3000, true);
    let mut worker = worker(&counter, DeviceScope::All);
    let (steps, sum) = run(&mut worker).await;
    assert_eq!((steps, sum.items, sum.done, sum.kept), (3, 3000, 3000, 0), "a look, and two steps");
    assert_eq!(*counter.requests.lock(), [2048, 952]);
    assert_eq!(counter.reports_of("b1"), [(1_000_000, KEPT)]);
    assert_eq!(counter.reports_of("b3000"), [(1_001_000, KEPT)]);
    // Each bucket took its share of a step: all are due after a period.
    counter.clock.advance_ms(11_000);
    assert_eq!(run(&mut worker).await.1.done, 3000);
}

#[tokio::test]
async fn buckets_under_a_quota_are_published_often_and_others_if_they_change() {
    let counter = scripted(1..=1, true);
    counter.buckets.lock().push(bucket(2, false));
    let mut worker = worker(&counter, DeviceScope::All);
    let passes = async |worker: &mut CountUsage, count: u32| {
        for _ in 0..count {
            counter.clock.advance_ms(20_000);
            run(worker).await;
        }
        (counter.reports_of("b1").len(), counter.reports_of("b2").len())
    };
    run(&mut worker).await;
    assert_eq!(passes(&mut worker, 31).await, (32, 1), "ten minutes");
    assert_eq!(passes(&mut worker, 31).await, (63, 1), "b2 has not changed");
    counter.usage.lock().objects = 8;
    assert_eq!(passes(&mut worker, 31).await, (94, 2));
    for _ in 0..25 {
        counter.clock.advance_ms(3_600_000);
        run(&mut worker).await;
    }
    assert_eq!(counter.reports_of("b2").len(), 3, "once a day");
    counter.buckets.lock()[1].limited = true;
    assert_eq!(passes(&mut worker, 2).await.1, 5);
}

#[tokio::test]
async fn a_bucket_without_rows_is_listed_if_a_quota_needs_it() {
    let counter = scripted(1..=2, true);
    counter.buckets.lock()[1].limited = false;
    *counter.unkept.lock() = BTreeSet::from(["b1", "b2"]);
    let mut worker = worker(&counter, DeviceScope::All);
    let (_, sum) = run(&mut worker).await;
    assert_eq!((sum.done, sum.kept), (1, 1));
    assert_eq!(counter.reports_of("b1"), [(1_001_000, LISTED)]);
    assert_eq!(counter.reports_of("b2"), []);
    counter.unkept.lock().clear();
    counter.clock.advance_ms(30_000);
    run(&mut worker).await;
    assert_eq!(counter.reports_of("b1").last(), Some(&(1_033_000, KEPT)));
    assert_eq!(counter.reports_of("b2"), [(1_033_000, KEPT)]);
}

#[tokio::test]
async fn the_pause_after_a_count_is_ten_times_its_duration() {
    let counter = scripted(1..=1, true);
    *counter.unkept.lock() = BTreeSet::from(["b1"]);
    let mut worker = worker(&counter, DeviceScope::All);
    run(&mut worker).await;
    for _ in 0..3 {
        counter.clock.advance_ms(6_000);
        run(&mut worker).await;
        assert_eq!(counter.reports_of("b1").len(), 1, "it took 2 s");
    }
    counter.clock.advance_ms(6_000);
    run(&mut worker).await;
    assert_eq!(counter.reports_of("b1").len(), 2);
}

#[tokio::test]
async fn a_failed_count_restarts_and_delays_no_other() {
    let counter = scripted(1..=2, true);
    *counter.unkept.lock() = BTreeSet::from(["b1", "b2"]);
    *counter.bad.lock() = Some("b1");
    let mut worker = worker(&counter, DeviceScope::All);
    let (_, sum) = run(&mut worker).await;
    assert_eq!((sum.done, sum.kept), (1, 1));
    assert_eq!(counter.reports_of("b1"), []);
    *counter.bad.lock() = None;
    counter.clock.advance_ms(10_000);
    run(&mut worker).await;
    assert_eq!(counter.reports_of("b1")[0].1, LISTED);
}

#[tokio::test]
async fn each_bucket_is_counted_by_one_of_several() {
    let counter = scripted(1..=40, false);
    let mut by = Vec::new();
    for node in 0..4 {
        let mut worker = worker(&counter, DeviceScope::Nodes(vec![format!("n{node}")]));
        let (_, sum) = run(&mut worker).await;
        by.push(sum.done);
    }
    assert_eq!(by.iter().sum::<u64>(), 40, "{by:?}");
    assert!(counter.reports.lock().values().all(|reports| reports.len() == 1));
    assert!(by.iter().filter(|done| **done > 0).count() > 1, "{by:?}");
}

#[tokio::test]
async fn looks_are_as_rare_as_a_period_and_a_deleted_bucket_is_forgotten() {
    let counter = scripted(1..=2, true);
    let mut worker = worker(&counter, DeviceScope::All);
    for _ in 0..5 {
        run(&mut worker).await;
    }
    assert_eq!(*counter.looks.lock(), 1);
    counter.buckets.lock().pop();
    counter.clock.advance_ms(30_000);
    run(&mut worker).await;
    assert_eq!(*counter.looks.lock(), 2);
    assert_eq!((counter.reports_of("b1").len(), counter.reports_of("b2").len()), (2, 1));
}

/// The list of buckets has 16 shards, so few workers look, and another one takes over while the first
/// primary of a shard is silent.
#[tokio::test]
async fn few_of_many_nodes_look_and_another_one_takes_over_for_a_silent_one() {
    let (world, counter) = (MultiNodeWorld::new(100), scripted(1..=200, false));
    let all = |world: &MultiNodeWorld| {
        let scope = |node| DeviceScope::Nodes(vec![format!("n{node}")]);
        (0..100).map(|node| worker_in(world, &counter, scope(node))).collect::<Vec<_>>()
    };
    let mut working = Vec::new();
    for (node, worker) in (0..).zip(&mut all(&world)) {
        if run(worker).await.1.done > 0 {
            working.push(DeviceId(node));
        }
    }
    assert!(counter.reports.lock().values().all(|reports| reports.len() == 1), "by one each");
    assert_eq!(counter.reports.lock().len(), 200);
    assert!((1..=16).contains(&working.len()), "{working:?}");
    assert!(*counter.looks.lock() <= 48, "{} looks", counter.looks.lock());

    let silent = working[0];
    world.memory(silent).set_offline(silent, true);
    counter.clock.advance_ms(UNCHANGED_MS + 700_000);
    let others = all(&world).into_iter().enumerate().filter(|(node, _)| *node != silent.0 as usize);
    for (_, mut worker) in others {
        run(&mut worker).await;
    }
    assert!(counter.reports.lock().values().all(|reports| reports.len() == 2), "by one other each");
}

/// A count that another worker published since the look isn't taken for the bucket's own last one.
#[tokio::test]
async fn the_last_count_is_read_again_before_a_bucket_counts_as_unchanged() {
    let counter = scripted(1..=2, false);
    let mut worker = worker(&counter, DeviceScope::All);
    run(&mut worker).await;
    assert_eq!((counter.reports_of("b1").len(), *counter.read_again.lock()), (1, 0));
    // Looks are rare enough here that the worker knows nothing of the other count.
    worker.look_at_ms = u64::MAX;
    let other = Usage { bytes: 1, objects: 1, index: 1 };
    counter.buckets.lock()[0].counted =
        Some(Counted { usage: other, began_ms: counter.clock.now_ms(), took_ms: 1 });
    counter.clock.advance_ms(700_000);
    run(&mut worker).await;
    assert_eq!(*counter.read_again.lock(), 2);
    assert_eq!(counter.reports_of("b1").len(), 2, "published again, over the other count");
    assert_eq!(counter.reports_of("b1")[1].1, KEPT);
    assert_eq!(counter.reports_of("b2").len(), 1, "unchanged");

    *counter.bad.lock() = Some("b1");
    counter.clock.advance_ms(700_000);
    let (_, sum) = run(&mut worker).await;
    assert_eq!((sum.done, sum.kept), (0, 1), "b2 is as it was, and b1 is unknown");
}

/// A node that votes while no worker counts for it: the worker of the next primary takes over, late.
#[tokio::test]
async fn late_counts_are_taken_over_by_the_worker_of_another_primary() {
    let (world, counter) = (MultiNodeWorld::new(3), scripted(1..=40, true));
    let scope = |node| DeviceScope::Nodes(vec![format!("n{node}")]);
    let mut others: Vec<_> = (1..3).map(|node| worker_in(&world, &counter, scope(node))).collect();
    for other in &mut others {
        run(other).await;
    }
    let counted = counter.reports.lock().len();
    assert!(counted < 40, "n0 is the first primary of some shards");
    for _ in 0..30 {
        counter.clock.advance_ms(20_000);
        for other in &mut others {
            run(other).await;
        }
    }
    assert_eq!(counter.reports.lock().len(), 40);
}
