//! One run: a cluster, clients and faults from one seed, and the checks afterwards.

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::join_all;
use martlet_protocol::Settings;
use martlet_protocol::testing::seeded_ids::SeededIds;
use martlet_proxy::{NewBucket, StoreOptions};
use martlet_tests::checkers;
use tokio::time::{sleep, timeout};

use super::aftermath;
use super::chance::SharedRng;
use super::client::{BUCKET, SimulatedClient};
use super::cluster::{SimulatedCluster, Size};
use super::faults::{Climate, Schedule, heal};
use super::load::Loads;
use super::network::SimulatedNetwork;
use super::operator::{self, RingChangePlan};
use super::planted::Bug;
use super::record::RunRecord;
use super::reduction::{OperationId, Reduction, RunParts};
use super::sets::{self, SimulatedRules};
use super::trace::Trace;
use super::versions;
use super::workers::{self, Background};

/// Maximum simulated time of a run; a longer run hangs.
const LONGEST: Duration = Duration::from_hours(48);

const HOUR_MS: u64 = 60 * 60_000;

/// Subject of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// Objects, uploads and versions.
    Objects,
    /// Checkpoint sets, and their objects.
    Sets,
}

/// Result of a run.
pub(crate) struct RunOutcome {
    pub(crate) seed: u64,
    /// Parts that were left out.
    pub(crate) reduction: Reduction,
    pub(crate) setup: RunSetup,
    pub(crate) trace: String,
    /// Number of the clients' operations, or the failure.
    pub(crate) verdict: Result<usize, String>,
}

/// Draws of a run, and what took place.
#[derive(Default)]
pub(crate) struct RunSetup {
    /// Settings and faults, for people.
    schedule: String,
    /// Parts that took place.
    pub(crate) parts: RunParts,
    /// Simulated time under load and faults; zero if the run failed before their end.
    pub(crate) under_load: Duration,
}

impl RunOutcome {
    /// Returns the failure, with everything needed to repeat it.
    pub(crate) fn failure(&self) -> Option<String> {
        let wrong = self.verdict.as_ref().err()?;
        let Self { seed, reduction, .. } = self;
        let schedule = &self.setup.schedule;
        let reduced = match reduction.to_string() {
            text if text.is_empty() => text,
            text => format!(" MARTLET_SIM_REDUCTION=\"{text}\""),
        };
        let repeats = format!("MARTLET_SIM_SEED={seed}{reduced} repeats it");
        Some(format!("seed {seed} ({repeats})\n{schedule}\n{wrong}"))
    }
}

/// Runs one seed, without the parts that are left out.
pub(crate) fn run(seed: u64, subject: Subject, bug: Bug, reduction: Reduction) -> RunOutcome {
    let _seeded = SeededIds::new(seed);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime takes nothing but memory");
    runtime.block_on(async {
        let (trace, mut setup) = (Trace::new(), RunSetup::default());
        let input = RunInput { seed, subject, bug, reduction: &reduction };
        let all = AssertUnwindSafe(everything(input, &trace, &mut setup)).catch_unwind();
        let verdict = match timeout(LONGEST, all).await {
            Ok(Ok(verdict)) => verdict,
            Ok(Err(panic)) => Err(format!("panicked: {}", message_of(&*panic))),
            Err(_) => Err("the run hangs".into()),
        };
        RunOutcome { seed, reduction, setup, trace: trace.text(), verdict }
    })
}

fn message_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref().copied()).unwrap_or("something").to_owned()
}

/// Everything that determines a run.
#[derive(Clone, Copy)]
struct RunInput<'a> {
    seed: u64,
    subject: Subject,
    bug: Bug,
    reduction: &'a Reduction,
}

/// Draws the settings of background work. In one run of four half of the workers are idle.
fn background(chance: &SharedRng, apart: &SharedRng, length_ms: u64) -> Background {
    let idle_mask = if apart.per_mille(250) { apart.below(u64::MAX) } else { 0 };
    Background {
        idle_mask,
        rest_ms: chance.pick(&[length_ms / 100, length_ms / 30]).max(50),
        life_ms: chance.pick(&[length_ms / 3, 1_000_000_000]).max(1000),
        grace_ms: chance.pick(&[5_000, 120_000]),
        young_ms: chance.pick(&[0, 1000, 30_000]),
        reclaim_age_ms: 12 * 60 * 1000,
    }
}

