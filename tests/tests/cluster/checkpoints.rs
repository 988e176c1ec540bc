//! Checkpoint sets under kills, pauses, cuts and partitions of all members: `make checkpoints-faults`.
//!
//! Two savers write the same sets in four orders, a third publishes a folder under another name.
//! Readers list and read the view, retention keeps two generations of a series, and a purger deletes
//! all noncurrent versions that it may. Each round has a bucket of its own, and its history is checked.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use martlet_tests::bytes::chance;
use martlet_tests::checkers::sets::SetReply;
use martlet_tests::cluster::{ClusterPlan, TestCluster};
use martlet_tests::recorded::sets::{MARKER, SHARDS, SetClient, SetRecorder, UploadOrder};
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use tokio::task::JoinHandle;

use super::{make_bucket, seconds};

const VERSIONING: &str =
    "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
const RULES: &str = r#"{"rules": [{"pattern": "run/*/", "profile": "dcp"},
    {"pattern": "kept/*/", "profile": "dcp", "keep": 2}]}"#;
/// Number of generations that the second rule keeps.
const KEEP: usize = 2;
/// Folders that savers write, of both rules.
const SETS: [&str; 4] = ["run/1/", "run/2/", "kept/1/", "kept/2/"];
/// Set that is published from a folder which no rule covers.
const PUBLISHED: &str = "run/3/";
const UNRULED: &str = "tmp/";
const ORDERS: [UploadOrder; 4] =
    [UploadOrder::MarkerLast, UploadOrder::ByName, UploadOrder::Backwards, UploadOrder::AtOnce];
