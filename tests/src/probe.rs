//! A probe of a cluster: a steady load whose history is checked, what clients meet while something
//! is wrong, and the look at all of it when everything is well again.
//!
//! ```text
//! Probe::over(cluster) → load → watch("quiet") → break → watch("broken") → mend → finish
//! ```

use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use tokio::time::sleep;

use crate::bytes::chance;
use crate::checkers::{Outcome, Value};
use crate::cluster::Cluster;
use crate::cluster::census::Census;
use crate::recorded::load::{Load, Running};
use crate::recorded::tally::Tally;
use crate::recorded::{Client, Recorder, SOURCES};

/// The bucket of every probe.
pub const BUCKET: &str = "probe";
/// How long what heals by itself may take.
pub const PATIENCE: Duration = Duration::from_secs(40);
/// What is watched until so many calls were made, or for so long.
const CALLS_MIN: usize = 200;
const WATCH_MAX: Duration = Duration::from_secs(10);

/// A cluster, what its clients did and were told, and chance.
pub struct Probe {
    /// The cluster.
    pub cluster: Cluster,
    /// What was done.
    pub recorder: Arc<Recorder>,
    /// Chance.
    pub chance: SmallRng,
    load: Option<(Load, Running)>,
}

impl Probe {
    /// A probe of a cluster that runs.
    pub async fn over(cluster: Cluster) -> Self {
        let chance = chance();
        let recorder = recorder(&cluster).await;
        Self { cluster, recorder, chance, load: None }
    }

    /// Lets clients work until [`Probe::finish`].
    pub fn load(&mut self, load: Load) {
        assert!(self.load.is_none(), "clients are at work");
        let running = load.start(&self.recorder, &self.cluster, &mut self.chance);
        self.load = Some((load, running));
    }

    /// Lets few clients work: what is looked at is right or wrong, not fast or slow.
    pub fn light_load(&mut self) {
        self.load(Load { clients: 6, ..Load::default() });
    }

    /// A recorded client of a proxy.
    pub fn client(&self, proxy: usize) -> Client {
        self.recorder.client(&self.cluster, proxy)
    }

    /// What clients meet for so many seconds from now on, and longer on a slow machine: shares of a
    /// few calls say nothing.
    pub async fn watch(&self, name: &'static str, number: f64) -> Tally {
        let (begun, from) = (Instant::now(), self.recorder.count());
        seconds(number).await;
        while self.recorder.count() < from + CALLS_MIN && begun.elapsed() < WATCH_MAX {
            seconds(0.1).await;
        }
        self.recorder.tally(name, from, begun.elapsed())
    }

    /// Writes objects of a length; what each holds now.
    pub async fn put_all(&self, keys: &[String], length: usize) -> Vec<(String, Value)> {
        let (mut client, mut written) = (self.client(0), Vec::new());
        client.length = length;
        for key in keys {
            let (value, outcome) = client.put(key).await;
            assert_eq!(outcome, Outcome::Done, "{key}: {:?}", client.reply);
            written.push((key.clone(), value));
        }
        written
    }

    /// Reads objects through every proxy: they are there as they were written.
    pub async fn assert_there(&self, written: &[(String, Value)]) {
        for proxy in 0..self.cluster.proxies.len() {
            let mut client = self.client(proxy);
            for (key, value) in written {
                assert_eq!(client.get_surely(key).await, Some(*value), "{key}");
            }
        }
    }

    /// Hands the newest rings to a node; the others hear of them there.
    pub async fn push_rings(&self) {
        for name in self.cluster.rings.names() {
            let ring = self.cluster.rings.ring(name);
            assert!(self.cluster.push(0, name, &ring).await, "{name} is refused");
        }
    }

    /// Lets clients rest, and the workers work until a census is clean.
    pub async fn settled(&mut self) -> Census {
        let load = self.load.as_ref().map(|(load, _)| *load);
        self.rest().await;
        let census = self.cluster.until_clean(PATIENCE).await;
        if let Some(load) = load {
            self.load(load);
        }
        census
    }

    /// Lets the rings forget previous holders, as a clean census allows.
    pub async fn forget_moves(&mut self) {
        self.cluster.rings.settle();
        self.push_rings().await;
    }

    /// Lets all clients stop.
    pub async fn rest(&mut self) {
        if let Some((_, running)) = self.load.take() {
            running.stop().await;
        }
    }

    /// Lets clients stop, brings back whoever is away, and looks at everything.
    pub async fn finish(&mut self) {
        self.rest().await;
        self.cluster.start_all().await;
        self.recorder.finish(&self.cluster).await;
    }
}

/// So many keys that begin so.
pub fn keys(name: &str, number: usize) -> Vec<String> {
    (0..number).map(|number| format!("{name}/{number:03}")).collect()
}

/// A recorder for a new bucket, beside one for what copies are made from.
pub async fn recorder(cluster: &Cluster) -> Arc<Recorder> {
    for bucket in [BUCKET, SOURCES] {
        make_bucket(cluster, bucket).await;
    }
    Recorder::new(BUCKET)
}

/// Makes a bucket. Replicas that have only just met may ask for a moment's patience.
pub async fn make_bucket(cluster: &Cluster, bucket: &str) {
    let mut client = cluster.client(0);
    until("a bucket is made", Duration::from_secs(30), async || {
        let reply = client.put(&format!("/{bucket}"), "".into()).await.unwrap();
        assert!([200, 409, 503].contains(&reply.status), "{}", reply.text());
        reply.status != 503
    })
    .await;
}

/// So many seconds.
pub async fn seconds(number: f64) {
    sleep(Duration::from_secs_f64(number)).await;
}

/// Asks again and again until the answer is yes.
pub async fn until(what: &str, patience: Duration, mut ask: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !ask().await {
        assert!(begun.elapsed() < patience, "{what}: not within {patience:?}");
        sleep(Duration::from_millis(50)).await;
    }
    println!("{what}: after {:?}", begun.elapsed());
}
