//! The standard set of workers, in one place for every role that runs them.

use std::sync::Arc;
use std::time::Duration;

use martlet_protocol::lifecycle::{Day, ObjectExpiry};
use martlet_protocol::usage::UsageCounter;
use martlet_protocol::{Clock, Error};

use crate::audit::{Audit, AuditOptions};
use crate::change::RingChange;
use crate::cluster::{Scope, SharedCluster};
use crate::collect::{Collect, CollectOptions};
use crate::cursors::{Cursors, MemoryCursors};
use crate::expire::{Expire, ExpireOptions};
use crate::reclaim::{Reclaim, ReclaimOptions};
use crate::reconstruct::Reconstruct;
use crate::replicate::{ReplicateExtents, ReplicateOptions, ReplicateRegisters};
use crate::runner::Runner;
use crate::sweep::{Sweep, SweepOptions};
use crate::sync::SyncDevices;
use crate::update::Update;
use crate::usage::CountUsage;
use crate::worker::{Progress, Worker};

/// Failed steps after which a worker that is run once is given up.
const FAILURES_MAX: u32 = 8;
/// How long a device under the first ring may be about to get its votes as one of a new cluster.
const FOUNDING_MS: u64 = 5_000;

/// What the standard set of workers works on.
#[derive(Clone)]
pub struct Standard {
    /// The cluster; whoever learns of a newer ring replaces it.
    pub cluster: SharedCluster,
    /// The time source.
    pub clock: Arc<dyn Clock>,
    /// Whose devices they look after.
    pub scope: Scope,
    /// How they reclaim: their grace time is the sweep's too.
    pub reclaim: ReclaimOptions,
    /// When this process started, in milliseconds since 1970, if it is the whole cluster: then whoever
    /// wrote an extent before is gone. None where other proxies may be writing: then an extent without
    /// an entry stays until its commit window of 24 hours is over.
    pub alone_since_ms: Option<u64>,
    /// How what lasts is kept whole.
    pub upkeep: UpkeepOptions,
    /// Who carries out what the rules of buckets say of objects; none: nobody here.
    pub objects: Option<Arc<dyn ObjectExpiry>>,
    /// Who counts what buckets with quotas hold; none: nobody here.
    pub usage: Option<Arc<dyn UsageCounter>>,
}

/// How the workers go about what takes days: reading everything, and letting go of what is old.
#[derive(Clone)]
pub struct UpkeepOptions {
    /// How fast everything is read and verified.
    pub audit: AuditOptions,
    /// How fast extents are brought to where they belong.
    pub replicate: ReplicateOptions,
    /// How old a tombstone is before it is collected (rule T1).
    pub reclaim_age: Duration,
    /// How old an upload is before it is given up; none: never.
    pub upload_age: Option<Duration>,
    /// How long the days of lifecycle rules are.
    pub lifecycle_day: Day,
    /// How long after one count of a bucket the next may begin.
    pub usage_period: Duration,
    /// Where long walks go on after a restart.
    pub cursors: Arc<dyn Cursors>,
}

impl Default for UpkeepOptions {
    fn default() -> Self {
        Self {
            audit: AuditOptions::default(),
            replicate: ReplicateOptions::default(),
            reclaim_age: Duration::from_hours(7 * 24),
            upload_age: None,
            lifecycle_day: Day::FULL,
            usage_period: Duration::from_secs(10),
            cursors: Arc::new(MemoryCursors::default()),
        }
    }
}

/// What a worker that was run once came to.
#[derive(Debug)]
pub struct OnceReport {
    /// The worker's name.
    pub name: &'static str,
    /// What it did.
    pub totals: Progress,
    /// The last step that failed, if one did.
    pub error: Option<Error>,
    /// Whether it came to its end.
    pub ended: bool,
}

impl Standard {
    /// The workers, in the order in which one run is best made: votes, then who decides, then hints,
    /// then what is missing somewhere, then garbage; and in the end everything is read.
    pub fn workers(&self) -> Vec<Box<dyn Worker>> {
        self.workers_after_founding(0)
    }

