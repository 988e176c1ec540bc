//! The standard set of workers, for every role that runs them.

use std::sync::Arc;
use std::time::Duration;

use martlet_protocol::checkpoints::SetUpkeep;
use martlet_protocol::lifecycle::{Day, ObjectExpiry};
use martlet_protocol::usage::UsageCounter;
use martlet_protocol::{Clock, Error};
use martlet_topology::Topology;

use crate::audit::{Audit, AuditOptions};
use crate::change::RingChange;
use crate::checkpoints::KeepCheckpoints;
use crate::cluster::DeviceScope;
use crate::collect::{Collect, CollectOptions};
use crate::cursors::{Cursors, MemoryCursors};
use crate::expire::{Expire, ExpireOptions};
use crate::owners::Owners;
use crate::owners::sightings::Sightings;
use crate::reclaim::{Reclaim, ReclaimOptions};
use crate::reconstruct::Reconstruct;
use crate::replicate::{ReplicateExtents, ReplicateOptions, ReplicateRegisters};
use crate::runner::Runner;
use crate::sweep::{Sweep, SweepOptions};
use crate::sync::SyncDevices;
use crate::update::Update;
use crate::usage::CountUsage;
use crate::worker::{StepProgress, Worker};

/// Number of failed steps after which a worker that is run once is abandoned.
const FAILURES_MAX: u32 = 8;
/// Milliseconds for which a device under the first ring may wait for its votes from its founders.
const FOUNDING_MS: u64 = 5_000;

/// Inputs of the standard set of workers.
#[derive(Clone)]
pub struct StandardWorkers {
    /// The topology; code that receives a newer ring replaces its cluster.
    pub topology: Topology,
    /// The time source.
    pub clock: Arc<dyn Clock>,
    /// Scope of devices that the workers handle.
    pub scope: DeviceScope,
    /// Options of reclaim; the sweep uses its grace time too.
    pub reclaim: ReclaimOptions,
    /// Start of this process in milliseconds since 1970, if it is the whole cluster: all earlier
    /// writers of extents have ended. None if other proxies may write. Then an extent without an
    /// entry stays until its commit window of 24 hours is over.
    pub alone_since_ms: Option<u64>,
    /// Options of long-running work.
    pub upkeep: UpkeepOptions,
    /// Carries out lifecycle rules on objects; none disables them in this process.
    pub objects: Option<Arc<dyn ObjectExpiry>>,
    /// Counts the contents of buckets with quotas; none disables counting in this process.
    pub usage: Option<Arc<dyn UsageCounter>>,
    /// Looks after checkpoint sets; none disables that in this process.
    pub checkpoints: Option<Arc<dyn SetUpkeep>>,
}

/// Options of work that takes days: verifying everything, and removing old items.
#[derive(Clone)]
pub struct UpkeepOptions {
    /// Rate of the audit.
    pub audit: AuditOptions,
    /// Rate of the replication of extents.
    pub replicate: ReplicateOptions,
    /// Age of a tombstone after which it is collected (rule T1).
    pub reclaim_age: Duration,
    /// Age of an upload after which it is aborted; none: never.
    pub upload_age: Option<Duration>,
    /// Length of a day in lifecycle rules.
    pub lifecycle_day: Day,
    /// Minimum pause between two counts of a bucket.
    pub usage_period: Duration,
    /// Cursors at which long walks continue after a restart.
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

/// Outcome of a worker that was run once.
#[derive(Debug)]
pub struct OnceReport {
    /// Name of the worker.
    pub name: &'static str,
    /// Sum of its progress.
    pub totals: StepProgress,
    /// Error of the last failed step, if any.
    pub error: Option<Error>,
    /// True if no work was left at its end.
    pub ended: bool,
}

impl StandardWorkers {
    /// Returns the workers in the best order for one run: votes, ring change, hints, missing data,
    /// garbage, and finally the audit.
    pub fn workers(&self) -> Vec<Box<dyn Worker>> {
        self.workers_after_founding(0)
    }

