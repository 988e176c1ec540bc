//! One run: a cluster, clients and faults from one seed, and what must hold afterwards.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::join_all;
use martlet_protocol::testing::chance::Seeded;
use martlet_proxy::{NewBucket, StoreOptions};
use martlet_tests::checkers;
use tokio::time::{sleep, timeout};

use super::aftermath;
use super::chance::Chance;
use super::client::{BUCKET, Client};
use super::cluster::Simulated;
use super::faults::{Climate, Schedule, heal};
use super::network::Network;
use super::planted::Bug;
use super::record::Record;
use super::trace::Trace;
use super::workers;

/// A run that takes longer than this, in simulated time, hangs.
const LONGEST: Duration = Duration::from_hours(24);

/// What came of a run.
pub(crate) struct Ran {
    pub(crate) seed: u64,
    pub(crate) schedule: String,
    pub(crate) trace: String,
    /// Operations that clients made, or what is wrong.
    pub(crate) verdict: Result<usize, String>,
}

impl Ran {
    /// What is wrong, and all that it takes to see it again.
    pub(crate) fn failure(&self) -> Option<String> {
        let wrong = self.verdict.as_ref().err()?;
        let Self { seed, schedule, .. } = self;
        Some(format!("seed {seed} (MARTLET_SIM_SEED={seed} repeats it)\n{schedule}\n{wrong}"))
    }
}

/// Runs one seed.
pub(crate) fn run(seed: u64, bug: Bug) -> Ran {
    let _seeded = Seeded::new(seed);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime takes nothing but memory");
    runtime.block_on(async {
        let (trace, mut schedule) = (Trace::new(), String::new());
        let all = AssertUnwindSafe(everything(seed, bug, &trace, &mut schedule)).catch_unwind();
        let verdict = match timeout(LONGEST, all).await {
            Ok(Ok(verdict)) => verdict,
            Ok(Err(panic)) => Err(format!("panicked: {}", said(&*panic))),
            Err(_) => Err("the run hangs".into()),
        };
        Ran { seed, schedule, trace: trace.text(), verdict }
    })
}

fn said(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref().copied()).unwrap_or("something").to_owned()
}

async fn everything(
    seed: u64,
    bug: Bug,
    trace: &Trace,
    said: &mut String,
) -> Result<usize, String> {
    let chance = Chance::new(seed);
    let climate = Climate::drawn(&chance);
    let patience_ms = chance.pick(&[Some(300), Some(1000), Some(5000), Some(5000), None]);
    let network = Network::new(trace.clone(), chance.fork(), bug, patience_ms);
    let options = StoreOptions {
        part_bytes_min: 10,
        bucket_cache_ms: chance.pick(&[0, u64::MAX]),
        ..StoreOptions::default()
    };
    let size = (chance.pick(&[3, 4, 5]), 2 + chance.index(2));
    let simulated = Arc::new(Simulated::new(network, size, options, bug));
    let record = Arc::new(Record::new(trace.clone()));
    let length_ms = chance.pick(&[500, 3_000, 15_000, 60_000]);
    let schedule = Schedule::drawn(&climate, &chance, (simulated.nodes.len(), size.1), length_ms);
    *said = format!(
        "  {size:?} nodes and proxies, patience {patience_ms:?} ms\n  {climate:?}\n{schedule}"
    );

    let new = NewBucket { owner: "me".into(), index_shards: chance.pick(&[1, 4]) };
    let created = simulated.proxy(0).store.create_bucket(BUCKET, new).await;
    created.map_err(|error| format!("no bucket in calm weather: {error}"))?;
    simulated.network.set_weather(climate.weather);
    let keys = ["a", "b/1", "b/2", "c", "d"][..=chance.index(5)].iter();
    let client = Client {
        number: 0,
        simulated: simulated.clone(),
        record: record.clone(),
        chance: chance.fork(),
        keys: keys.map(|key| (*key).to_owned()).collect(),
        deadline: Duration::from_millis(chance.pick(&[2000, 10_000, 30_000])),
        level: None,
    };
    tokio::select! {
        biased;
        () = work(&client, &chance, &schedule, length_ms) => {}
        () = workers::work(&simulated) => {}
    }
    heal(&simulated);
    sleep(Duration::from_mins(1)).await;
    workers::to_the_end(&simulated).await?;
    aftermath::check(&client).await?;
    let history = record.history();
    checkers::check(&history).map_err(|violation| violation.to_string())?;
    if let Some(surprise) = record.surprises().first() {
        return Err(surprise.clone());
    }
    Ok(history.operations.len())
}

/// Clients work while things go wrong.
async fn work(client: &Client, chance: &Chance, schedule: &Schedule, length_ms: u64) {
    let clients = 3 + chance.below(3);
    let operations = 15 + chance.below(20);
    let pause_ms = chance.pick(&[length_ms / 100, length_ms / 30, 2 * length_ms / operations]);
    let simulated = client.simulated.clone();
    let at_work = (1..=clients).map(|number| {
        let number = u32::try_from(number).expect("a handful");
        let client = Client { number, chance: chance.fork(), ..client.clone() };
        async move { client.work(operations, pause_ms).await }
    });
    let at_work: Vec<_> = at_work.collect();
    futures::join!(join_all(at_work), schedule.happen(&simulated));
}
