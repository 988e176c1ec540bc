//! Background work: hints are delivered and votes given back while clients work, and everything is
//! done that is left to do when all is right again.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use martlet_protocol::{Backend, PolicyId};
use martlet_replicator::{
    Cluster, ReclaimOptions, Scope, SharedCluster, Standard, SyncDevices, Update, Worker,
    run_all_once,
};
use tokio::time::sleep;

use super::clock::SimulatedClock;
use super::cluster::Simulated;
use super::network::Caller;

/// Rounds of all workers after which nothing may be left to do.
const ROUNDS: usize = 20;
/// Readers of what was overwritten have this long at the end, when there are none.
const GRACE_MS: u64 = 1000;
/// Between two steps of a worker.
const REST: Duration = Duration::from_millis(700);

fn shared(simulated: &Simulated) -> SharedCluster {
    let ring = simulated.ring.clone();
    let nodes = simulated.links(Caller::Worker, &Arc::new(AtomicBool::new(true)));
    Cluster { index: ring.clone(), data: [(PolicyId(0), ring)].into(), nodes }.into()
}

/// Works for ever beside the clients, through the same network.
pub(crate) async fn work(simulated: &Simulated) {
    let clock = Arc::new(SimulatedClock::new(simulated.network.trace.begun));
    let cluster = shared(simulated);
    let mut workers: [Box<dyn Worker>; 2] = [
        Box::new(SyncDevices::new(cluster.clone(), clock.clone(), Scope::All)),
        Box::new(Update::new(cluster, clock, Scope::All)),
    ];
    loop {
        for worker in &mut workers {
            sleep(REST).await;
            let step = worker.step().await;
            if let Some(error) = step.err() {
                simulated.network.trace.note(format_args!("{}: {error}", worker.name()));
            }
        }
    }
}

/// Works until there is nothing to do: every device has its votes, and no hint is left.
pub(crate) async fn to_the_end(simulated: &Simulated) -> Result<(), String> {
    let mut workers = Standard {
        cluster: shared(simulated),
        clock: Arc::new(SimulatedClock::new(simulated.network.trace.begun)),
        scope: Scope::All,
        reclaim: ReclaimOptions { grace_ms: GRACE_MS },
        alone_since_ms: None,
    }
    .workers();
    let mut left = String::new();
    for _ in 0..ROUNDS {
        sleep(Duration::from_secs(5)).await;
        let reports = run_all_once(&mut workers, |_, _| {}).await;
        simulated.network.trace.note(format_args!("WORKERS {reports:?}"));
        left = unfinished(simulated).await;
        if left.is_empty() {
            return Ok(());
        }
    }
    Err(format!("workers come to no end: {left}"))
}

/// What there is still to do.
async fn unfinished(simulated: &Simulated) -> String {
    let mut left = Vec::new();
    for node in &simulated.nodes {
        for device in node.memory().devices().await.expect("memory answers") {
            if !device.voting {
                left.push(format!("{} has no votes", device.device));
            }
            if device.hints > 0 {
                left.push(format!("{} keeps {} hints", device.device, device.hints));
            }
        }
    }
    left.join(", ")
}
