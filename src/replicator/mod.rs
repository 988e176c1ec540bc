//! `martlet replicator`: the background workers of a cluster, over remote storage nodes.
//!
//! ```text
//! sync, update, reclaim, sweep, expire ─▶ HttpBackend ─▶ storage nodes
//!        ▲                         └─▶ targets of events
//!   newer rings ── membership
//! ```
//!
//! Several replicators may run side by side, each for some of the nodes. Two replicators for one
//! device do double work, but no harm.

mod objects;
mod settings;
mod spread;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use martlet_membership::{Member, MemberRole, NodeCollector, RingCollector, RingSet, StatusSource};
use martlet_notifications::{LogCollector, TargetCollector};
use martlet_protocol::Clock;
use martlet_protocol::checkpoints::SetUpkeep;
use martlet_protocol::usage::UsageCounter;
use martlet_replicator::{
    DeviceScope, Foreground, OnceReport, Runner, StandardWorkers, WorkerPace, run_all_once,
};
use martlet_serving::folder::DataFolder;
use martlet_serving::metrics::Metrics;
use martlet_serving::operator::{AdminParts, Health, RoleCondition};
use martlet_serving::{Failure, logging, runtime, wait_for_stop};
use martlet_topology::{Cluster, Topology};
use tokio::sync::watch;
use tokio::task::JoinSet;

pub(crate) use self::settings::{
    ADMIN_PORT, DATA_DIR, ReplicatorArgs, ReplicatorSettings, WorkerArgs,
};
use self::spread::note_spread;
use crate::policies::check_cpu;
use crate::process::admin_status::worker_lines;
use crate::process::checkpoint_counts::{CheckpointCounts, CountedSets};
use crate::process::host::RoleHost;
use crate::process::metrics::{CheckpointCollector, WorkerCollector};
use crate::process::observers::ObserverTasks;
use crate::process::sources::WorkerSource;
use crate::process::{admin_access, event_routes, workers};

/// Latency of clients' calls at any node above which workers yield. A client's request makes at
/// least two calls in a row and should stay within [`WorkerPace::latency_budget`].
const NODE_BUDGET: Duration = Duration::from_millis(50);
/// Interval between two checks of the index ring's spread.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Runs a replicator until a signal stops it, or each worker once.
pub(crate) fn run(args: &ReplicatorArgs) -> Result<(), Failure> {
    let settings = ReplicatorSettings::load(args)?;
    logging::start(&settings.common)?;
    let threads = settings.common.max_threads;
    if args.once {
        runtime::run(threads, once(settings))
    } else {
        runtime::run(threads, async { serve(settings, RoleHost::own_process()?).await })
    }
}

/// Replicator with an open member.
struct OpenReplicator {
    name: String,
    member: Arc<Member>,
    topology: Topology,
    /// Observers of lifecycle rules.
    observers: ObserverTasks,
    /// Counts of checkpoint sets, as the worker meets them.
    checkpoint_counts: CheckpointCounts,
    standard: StandardWorkers,
}

async fn open(settings: &ReplicatorSettings) -> Result<OpenReplicator, Failure> {
    let name = settings.member.name()?.to_owned();
    let secret = settings.member.secret()?;
    let folder = Arc::new(DataFolder::open(&settings.member.data_dir(DATA_DIR))?);
    let member = Member::open(&settings.member, &secret, folder.clone(), MemberRole::Replicator)?;
    let hurry = workers::test_grace()?;
    let rings = member.keeper.rings();
    let scope = scope(&rings, &settings.nodes)?;
    member.round().await;
    member.check_level()?;
    let rings = member.keeper.rings();
    let topology = Topology::with_term(cluster(&member, &rings)?, member.keeper.known_term());
    note_spread(&topology, &member, &rings);
    let store = objects::open(&member, &topology);
    let clock: Arc<dyn Clock> = member.clock.clone();
    let observers = ObserverTasks::of_rules(&settings.events, &folder, &clock)?;
    let expiry = store.clone().map(|store| observers.expiry(store));
    let usage = store.clone().map(|store| Arc::new(store) as Arc<dyn UsageCounter>);
    let checkpoint_counts = CheckpointCounts::default();
    let checkpoints = store.map(|store| {
        let counted = CountedSets::new(Arc::new(store), checkpoint_counts.clone());
        Arc::new(counted) as Arc<dyn SetUpkeep>
    });
    let standard = StandardWorkers {
        topology: topology.clone(),
        clock,
        scope,
        reclaim: workers::reclaim(settings.reclaim_grace, hurry),
        // Proxies may be writing, so every extent keeps its full commit window.
        alone_since_ms: None,
        upkeep: settings.upkeep.options(&folder, hurry)?,
        objects: expiry,
        usage,
        checkpoints,
    };
    Ok(OpenReplicator { name, member, topology, observers, checkpoint_counts, standard })
}