async fn everything(
    input: RunInput<'_>,
    trace: &Trace,
    setup: &mut RunSetup,
) -> Result<usize, String> {
    let RunInput { seed, subject, bug, reduction } = input;
    let chance = SharedRng::new(seed);
    // Drawn from a generator of its own, so that seeds keep their other draws.
    let apart = SharedRng::new(!seed);
    let size = size(&chance);
    let drawn_ms = chance.pick(&[500, 3_000, 15_000, 15_000, 60_000, 60_000, HOUR_MS]);
    // Premature collection shows only in runs that outlast the reclaim age.
    let length_ms = if bug == Bug::CollectsInSilence { HOUR_MS } else { drawn_ms };
    let has_sets = subject == Subject::Sets;
    let mut climate = Climate::drawn(&chance, size.nodes, length_ms, has_sets);
    if reduction.is_calm {
        climate.calm();
    }
    let patience_ms = chance.pick(&[Some(300), Some(1000), Some(5000), Some(5000), None]);
    let draws = chance.below(u64::MAX).wrapping_add(reduction.draws << 32);
    let network = SimulatedNetwork::new(trace.clone(), draws, bug, patience_ms);
    let options = options(&chance);
    let simulated =
        Arc::new(SimulatedCluster::new(network, size, (options, has_sets), (&chance, bug)));
    let record = Arc::new(RunRecord::new(trace.clone()));
    let crowd = (simulated.nodes.len(), size.proxies);
    let mut schedule = Schedule::drawn(&climate, &chance, crowd, length_ms);
    schedule.reduce(reduction);
    let plan = ring_changes(&chance, (size, length_ms), &climate, reduction);
    let keeps_versions = apart.per_mille(300);
    let rules = has_sets.then(|| SimulatedRules::drawn(&apart, bug));
    let background = background(&chance, &apart, length_ms);
    let loads = Arc::new(Loads::drawn(&apart));
    setup.schedule = format!(
        "  {size:?}, versions {keeps_versions}, {rules:?}, patience {patience_ms:?} ms\n  {climate:?}\n  \
         {background:?}\n  {}\n  {plan:?}\n\
         {schedule}",
        if has_sets { format!("{:?}", loads.sets) } else { format!("{:?}", loads.objects) },
    );
    (setup.parts.faults, setup.parts.ring_changes) = (schedule.numbers(), plan.len());

    make_bucket(&simulated, chance.pick(&[1, 4]), keeps_versions && !has_sets).await?;
    if let Some(rules) = rules {
        rules.set(&simulated, bug).await?;
    }
    simulated.network.set_weather(climate.weather);
    let client = client(&simulated, &record, &chance, (keeps_versions, has_sets), loads);
    let crowd = Crowd::drawn(&chance, length_ms);
    setup.parts.operations = crowd.operations(reduction);
    tokio::select! {
        biased;
        () = work(&client, &crowd, &schedule, reduction) => {}
        () = workers::work(&simulated, &chance, &background), if !reduction.is_idle => {}
        () = at_rings(&plan, &simulated, &chance) => {}
    }
    setup.under_load = trace.begun.elapsed();
    Box::pin(end(&client, &background, rules)).await?;
    judge(&record, has_sets)
}

/// Draws the ring changes of a run. A third of the runs have none.
fn ring_changes(
    chance: &SharedRng,
    (size, length_ms): (Size, u64),
    climate: &Climate,
    reduction: &Reduction,
) -> RingChangePlan {
    let mut plan = match chance.below(3) {
        0 => RingChangePlan::default(),
        _ => RingChangePlan::drawn(chance, size, climate.dead(chance), length_ms),
    };
    plan.truncate(reduction.ring_changes.unwrap_or(usize::MAX));
    plan
}

/// Draws the client of which the others of a run are copies.
fn client(
    simulated: &Arc<SimulatedCluster>,
    record: &Arc<RunRecord>,
    chance: &SharedRng,
    (keeps_versions, has_sets): (bool, bool),
    loads: Arc<Loads>,
) -> SimulatedClient {
    let keys = ["a", "b/1", "b/2", "c", "d"][..=chance.index(5)].iter();
    let keys = keys.map(|key| (*key).to_owned()).collect();
    SimulatedClient {
        number: 0,
        simulated: simulated.clone(),
        record: record.clone(),
        chance: chance.fork(),
        keys: if has_sets { sets::keys().into() } else { keys },
        deadline: Duration::from_millis(chance.pick(&[2000, 10_000, 30_000])),
        level: None,
        keeps_versions,
        has_sets,
        loads,
    }
}

