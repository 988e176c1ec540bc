//! Counts: their schedule, their workers, and interrupted counts.

use std::collections::BTreeMap;

use martlet_protocol::usage::Usage;
use martlet_protocol::{BucketId, Error, ManualClock};
use parking_lot::Mutex;

use super::*;
use crate::testing::multi_node::MultiNodeWorld;

const PERIOD: Duration = Duration::from_secs(10);

/// Buckets of two parts each; a part takes a second.
struct ScriptedUsage {
    clock: Arc<ManualClock>,
    buckets: Mutex<Vec<Countable>>,
    reports: Mutex<BTreeMap<String, Vec<(u64, Usage)>>>,
    /// Counts of this bucket fail.
    bad: Mutex<Option<&'static str>>,
}

#[async_trait]
impl UsageCounter for ScriptedUsage {
    async fn countable(&self) -> Result<Vec<Countable>> {
        Ok(self.buckets.lock().clone())
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
        bucket.counted = Some((count.began_ms, self.clock.now_ms() - count.began_ms));
        Ok(())
    }
}

fn bucket(id: u8) -> Countable {
    let name = format!("b{id}");
    Countable { id: BucketId([id; 16]), name, owner: "me".into(), counted: None }
}

fn scripted(ids: impl Iterator<Item = u8>) -> Arc<ScriptedUsage> {
    Arc::new(ScriptedUsage {
        clock: Arc::new(ManualClock::at(1_000_000)),
        buckets: Mutex::new(ids.map(bucket).collect()),
        reports: Mutex::default(),
        bad: Mutex::default(),
    })
}

fn worker(counter: &Arc<ScriptedUsage>, scope: DeviceScope) -> CountUsage {
    let many = MultiNodeWorld::new(4);
    CountUsage::new(many.shared.clone(), counter.clock.clone(), scope, counter.clone(), PERIOD)
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
async fn a_bucket_is_counted_stretch_by_stretch_and_told_when_it_is_whole() {
    let counter = scripted(1..=2);
    let mut worker = worker(&counter, DeviceScope::All);
    let (steps, sum) = run(&mut worker).await;
    assert_eq!(
        (steps, sum.items, sum.done, sum.kept),
        (5, 4, 2, 0),
        "a look, and two stretches each"
    );
    let reports = counter.reports.lock().clone();
    let whole = Usage { bytes: 10, objects: 2, index: 0 };
    assert_eq!(reports["b1"], [(1_000_000, whole)]);
    assert_eq!(reports["b2"], [(1_002_000, whole)]);
}

#[tokio::test]
async fn what_took_long_is_waited_for_ten_times_as_long() {
    let counter = scripted(1..=1);
    let mut worker = worker(&counter, DeviceScope::All);
    run(&mut worker).await;
    for _ in 0..3 {
        counter.clock.advance_ms(6_000);
        run(&mut worker).await;
        assert_eq!(counter.reports.lock()["b1"].len(), 1, "it took 2 s");
    }
    counter.clock.advance_ms(6_000);
    run(&mut worker).await;
    assert_eq!(counter.reports.lock()["b1"].len(), 2);
}

#[tokio::test]
async fn a_count_that_fails_is_begun_anew_and_holds_up_nobody() {
    let counter = scripted(1..=2);
    *counter.bad.lock() = Some("b1");
    let mut worker = worker(&counter, DeviceScope::All);
    let (_, sum) = run(&mut worker).await;
    assert_eq!((sum.done, sum.kept), (1, 1));
    assert!(!counter.reports.lock().contains_key("b1"));
    *counter.bad.lock() = None;
    counter.clock.advance_ms(10_000);
    run(&mut worker).await;
    assert_eq!(counter.reports.lock()["b1"][0].1, Usage { bytes: 10, objects: 2, index: 0 });
}

#[tokio::test]
async fn each_bucket_is_counted_by_one_of_several() {
    let counter = scripted(1..=40);
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