fn scope(rings: &RingSet, nodes: &[String]) -> Result<DeviceScope, Failure> {
    if let Some(unknown) = nodes.iter().find(|name| !rings.addresses().contains_key(*name)) {
        let known: Vec<&str> = rings.addresses().keys().map(String::as_str).collect();
        return Err(Failure::usage(format!(
            "the rings have no node {unknown}; they have {}",
            known.join(", ")
        )));
    }
    Ok(if nodes.is_empty() { DeviceScope::All } else { DeviceScope::Nodes(nodes.to_vec()) })
}

/// Makes the cluster of these rings. It may be partial: a device without a node delays its own work
/// alone.
fn cluster(member: &Member, rings: &RingSet) -> Result<Cluster, Failure> {
    let index = rings.index().cloned().ok_or_else(|| Failure::refused("there is no index ring"))?;
    check_cpu(rings.data().map(|(_, ring)| &**ring))?;
    let data = rings.data().map(|(_, ring)| ring.clone()).collect();
    Cluster::partial(index, data, member.backends(rings))
        .map_err(|error| Failure::refused(format!("the rings don't form a cluster: {error}")))
}

/// Runs a replicator in this process until a signal stops it.
pub(crate) async fn serve(settings: ReplicatorSettings, host: RoleHost) -> Result<(), Failure> {
    let RoleHost { mut signals, admin, .. } = host;
    let secret = settings.member.secret()?;
    let address = settings.admin_address();
    let (operator, answering) = admin.serve(address, vec![secret.token], &settings.common).await?;
    let OpenReplicator { name, member, topology, observers, checkpoint_counts, standard } =
        open(&settings).await?;
    let mut runner = runner(&member)?;
    standard.start(&mut runner);
    let (stop, stopped) = watch::channel(false);
    let mut tasks = JoinSet::new();
    tasks.spawn(follow_rings(topology, member.clone(), stopped.clone()));
    tasks.spawn(member.clone().keep_up(stopped));
    let statuses: WorkerSource = Arc::new(runner.statuses());
    let [nodes, rings] = [(); 2].map(|()| member.clone());
    let clock: Arc<dyn Clock> = member.clock.clone();
    let role = format!("replicator {name}");
    let status = StatusSource::new(&role, &operator, &member);
    let workers = statuses.clone();
    let status = status.with_workers(Arc::new(move || worker_lines(&workers)));
    member.introduce_itself(status.report_source());
    let data_dir = settings.member.data_dir(DATA_DIR);
    operator.open(AdminParts {
        health: Arc::new(ReplicatorHealth(member.clone())),
        metrics: Metrics::default()
            .with(WorkerCollector(statuses))
            .with(CheckpointCollector(checkpoint_counts))
            .with(LogCollector(observers.figures()))
            .with(TargetCollector(observers.figures()))
            .with(RingCollector(Arc::new(move || rings.ring_lines())))
            .with(NodeCollector(Arc::new(move || nodes.nodes.figures()))),
        routes: status.routes().merge(event_routes::routes(observers.figures(), &data_dir)),
        access: admin_access::of_member(&role, &secret.tokens, clock),
    });
    println!("Martlet replicator {name} runs");

    let signal = signals.next().await;
    tracing::info!(signal, "stopping after each worker finishes its step");
    operator.drain();
    stop.send_replace(true);
    let end = async {
        while tasks.join_next().await.is_some() {}
        runner.stop().await;
        observers.stop().await;
    };
    tokio::select! {
        () = end => {}
        signal = signals.next() => {
            tracing::warn!(signal, "stopping immediately");
            std::process::exit(1);
        }
    }
    answering.end().await;
    Ok(())
}