/// Draws the settings of proxies.
fn options(chance: &SharedRng) -> StoreOptions {
    StoreOptions {
        part_bytes_min: 10,
        bucket_cache_ms: chance.pick(&[0, u64::MAX]),
        ..StoreOptions::default()
    }
}

/// Draws the size of a cluster.
fn size(chance: &SharedRng) -> Size {
    Size {
        nodes: chance.pick(&[3, 4, 5]),
        spares: chance.index(3),
        proxies: 2 + chance.index(2),
        replicators: 2,
        part_power: chance.pick(&[1, 3]),
    }
}

/// Checks the history of the bucket; returns the number of operations.
fn judge(record: &RunRecord, has_sets: bool) -> Result<usize, String> {
    let history = record.history();
    let history = if has_sets { sets::with_retention(history) } else { history };
    checkers::check(&history).map_err(|violation| violation.to_string())?;
    match record.surprises().first() {
        Some(surprise) => Err(surprise.clone()),
        None => Ok(history.operations.len()),
    }
}

async fn make_bucket(
    simulated: &SimulatedCluster,
    index_shards: u16,
    keeps_versions: bool,
) -> Result<(), String> {
    let settings = Settings::default();
    let new = NewBucket { owner: "me".into(), index_shards, policy: None, settings };
    let created = simulated.proxy(0).store.buckets().create(BUCKET, new).await;
    created.map_err(|error| format!("no bucket in calm weather: {error}"))?;
    if keeps_versions { versions::enable(simulated).await } else { Ok(()) }
}

/// Ends all faults, waits for the workers, and runs all checks.
async fn end(
    client: &SimulatedClient,
    background: &Background,
    rules: Option<SimulatedRules>,
) -> Result<(), String> {
    let simulated = &client.simulated;
    heal(simulated);
    operator::push_all(simulated);
    sleep(Duration::from_mins(1)).await;
    workers::to_the_end(simulated, background).await?;
    if operator::settle(simulated) {
        workers::to_the_end(simulated, background).await?;
    }
    aftermath::check(client).await?;
    if let Some(rules) = rules {
        Box::pin(sets::check(client, background, rules)).await?;
    }
    sleep(Duration::from_millis(background.reclaim_age_ms + 60_000)).await;
    workers::to_the_end(simulated, background).await?;
    aftermath::count(simulated, background.reclaim_age_ms).await?;
    aftermath::read_all(client).await
}

/// Runs the plan of ring changes while clients work.
async fn at_rings(plan: &RingChangePlan, simulated: &SimulatedCluster, chance: &SharedRng) {
    plan.carry_out(simulated, chance).await;
    std::future::pending::<()>().await;
}

/// Clients of a run, by the seed of each, and their operations.
struct Crowd {
    clients: Vec<SharedRng>,
    /// Number of operations of each client.
    operations: u64,
    /// Maximum pause between two operations.
    pause_ms: u64,
}

impl Crowd {
    fn drawn(chance: &SharedRng, length_ms: u64) -> Self {
        let clients = 3 + chance.below(3);
        let operations = 15 + chance.below(20);
        let pauses_ms = [length_ms / 100, length_ms / 30, 2 * length_ms / operations];
        let pause_ms = chance.pick(&pauses_ms);
        let clients = (0..clients).map(|_| chance.fork()).collect();
        Self { clients, operations, pause_ms }
    }

    /// Clients with their numbers.
    fn numbered(&self) -> impl Iterator<Item = (u32, &SharedRng)> {
        (1..).zip(&self.clients)
    }

    /// Operations that take place.
    fn operations(&self, reduction: &Reduction) -> BTreeSet<OperationId> {
        let of = |client| (0..self.operations).map(move |number| OperationId { client, number });
        let all = self.numbered().flat_map(|(client, _)| of(client));
        all.filter(|id| reduction.has_operation(*id)).collect()
    }
}

/// Runs clients during the faults.
async fn work(client: &SimulatedClient, crowd: &Crowd, schedule: &Schedule, reduction: &Reduction) {
    let simulated = client.simulated.clone();
    let at_work = crowd.numbered().map(|(number, chance)| {
        let client = SimulatedClient { number, chance: chance.clone(), ..client.clone() };
        async move { client.work(crowd.operations, crowd.pause_ms, reduction).await }
    });
    let at_work: Vec<_> = at_work.collect();
    futures::join!(join_all(at_work), schedule.happen(&simulated));
}
