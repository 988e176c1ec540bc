//! A probe of a cluster: a steady load with a checked history, tallies while a fault lasts, and a
//! full check after recovery.
//!
//! ```text
//! Probe::over(cluster) → load → watch("quiet") → break → watch("broken") → mend → finish
//! ```

use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use tokio::time::sleep;

use crate::bytes::chance;
use crate::checkers::{Response, Value};
use crate::cluster::TestCluster;
use crate::cluster::census::ClusterCensus;
use crate::recorded::load::{Load, RunningClients};
use crate::recorded::tally::PeriodCounts;
use crate::recorded::{RecordedClient, Recorder, SOURCES};

/// The bucket of every probe.
pub const BUCKET: &str = "probe";
/// Maximum time for recovery without an operator.
pub const PATIENCE: Duration = Duration::from_secs(40);
/// Minimum number of calls in a tally, unless `WATCH_MAX` is over.
const CALLS_MIN: usize = 200;
const WATCH_MAX: Duration = Duration::from_secs(10);

/// A cluster, the recorded operations of its clients, and a random number generator.
pub struct Probe {
    /// The cluster.
    pub cluster: TestCluster,
    /// Recorder of all operations.
    pub recorder: Arc<Recorder>,
    /// Random number generator.
    pub chance: SmallRng,
    load: Option<(Load, RunningClients)>,
}

impl Probe {
    /// Makes a probe of a running cluster.
    pub async fn over(cluster: TestCluster) -> Self {
        let chance = chance();
        let recorder = recorder(&cluster).await;
        Self { cluster, recorder, chance, load: None }
    }

    /// Runs a load until [`Probe::finish`].
    pub fn load(&mut self, load: Load) {
        assert!(self.load.is_none(), "clients are at work");
        let running = load.start(&self.recorder, &self.cluster, &mut self.chance);
        self.load = Some((load, running));
    }

    /// Runs a load of six clients, for tests of correctness rather than pace.
    pub fn light_load(&mut self) {
        self.load(Load { clients: 6, ..Load::default() });
    }

    /// A recorded client of a proxy.
    pub fn client(&self, proxy: usize) -> RecordedClient {
        self.recorder.client(&self.cluster, proxy)
    }

    /// Tallies the calls of at least so many seconds from now on. A slow machine gets up to 10 s
    /// for 200 calls, because shares of a few calls mean nothing.
    pub async fn watch(&self, name: &'static str, number: f64) -> PeriodCounts {
        let (begun, from) = (Instant::now(), self.recorder.count());
        seconds(number).await;
        while self.recorder.count() < from + CALLS_MIN && begun.elapsed() < WATCH_MAX {
            seconds(0.1).await;
        }
        self.recorder.tally(name, from, begun.elapsed())
    }

    /// Writes objects of a length; returns the value of each key.
    pub async fn put_all(&self, keys: &[String], length: usize) -> Vec<(String, Value)> {
        let (mut client, mut written) = (self.client(0), Vec::new());
        client.length = length;
        for key in keys {
            let (value, outcome) = client.put(key).await;
            assert_eq!(outcome, Response::Done, "{key}: {:?}", client.reply);
            written.push((key.clone(), value));
        }
        written
    }

    /// Asserts that every proxy returns these values.
    pub async fn assert_there(&self, written: &[(String, Value)]) {
        for proxy in 0..self.cluster.proxies.len() {
            let mut client = self.client(proxy);
            for (key, value) in written {
                assert_eq!(client.get_surely(key).await, Some(*value), "{key}");
            }
        }
    }

    /// Pushes the newest rings to node 0, from which the other members fetch them.
    pub async fn push_rings(&self) {
        for name in self.cluster.rings.names() {
            let ring = self.cluster.rings.ring(name);
            assert!(self.cluster.push(0, name, &ring).await, "{name} is refused");
        }
    }

    /// Pauses the load and waits until a census is clean.
    pub async fn settled(&mut self) -> ClusterCensus {
        let load = self.load.as_ref().map(|(load, _)| *load);
        self.rest().await;
        let census = self.cluster.until_clean(PATIENCE).await;
        if let Some(load) = load {
            self.load(load);
        }
        census
    }

    /// Drops previous holders from the rings, as a clean census allows, and pushes the rings.
    pub async fn forget_moves(&mut self) {
        self.cluster.rings.settle();
        self.push_rings().await;
    }

    /// Stops all clients.
    pub async fn rest(&mut self) {
        if let Some((_, running)) = self.load.take() {
            running.stop().await;
        }
    }

    /// Stops the clients, starts all members that are down, and checks all keys and listings.
    pub async fn finish(&mut self) {
        self.rest().await;
        self.cluster.start_all().await;
        self.recorder.finish(&self.cluster).await;
    }
}

/// Returns so many keys with a prefix.
pub fn keys(name: &str, number: usize) -> Vec<String> {
    (0..number).map(|number| format!("{name}/{number:03}")).collect()
}

/// Makes a recorder for a new bucket, and the bucket of the sources of copies.
pub async fn recorder(cluster: &TestCluster) -> Arc<Recorder> {
    for bucket in [BUCKET, SOURCES] {
        make_bucket(cluster, bucket).await;
    }
    Recorder::new(BUCKET)
}

/// Makes a bucket. Retries 503 for 30 s, because replicas of a new cluster may not be ready.
pub async fn make_bucket(cluster: &TestCluster, bucket: &str) {
    let mut client = cluster.client(0);
    until("a bucket is made", Duration::from_secs(30), async || {
        let reply = client.put(&format!("/{bucket}"), "".into()).await.unwrap();
        assert!([200, 409, 503].contains(&reply.status), "{}", reply.text());
        reply.status != 503
    })
    .await;
}

/// Sleeps for so many seconds.
pub async fn seconds(number: f64) {
    sleep(Duration::from_secs_f64(number)).await;
}

/// Polls until `holds` returns true; panics after `patience`.
pub async fn until(what: &str, patience: Duration, mut holds: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !holds().await {
        assert!(begun.elapsed() < patience, "{what}: not within {patience:?}");
        sleep(Duration::from_millis(50)).await;
    }
    println!("{what}: after {:?}", begun.elapsed());
}