/// Makes the runner of the workers. They yield to clients by the latency that nodes report in
/// replies.
fn runner(member: &Arc<Member>) -> Result<Runner, Failure> {
    let pace = WorkerPace { latency_budget: NODE_BUDGET, ..workers::pace(workers::test_grace()?) };
    let observed = member.clone();
    let foreground = Foreground::elsewhere(move || observed.nodes.clients_wait());
    Ok(Runner::new(pace, Arc::new(foreground)))
}

/// Applies newer rings to the workers and the object layer, until `stop`.
async fn follow_rings(topology: Topology, member: Arc<Member>, mut stop: watch::Receiver<bool>) {
    let mut changes = member.keeper.changes();
    loop {
        let rings = member.keeper.rings();
        member.nodes.follow(&rings);
        match cluster(&member, &rings) {
            Ok(cluster) => topology.set_cluster(cluster),
            Err(error) => {
                tracing::error!(%error, "could not use newer rings, keeping the old ones");
            }
        }
        loop {
            note_spread(&topology, &member, &member.keeper.rings());
            tokio::select! {
                () = wait_for_stop(&mut stop) => return,
                changed = changes.changed() => if changed.is_err() { return } else { break },
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
        }
    }
}

/// Runs each worker to its end.
async fn once(settings: ReplicatorSettings) -> Result<(), Failure> {
    let OpenReplicator { standard, observers, .. } = open(&settings).await?;
    let reports = run_all_once(&mut standard.workers(), |_, _| {}).await;
    observers.stop().await;
    let unfinished: Vec<&str> =
        reports.iter().filter(|report| !report.ended).map(|report| report.name).collect();
    for report in &reports {
        println!("{}", line(report));
    }
    if unfinished.is_empty() {
        return Ok(());
    }
    let names = unfinished.join(", ");
    Err(Failure::refused(format!("some workers did not finish ({names}): run the command again")))
}

fn line(report: &OnceReport) -> String {
    let OnceReport { name, totals, error, ended } = report;
    let end = match (ended, error) {
        (true, None) => "done".to_owned(),
        (true, Some(error)) => format!("done, after: {error}"),
        (false, Some(error)) => format!("given up: {error}"),
        (false, None) => "given up".to_owned(),
    };
    format!(
        "{name}: {} examined, {} done, {} repaired, {} extents copied, {} freed, {} kept, {} \
         waiting; {end}",
        totals.items,
        totals.done,
        totals.repaired,
        totals.copied,
        totals.freed,
        totals.kept,
        totals.backlog
    )
}

/// Source of a replicator's condition. It serves while any node answers.
struct ReplicatorHealth(Arc<Member>);

#[async_trait]
impl Health for ReplicatorHealth {
    async fn condition(&self) -> RoleCondition {
        let nodes = self.0.nodes.all();
        let silent = nodes.iter().filter(|node| !node.history.answers());
        let mut reasons: Vec<String> =
            silent.map(|node| format!("the node {} does not answer", node.name)).collect();
        reasons.extend(self.0.version_problems());
        let answers = nodes.iter().any(|node| node.history.answers());
        RoleCondition { serves: answers && self.0.level.refusal().is_none(), reasons }
    }
}

#[cfg(test)]
mod tests {
    use martlet_membership::RingName;
    use martlet_membership::testing::ring;
    use martlet_replicator::StepProgress;

    use super::*;

    #[test]
    fn a_worker_that_ran_once_reports_its_counts() {
        let totals =
            StepProgress { items: 9, done: 2, copied: 3, backlog: 1, ..StepProgress::default() };
        let report = OnceReport { name: "replicate-data", totals, error: None, ended: true };
        let expected = "replicate-data: 9 examined, 2 done, 0 repaired, 3 extents copied, 0 freed, \
            0 kept, 1 waiting; done";
        assert_eq!(line(&report), expected);
    }

    #[test]
    fn it_looks_after_nodes_of_the_rings_only() {
        let rings = RingSet::new([(RingName::Index, ring(0, 2))].into()).unwrap();
        assert_eq!(scope(&rings, &[]).unwrap(), DeviceScope::All);
        let one = vec!["n2".to_owned()];
        assert_eq!(scope(&rings, &one).unwrap(), DeviceScope::Nodes(one));
        let refusal = scope(&rings, &["n9".to_owned()]).unwrap_err().to_string();
        assert!(refusal.contains("they have n1, n2"), "{refusal}");
    }
}