    fn workers_after_founding(&self, founding_ms: u64) -> Vec<Box<dyn Worker>> {
        let Self { cluster, clock, scope, reclaim, alone_since_ms, upkeep, .. } = self.clone();
        let sweep = match alone_since_ms {
            Some(started_ms) => SweepOptions::alone(reclaim.grace_ms, started_ms),
            None => SweepOptions::among_others(reclaim.grace_ms),
        };
        let sync = SyncDevices::new(cluster.clone(), clock.clone(), scope.clone())
            .after_founding(founding_ms);
        let change = RingChange::new(cluster.clone(), clock.clone(), scope.clone());
        let update = Update::new(cluster.clone(), clock.clone(), scope.clone());
        let registers = ReplicateRegisters::new(cluster.clone(), clock.clone(), scope.clone());
        let extents = ReplicateExtents::new(cluster.clone(), clock.clone(), scope.clone())
            .with_options(upkeep.replicate)
            .with_cursors(upkeep.cursors.clone());
        let reconstruct = Reconstruct::new(cluster.clone(), clock.clone(), scope.clone())
            .with_options(upkeep.replicate)
            .with_cursors(upkeep.cursors.clone());
        let age_ms = |age: Duration| u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        let collect = CollectOptions { age_ms: age_ms(upkeep.reclaim_age) };
        let collect = Collect::new(cluster.clone(), clock.clone(), scope.clone(), collect);
        let expire = self.expire(upkeep.upload_age.map(age_ms));
        let reclaim = Reclaim::new(cluster.clone(), clock.clone(), reclaim);
        let sweep = Sweep::new(cluster.clone(), clock, sweep);
        let audit = Audit::new(cluster, scope.clone(), upkeep.audit);
        let usage = self.count_usage().map(|worker| Box::new(worker) as Box<dyn Worker>);
        let workers: Vec<Box<dyn Worker>> = vec![
            Box::new(sync),
            Box::new(change),
            Box::new(update),
            Box::new(registers),
            Box::new(extents),
            Box::new(reconstruct),
            Box::new(expire),
            Box::new(collect),
            Box::new(reclaim.looking_after(scope.clone())),
            Box::new(sweep.looking_after(scope)),
            Box::new(audit.with_cursors(upkeep.cursors)),
        ];
        workers.into_iter().chain(usage).collect()
    }

    fn expire(&self, open_age_ms: Option<u64>) -> Expire {
        let Self { cluster, clock, scope, upkeep, objects, .. } = self.clone();
        let day = upkeep.lifecycle_day;
        let options = ExpireOptions { open_age_ms, day, ..ExpireOptions::default() };
        let expire = Expire::new(cluster, clock, scope, options);
        match objects {
            Some(objects) => expire.with_objects(objects, upkeep.cursors),
            None => expire,
        }
    }

    fn count_usage(&self) -> Option<CountUsage> {
        let Self { cluster, clock, scope, upkeep, usage, .. } = self.clone();
        Some(CountUsage::new(cluster, clock, scope, usage?, upkeep.usage_period))
    }

    /// Starts them.
    pub fn start(&self, runner: &mut Runner) {
        for at in 0..self.workers_after_founding(FOUNDING_MS).len() {
            let standard = self.clone();
            runner.start(move || standard.workers_after_founding(FOUNDING_MS).swap_remove(at));
        }
    }
}