    fn workers_after_founding(&self, founding_ms: u64) -> Vec<Box<dyn Worker>> {
        let Self { topology, clock, scope, reclaim, alone_since_ms, upkeep, .. } = self.clone();
        let sweep = match alone_since_ms {
            Some(started_ms) => SweepOptions::alone(reclaim.grace_ms, started_ms),
            None => SweepOptions::among_others(reclaim.grace_ms),
        };
        let sync = SyncDevices::new(topology.clone(), clock.clone(), scope.clone())
            .after_founding(founding_ms);
        let change = RingChange::new(topology.clone(), clock.clone(), scope.clone());
        let update = Update::new(topology.clone(), clock.clone(), scope.clone());
        let registers = ReplicateRegisters::new(topology.clone(), clock.clone(), scope.clone());
        let extents = ReplicateExtents::new(topology.clone(), clock.clone(), scope.clone())
            .with_options(upkeep.replicate)
            .with_cursors(upkeep.cursors.clone());
        let reconstruct = Reconstruct::new(topology.clone(), clock.clone(), scope.clone())
            .with_options(upkeep.replicate)
            .with_cursors(upkeep.cursors.clone());
        let age_ms = |age: Duration| u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        let collect = CollectOptions { age_ms: age_ms(upkeep.reclaim_age) };
        let collect = Collect::new(topology.clone(), clock.clone(), scope.clone(), collect)
            .with_cursors(upkeep.cursors.clone());
        let expire = self.expire(upkeep.upload_age.map(age_ms));
        let sightings = Arc::new(Sightings::load(upkeep.cursors.clone()));
        let owners = Arc::new(Owners::new(sightings, reclaim.grace_ms));
        let reclaim = Reclaim::new(topology.clone(), clock.clone(), reclaim)
            .limited_to(scope.clone())
            .with_owners(owners.clone());
        let sweep = Sweep::new(topology.clone(), clock.clone(), sweep)
            .limited_to(scope.clone())
            .with_owners(owners)
            .with_cursors(upkeep.cursors.clone());
        let audit = Audit::new(topology, scope, upkeep.audit).with_clock(clock);
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
            Box::new(reclaim),
            Box::new(sweep),
            Box::new(audit.with_cursors(upkeep.cursors)),
        ];
        let checkpoints = self.keep_checkpoints().map(|worker| Box::new(worker) as Box<dyn Worker>);
        workers.into_iter().chain(usage).chain(checkpoints).collect()
    }

    fn keep_checkpoints(&self) -> Option<KeepCheckpoints> {
        let Self { topology, clock, scope, checkpoints, .. } = self.clone();
        Some(KeepCheckpoints::new(topology, clock, scope, checkpoints?))
    }

    fn expire(&self, open_age_ms: Option<u64>) -> Expire {
        let Self { topology, clock, scope, upkeep, objects, .. } = self.clone();
        let day = upkeep.lifecycle_day;
        let options = ExpireOptions { open_age_ms, day, ..ExpireOptions::default() };
        let expire = Expire::new(topology, clock, scope, options);
        let expire = expire.with_cursors(upkeep.cursors.clone());
        match objects {
            Some(objects) => expire.with_objects(objects, upkeep.cursors),
            None => expire,
        }
    }

    fn count_usage(&self) -> Option<CountUsage> {
        let Self { topology, clock, scope, upkeep, usage, .. } = self.clone();
        Some(CountUsage::new(topology, clock, scope, usage?, upkeep.usage_period))
    }

    /// Starts the workers.
    pub fn start(&self, runner: &mut Runner) {
        for at in 0..self.workers_after_founding(FOUNDING_MS).len() {
            let standard = self.clone();
            runner.start(move || standard.workers_after_founding(FOUNDING_MS).swap_remove(at));
        }
    }
}

