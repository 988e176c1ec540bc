//! Background work: the standard workers of each replicator, beside the clients and over their
//! network, and the completion of all work after recovery.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::join_all;
use martlet_protocol::Backend;
use martlet_replicator::{
    AuditOptions, CensusOptions, CensusReport, Cursors, DeviceScope, MemoryCursors, ReclaimOptions,
    ReplicateOptions, StandardWorkers, UpkeepOptions, Worker, run_all_once,
};
use martlet_topology::{Cluster, Topology};
use tokio::time::sleep;

use super::chance::SharedRng;
use super::clock::SimulatedClock;
use super::cluster::SimulatedCluster;
use super::network::Caller;
use super::rings::SimulatedRings;

/// Maximum number of rounds of all workers until no work may be left.
const ROUNDS: usize = 30;
/// Pause between two rounds.
const ROUND: Duration = Duration::from_secs(5);
/// Grace time at the end, when overwritten extents have no readers.
const GRACE_MS: u64 = 1000;

/// Settings of background work in a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Background {
    /// Maximum pause between two steps of a worker.
    pub(crate) rest_ms: u64,
    /// Maximum life of a replicator; then another takes its place.
    pub(crate) life_ms: u64,
    /// Grace time before overwritten extents are deleted.
    pub(crate) grace_ms: u64,
    /// Minimum age of an extent that is replicated.
    pub(crate) young_ms: u64,
    /// Minimum age of a tombstone that is collected.
    pub(crate) reclaim_age_ms: u64,
    /// Workers that do nothing until the faults are over: a bit for each, by its place in the list of
    /// standard workers.
    pub(crate) idle_mask: u64,
}

/// One run of a replicator in its place.
struct Replicator {
    topology: Topology,
    workers: Vec<Box<dyn Worker>>,
    alive: Arc<AtomicBool>,
}

impl Drop for Replicator {
    fn drop(&mut self) {
        self.alive.store(false, Ordering::Relaxed);
    }
}

impl Replicator {
    fn begin(
        simulated: &SimulatedCluster,
        place: usize,
        background: &Background,
        cursors: Arc<dyn Cursors>,
    ) -> Self {
        let (alive, member) = (Arc::new(AtomicBool::new(true)), &simulated.replicators[place]);
        let nodes = simulated.links((Caller::Worker(place), member), &alive);
        let cluster = move |rings: &SimulatedRings| {
            let data = vec![rings.data.clone()];
            let cluster = Cluster::partial(rings.index.clone(), data, nodes.clone());
            cluster.expect("there is one data ring")
        };
        let topology = Topology::with_term(cluster(&member.rings()), member.begin());
        let follows = topology.clone();
        member.follow(move |rings| follows.set_cluster(cluster(rings)));
        let workers = StandardWorkers {
            topology: topology.clone(),
            clock: Arc::new(SimulatedClock::new(simulated.network.trace.begun)),
            scope: DeviceScope::All,
            reclaim: ReclaimOptions { grace_ms: background.grace_ms },
            alone_since_ms: None,
            upkeep: UpkeepOptions {
                audit: AuditOptions { rest: Duration::from_secs(1), ..AuditOptions::default() },
                replicate: ReplicateOptions {
                    young_ms: background.young_ms,
                    ..ReplicateOptions::default()
                },
                reclaim_age: Duration::from_millis(background.reclaim_age_ms),
                cursors,
                ..UpkeepOptions::default()
            },
            objects: None,
            usage: None,
            checkpoints: simulated.sets_upkeep(topology.clone()),
        }
        .workers();
        Self { topology, workers, alive }
    }

    /// Runs the steps of all workers but the idle ones, each worker's one after the other.
    async fn live(
        &mut self,
        simulated: &SimulatedCluster,
        chance: &SharedRng,
        background: &Background,
    ) {
        let rest_ms = background.rest_ms;
        let works = |place: usize| background.idle_mask >> (place % 64) & 1 == 0;
        let at_work = self.workers.iter_mut().enumerate().filter(|(place, _)| works(*place));
        let all = at_work.map(|(_, worker)| {
            let chance = chance.fork();
            async move {
                loop {
                    sleep(Duration::from_millis(chance.between(1, rest_ms))).await;
                    if let Err(error) = worker.step().await {
                        let name = worker.name();
                        simulated.network.trace.note(format_args!("{name}: {error}"));
                    }
                }
            }
        });
        join_all(all).await;
    }
}

/// Works forever: in each place, one replicator after the other.
pub(crate) async fn work(
    simulated: &SimulatedCluster,
    chance: &SharedRng,
    background: &Background,
) {
    let places = (0..simulated.replicators.len()).map(|place| {
        let (chance, cursors) = (chance.fork(), Arc::new(MemoryCursors::default()));
        async move {
            loop {
                simulated.network.trace.note(format_args!("replicator {place} begins"));
                let mut replicator =
                    Replicator::begin(simulated, place, background, cursors.clone());
                let life_ms = chance.between(background.life_ms / 4, background.life_ms);
                tokio::select! {
                    biased;
                    () = sleep(Duration::from_millis(life_ms)) => {}
                    () = replicator.live(simulated, &chance, background) => {}
                }
            }
        }
    });
    join_all(places).await;
}

/// Works until every device has its votes and no hint or other work is left.
pub(crate) async fn to_the_end(
    simulated: &SimulatedCluster,
    background: &Background,
) -> Result<(), String> {
    let background = Background { grace_ms: GRACE_MS, young_ms: 0, ..*background };
    let mut replicator =
        Replicator::begin(simulated, 0, &background, Arc::new(MemoryCursors::default()));
    let (mut left, mut quiet) = (String::new(), 0);
    for _ in 0..ROUNDS {
        sleep(ROUND).await;
        let reports = run_all_once(&mut replicator.workers, |_, _| {}).await;
        simulated.network.trace.note(format_args!("WORKERS {reports:?}"));
        left = unfinished(simulated).await;
        quiet = if left.is_empty() { quiet + 1 } else { 0 };
        // Requires two quiet rounds, because the end of one worker's work starts another's.
        if quiet == 2 {
            return Ok(());
        }
    }
    Err(format!("workers come to no end: {left}"))
}

/// Takes the census that operators use.
pub(crate) async fn census(simulated: &SimulatedCluster) -> CensusReport {
    let background = Background {
        rest_ms: 0,
        life_ms: 0,
        grace_ms: 0,
        young_ms: 0,
        reclaim_age_ms: 0,
        idle_mask: 0,
    };
    let replicator =
        Replicator::begin(simulated, 0, &background, Arc::new(MemoryCursors::default()));
    martlet_replicator::census(&replicator.topology, CensusOptions::default(), &mut |_| {}).await
}

/// Describes the remaining work; empty if none.
async fn unfinished(simulated: &SimulatedCluster) -> String {
    let mut left = Vec::new();
    let rings = simulated.rings();
    for device in rings.index.devices().iter().map(|device| device.id) {
        for status in simulated.node_of(device).memory().devices().await.expect("memory answers") {
            if !status.voting {
                left.push(format!("{device} has no votes"));
            }
            if status.hints > 0 {
                left.push(format!("{device} keeps {} hints", status.hints));
            }
            if rings.index.term_at(status.term).is_none() {
                left.push(format!("{device} is at {} still", status.term));
            }
        }
    }
    left.join(", ")
}