/// Takes each worker to the end of what it can do now, one after another, and tells of every step.
///
/// A step that fails is no reason to leave the rest undone: what it was about waits for the next run.
pub async fn run_all_once(
    workers: &mut [Box<dyn Worker>],
    mut tell: impl FnMut(&'static str, &Progress),
) -> Vec<OnceReport> {
    let mut reports = Vec::with_capacity(workers.len());
    for worker in workers {
        let name = worker.name();
        let (mut totals, mut error, mut failures) = (Progress::default(), None, 0);
        while !totals.idle && failures < FAILURES_MAX {
            match worker.step().await {
                Ok(progress) => {
                    totals.add(&progress);
                    tell(name, &totals);
                }
                Err(failed) => {
                    failures += 1;
                    error = Some(failed);
                }
            }
        }
        reports.push(OnceReport { name, ended: totals.idle, totals, error });
    }
    reports
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use async_trait::async_trait;
    use martlet_protocol::{DeviceId, Result};

    use super::*;
    use crate::runner::Pace;
    use crate::testing::many::{Many, key};

    const NAMES: [&str; 11] = [
        "sync",
        "ring-change",
        "update",
        "replicate-index",
        "replicate-data",
        "reconstruct",
        "expire",
        "collect",
        "reclaim",
        "sweep",
        "audit",
    ];

    fn standard(world: &Many) -> Standard {
        Standard {
            cluster: world.shared.clone(),
            clock: world.clock.clone(),
            scope: Scope::All,
            reclaim: ReclaimOptions::default(),
            alone_since_ms: None,
            upkeep: UpkeepOptions::default(),
            objects: None,
            usage: None,
        }
    }

    /// A wiped device and a hint for a key on it.
    async fn work(world: &Many) -> DeviceId {
        let key = key("k");
        let wiped = world.primaries(&key)[0];
        world.write_on(&world.primaries(&key), &world.write(&key)).await;
        world.keep_on(world.handoff(&key), &world.write(&key)).await;
        world.wipe(wiped).await;
        world.clock.advance_ms(1000);
        wiped
    }

    #[tokio::test]
    async fn one_run_of_all_gives_votes_and_delivers_hints_and_tells_of_it() {
        let world = Many::new(5);
        let wiped = work(&world).await;
        let mut told = Vec::new();
        let mut workers = standard(&world).workers();
        let reports = run_all_once(&mut workers, |name, progress| {
            if progress.done > 0 && !told.contains(&name) {
                told.push(name);
            }
        });
        let reports = reports.await;
        let done: Vec<_> = reports.iter().map(|it| (it.name, it.totals.done)).collect();
        assert!(reports.iter().all(|it| it.ended), "{reports:?}");
        assert_eq!(reports.iter().map(|it| it.name).collect::<Vec<_>>(), NAMES);
        assert!(done.contains(&("sync", 1)) && done.contains(&("update", 1)), "{done:?}");
        assert!(told.contains(&"sync") && told.contains(&"update"), "{told:?}");
        assert!(world.is_voting(wiped).await && world.hints().await == 0);
    }

    #[tokio::test]
    async fn a_runner_starts_all_of_them() {
        let world = Many::new(5);
        let wiped = work(&world).await;
        let mut runner = Runner::new(Pace::default(), Arc::default());
        standard(&world).start(&mut runner);
        let statuses = runner.statuses();
        let names: Vec<_> = statuses().iter().map(|status| status.name).collect();
        assert_eq!(names, NAMES);
        for _ in 0..8000 {
            if world.is_voting(wiped).await && world.hints().await == 0 {
                break;
            }
            // A device under the first ring is left to its founders for a while.
            world.clock.advance_ms(FOUNDING_MS / 100);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        runner.stop().await;
        assert!(world.is_voting(wiped).await && world.hints().await == 0);
    }

    struct Failing(u32);

    #[async_trait]
    impl Worker for Failing {
        fn name(&self) -> &'static str {
            "failing"
        }

        async fn step(&mut self) -> Result<Progress> {
            self.0 += 1;
            Err(Error::unavailable(format!("not at step {}", self.0)))
        }
    }

    #[tokio::test]
    async fn a_worker_that_fails_is_given_up_and_the_others_run() {
        let world = Many::new(5);
        work(&world).await;
        let mut workers = standard(&world).workers();
        workers.insert(0, Box::new(Failing(0)));
        let reports = run_all_once(&mut workers, |_, _| ()).await;
        assert!(!reports[0].ended && reports[1..].iter().all(|report| report.ended));
        let error = reports[0].error.as_ref().unwrap().to_string();
        assert_eq!(error, format!("not at step {FAILURES_MAX}"));
    }
}