/// Runs each worker until it has no work left, one after another; `observe` receives the progress
/// of each step.
///
/// A failed step doesn't stop the rest: its work waits for the next run.
pub async fn run_all_once(
    workers: &mut [Box<dyn Worker>],
    mut observe: impl FnMut(&'static str, &StepProgress),
) -> Vec<OnceReport> {
    let mut reports = Vec::with_capacity(workers.len());
    for worker in workers {
        let name = worker.name();
        let (mut totals, mut error, mut failures) = (StepProgress::default(), None, 0);
        while !totals.idle && failures < FAILURES_MAX {
            match worker.step().await {
                Ok(progress) => {
                    totals.add(&progress);
                    observe(name, &totals);
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
    use crate::runner::WorkerPace;
    use crate::testing::multi_node::{MultiNodeWorld, key};

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

    fn standard(world: &MultiNodeWorld) -> StandardWorkers {
        StandardWorkers {
            topology: world.shared.clone(),
            clock: world.clock.clone(),
            scope: DeviceScope::All,
            reclaim: ReclaimOptions::default(),
            alone_since_ms: None,
            upkeep: UpkeepOptions::default(),
            objects: None,
            usage: None,
            checkpoints: None,
        }
    }

    /// Wipes a device and stores a hint for a key on it.
    async fn work(world: &MultiNodeWorld) -> DeviceId {
        let key = key("k");
        let wiped = world.primaries(&key)[0];
        world.write_on(&world.primaries(&key), &world.write(&key)).await;
        world.keep_on(world.handoff(&key), &world.write(&key)).await;
        world.wipe(wiped).await;
        world.clock.advance_ms(1000);
        wiped
    }

    #[tokio::test]
    async fn one_run_of_all_grants_votes_delivers_hints_and_reports_both() {
        let world = MultiNodeWorld::new(5);
        let wiped = work(&world).await;
        let mut logged = Vec::new();
        let mut workers = standard(&world).workers();
        let reports = run_all_once(&mut workers, |name, progress| {
            if progress.done > 0 && !logged.contains(&name) {
                logged.push(name);
            }
        });
        let reports = reports.await;
        let done: Vec<_> = reports.iter().map(|it| (it.name, it.totals.done)).collect();
        assert!(reports.iter().all(|it| it.ended), "{reports:?}");
        assert_eq!(reports.iter().map(|it| it.name).collect::<Vec<_>>(), NAMES);
        assert!(done.contains(&("sync", 1)) && done.contains(&("update", 1)), "{done:?}");
        assert!(logged.contains(&"sync") && logged.contains(&"update"), "{logged:?}");
        assert!(world.is_voting(wiped).await && world.hints().await == 0);
    }

    #[tokio::test]
    async fn a_runner_starts_all_of_them() {
        let world = MultiNodeWorld::new(5);
        let wiped = work(&world).await;
        let mut runner = Runner::new(WorkerPace::default(), Arc::default());
        standard(&world).start(&mut runner);
        let statuses = runner.statuses();
        let names: Vec<_> = statuses().iter().map(|status| status.name).collect();
        assert_eq!(names, NAMES);
        for _ in 0..8000 {
            if world.is_voting(wiped).await && world.hints().await == 0 {
                break;
            }
            // A device under the first ring is left to its founders at first.
            world.clock.advance_ms(FOUNDING_MS / 100);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        runner.stop().await;
        assert!(world.is_voting(wiped).await && world.hints().await == 0);
    }

    struct FailingWorker(u32);

    #[async_trait]
    impl Worker for FailingWorker {
        fn name(&self) -> &'static str {
            "failing"
        }

        async fn step(&mut self) -> Result<StepProgress> {
            self.0 += 1;
            Err(Error::unavailable(format!("not at step {}", self.0)))
        }
    }

    #[tokio::test]
    async fn a_worker_that_fails_is_given_up_and_the_others_run() {
        let world = MultiNodeWorld::new(5);
        work(&world).await;
        let mut workers = standard(&world).workers();
        workers.insert(0, Box::new(FailingWorker(0)));
        let reports = run_all_once(&mut workers, |_, _| ()).await;
        assert!(!reports[0].ended && reports[1..].iter().all(|report| report.ended));
        let error = reports[0].error.as_ref().unwrap().to_string();
        assert_eq!(error, format!("not at step {FAILURES_MAX}"));
    }
}