const LENGTHS: [usize; 4] = [100, 5_000, 20_000, 300_000];
/// Faults in a round: checking takes longer than a history grows.
const FAULTS_A_ROUND: usize = 25;
/// Maximum time for all sets to be readable once everything is right again.
const RECOVERY: Duration = Duration::from_mins(1);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_s7_checkpoints_survive_some_faults() {
    under_faults("s1_s7_checkpoints_survive_some_faults", 10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it causes MARTLET_FAULTS faults (500), which takes a quarter of an hour"]
async fn checkpoints_survive_everything() {
    let faults = std::env::var("MARTLET_FAULTS").map_or(500, |text| text.parse().unwrap());
    under_faults("checkpoints_survive_everything", faults).await;
}

async fn under_faults(test: &str, faults: usize) {
    let Some(mut cluster) = ClusterPlan::default().start_on_hosts(test).await else { return };
    let (mut chance, mut done, begun) = (chance(), 0, Instant::now());
    for round in 0.. {
        if done >= faults {
            break;
        }
        let bucket = format!("round-{round}");
        furnish(&cluster, &bucket).await;
        let load = Load::start(&cluster, &bucket, &mut chance);
        let of_round = FAULTS_A_ROUND.min(faults - done);
        for _ in 0..of_round {
            misfortune(&mut cluster, &mut chance).await;
        }
        seconds(2.0).await;
        done += of_round;
        load.finish(&cluster).await;
        println!("{done} faults in {:?}", begun.elapsed());
    }
    let census = cluster.until_clean(Duration::from_mins(2)).await;
    println!("{done} faults; {census}");
}

/// Makes a bucket with versions and rules.
async fn furnish(cluster: &TestCluster, bucket: &str) {
    make_bucket(cluster, bucket).await;
    let mut client = cluster.client(0);
    for (target, document) in [("versioning", VERSIONING), ("checkpoints", RULES)] {
        let begun = Instant::now();
        let target = format!("/{bucket}?{target}=");
        loop {
            let reply = client.send("PUT", &target, document.into()).await;
            if reply.as_ref().is_ok_and(|reply| reply.status < 300) {
                break;
            }
            assert!(begun.elapsed() < RECOVERY, "{target}: {reply:?}");
            seconds(0.2).await;
        }
        // Other proxies know it a second later.
        seconds(1.5).await;
    }
}

/// Clients at work.
struct Load {
    recorder: Arc<SetRecorder>,
    stop: Arc<AtomicBool>,
    clients: Vec<JoinHandle<()>>,
    purged: Arc<[AtomicUsize; 2]>,
}

/// Task of a client, repeated until the load ends.
#[derive(Clone, Copy)]
enum Job {
    Save,
    Publish,
    Read,
    ReadObjects,
    Purge,
}

const JOBS: [Job; 7] =
    [Job::Save, Job::Save, Job::Publish, Job::Read, Job::Read, Job::ReadObjects, Job::Purge];

impl Load {
    fn start(cluster: &TestCluster, bucket: &str, chance: &mut SmallRng) -> Self {
        let recorder = SetRecorder::new(bucket, &["kept/"], KEEP);
        let (stop, purged) = (Arc::new(AtomicBool::new(false)), Arc::<[AtomicUsize; 2]>::default());
        let endpoints = cluster.endpoints();
        let start = |(number, job): (usize, Job)| {
            let client = recorder.client(&endpoints, number);
            let chance = SmallRng::seed_from_u64(chance.random());
            let (stop, purged) = (stop.clone(), purged.clone());
            tokio::spawn(Worker { client, chance, purged }.work(job, stop))
        };
        let clients = JOBS.into_iter().enumerate().map(start).collect();
        Self { recorder, stop, clients, purged }
    }

    /// Stops the clients, reads all sets through all proxies, and checks everything.
    async fn finish(self, cluster: &TestCluster) {
        self.stop.store(true, Ordering::Relaxed);
        for client in self.clients {
            client.await.unwrap();
        }
        for proxy in 0..cluster.proxies.len() {
            let mut client = self.recorder.client(&cluster.endpoints(), proxy);
            client.is_loyal = true;
            for set in SETS.into_iter().chain([PUBLISHED]) {
                load(&mut client, set).await;
            }
        }
        let [deleted, refused] = &*self.purged;
        println!("{deleted:?} versions were purged, {refused:?} were pinned");
        assert!(self.recorder.commits() > 0, "nothing was committed");
        self.recorder.check();
        cluster.assert_no_panic();
    }
}

/// Lists and reads the newest generation of a set, until all requests are answered.
async fn load(client: &mut SetClient, set: &str) {
    let begun = Instant::now();
    for rest in [None, Some(SHARDS[0]), Some(SHARDS[1]), Some(MARKER)] {
        loop {
            let reply = match rest {
                None => client.list_view(set, None).await,
                Some(rest) => client.get_view(set, rest, None).await,
            };
            if reply != SetReply::Unknown {
                break;
            }
            assert!(begun.elapsed() < RECOVERY, "{set}{rest:?} can't be read");
            seconds(0.2).await;
        }
    }
}

struct Worker {
    client: SetClient,
    chance: SmallRng,
    purged: Arc<[AtomicUsize; 2]>,
}

impl Worker {
    async fn work(mut self, job: Job, stop: Arc<AtomicBool>) {
        while !stop.load(Ordering::Relaxed) {
            seconds(self.chance.random_range(0.01..0.1)).await;
            match job {
                Job::Save => self.save().await,
                Job::Publish => self.publish().await,
                Job::Read => self.read().await,
                Job::ReadObjects => self.read_objects().await,
                Job::Purge => self.purge().await,
            }
        }
    }

    fn set(&mut self) -> &'static str {
        SETS.choose(&mut self.chance).unwrap()
    }

    fn rest(&mut self) -> &'static str {
        [SHARDS[0], SHARDS[1], MARKER][self.chance.random_range(0..3)]
    }

    async fn save(&mut self) {
        let set = self.set();
        if self.chance.random_ratio(1, 3) {
            self.client.delete(&format!("{set}{MARKER}")).await;
        }
        let order = *ORDERS.choose(&mut self.chance).unwrap();
        let length = *LENGTHS.choose(&mut self.chance).unwrap();
        let reply = self.client.save(set, length, order).await;
        if let SetReply::Committed(number) = reply {
            self.client.list_view(set, Some(number)).await;
        }
    }

    async fn publish(&mut self) {
        self.client.publish(UNRULED, PUBLISHED, 3_000).await;
        let set = self.set();
        let numbers = self.client.numbers(set).await;
        let Some(number) = numbers.choose(&mut self.chance) else { return };
        match self.chance.random_range(0..20) {
            0 => self.client.withdraw(set, *number).await,
            1 => self.client.hold(set, *number).await,
            _ => {}
        }
    }

    async fn read(&mut self) {
        let set = if self.chance.random_ratio(1, 5) { PUBLISHED } else { self.set() };
        let rest = self.rest();
        match self.chance.random_range(0..4) {
            0 | 1 => drop(self.client.list_view(set, None).await),
            2 => drop(self.client.get_view(set, rest, None).await),
            _ => {
                let numbers = self.client.numbers(set).await;
                let Some(number) = numbers.choose(&mut self.chance) else { return };
                self.client.list_view(set, Some(*number)).await;
                self.client.get_view(set, rest, Some(*number)).await;
            }
        }
    }

    async fn read_objects(&mut self) {
        let set = self.set();
        let rest = self.rest();
        self.client.get(&format!("{set}{rest}")).await;
    }

    async fn purge(&mut self) {
        let set = self.set();
        let (deleted, refused) = self.client.purge(set).await;
        self.purged[0].fetch_add(deleted, Ordering::Relaxed);
        self.purged[1].fetch_add(refused, Ordering::Relaxed);
    }
}

/// Causes one random fault for 0.2 to 1.2 s.
async fn misfortune(cluster: &mut TestCluster, chance: &mut SmallRng) {
    let (node, proxy) = (chance.random_range(0..4), chance.random_range(0..3));
    let worker = chance.random_range(0..cluster.replicators.len());
    let names = (format!("n{}", node + 1), format!("p{}", proxy + 1));
    let what = chance.random_range(0..10);
    match what {
        0 | 1 => cluster.nodes[node].kill(),
        2 | 3 => cluster.proxies[proxy].kill(),
        4 => cluster.replicators[worker].kill(),
        5 => cluster.nodes[node].pause(),
        6 => cluster.proxies[proxy].pause(),
        7 => cluster.network().cut(&names.0, &names.1),
        8 => cluster.network().cut_one_way(&names.0, &names.1),
        // A partition: one node on its own.
        _ => {
            for other in (1..=3).map(|number| format!("p{number}")) {
                cluster.network().cut(&names.0, &other);
            }
            for other in (1..=4).map(|number| format!("r{number}")) {
                cluster.network().cut(&names.0, &other);
            }
        }
    }
    seconds(chance.random_range(0.2..1.2)).await;
    match what {
        5 => cluster.nodes[node].resume(),
        6 => cluster.proxies[proxy].resume(),
        _ => {}
    }
    cluster.network().heal();
    cluster.start_all().await;
}
