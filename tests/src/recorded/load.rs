//! Concurrent recorded clients with random calls.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::task::JoinHandle;

use super::client::RecordedClient;
use super::recorder::Recorder;
use super::write_methods::WriteMethod;
use crate::checkers::{Response, Value};
use crate::cluster::TestCluster;

/// Inline and packed, with both sides of the limit between them. Larger objects are slow to write.
const LENGTHS: [usize; 8] = [0, 100, 100, 1_000, 8_000, 9_000, 40_000, 200_000];

/// Lengths from 0 bytes on, with objects of several fragments.
pub const CODED_LENGTHS: [usize; 8] = [0, 100, 8_000, 9_000, 70_000, 200_000, 300_000, 1_200_000];

/// Ways of writing: most objects are put.
const WAYS: [WriteMethod; 8] = [
    WriteMethod::Put,
    WriteMethod::Put,
    WriteMethod::Put,
    WriteMethod::Put,
    WriteMethod::Put,
    WriteMethod::Put,
    WriteMethod::Parts,
    WriteMethod::Copy,
];

/// Size and mix of a load.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Concurrent clients, dealt to the proxies in turn.
    pub clients: usize,
    /// Number of keys that all clients share.
    pub keys: u32,
    /// Pause of each client between two calls.
    pub pause: Duration,
    /// True if conditional writes are among the calls.
    pub conditional: bool,
    /// Lengths of objects in bytes.
    pub lengths: &'static [usize],
    /// True if no two clients touch one key, so that no write loses a race.
    pub apart: bool,
}

impl Default for Load {
    fn default() -> Self {
        let pause = Duration::from_millis(5);
        let lengths = &LENGTHS;
        Self { clients: 9, keys: 12, pause, conditional: true, lengths, apart: false }
    }
}

/// Running clients. They work until [`RunningClients::stop`].
pub struct RunningClients {
    clients: Vec<JoinHandle<()>>,
    stop: Arc<std::sync::atomic::AtomicBool>,
}

impl Load {
    /// Starts all clients.
    pub fn start(
        &self,
        recorder: &Arc<Recorder>,
        cluster: &TestCluster,
        chance: &mut SmallRng,
    ) -> RunningClients {
        let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let start = |number| {
            let client = recorder.client(cluster, number);
            let chance = SmallRng::seed_from_u64(chance.random());
            let worker = LoadWorker { client, number, chance, load: *self, seen: Vec::new() };
            tokio::spawn(worker.run(stop.clone()))
        };
        let clients = (0..self.clients).map(start).collect();
        RunningClients { clients, stop }
    }

    /// Runs all clients for a time.
    pub async fn run(
        &self,
        recorder: &Arc<Recorder>,
        cluster: &TestCluster,
        chance: &mut SmallRng,
        time: Duration,
    ) {
        let running = self.start(recorder, cluster, chance);
        tokio::time::sleep(time).await;
        running.stop().await;
    }
}

impl RunningClients {
    /// Stops each client after its present call.
    pub async fn stop(self) {
        self.stop.store(true, std::sync::atomic::Ordering::Relaxed);
        let begun = Instant::now();
        for ended in join_all(self.clients).await {
            ended.unwrap();
        }
        println!("the last calls took {:?}", begun.elapsed());
    }
}

struct LoadWorker {
    client: RecordedClient,
    number: usize,
    chance: SmallRng,
    load: Load,
    /// Values seen last, for use in conditions.
    seen: Vec<(String, Value)>,
}

impl LoadWorker {
    async fn run(mut self, stop: Arc<std::sync::atomic::AtomicBool>) {
        while !stop.load(std::sync::atomic::Ordering::Relaxed) {
            self.step().await;
            tokio::time::sleep(self.load.pause).await;
        }
    }

    async fn step(&mut self) {
        let (what, key) = (self.chance.random_range(0..20), self.key());
        let lengths = self.load.lengths;
        self.client.length = lengths[self.chance.random_range(0..lengths.len())];
        self.client.way = WAYS[self.chance.random_range(0..WAYS.len())];
        let seen = self.seen.iter().rfind(|(other, _)| *other == key).map(|(_, value)| *value);
        let conditional = self.load.conditional;
        match (what, seen) {
            (0..4, _) => {
                let (value, outcome) = self.client.put(&key).await;
                self.note(&key, value, &outcome);
            }
            (4..6, _) => drop(self.client.delete(&key).await),
            (6..8, _) if conditional => {
                let (value, outcome) = self.client.create(&key).await;
                self.note(&key, value, &outcome);
            }
            (8..11, Some(expected)) if conditional => {
                let (value, outcome) = self.client.replace(&key, expected).await;
                self.note(&key, value, &outcome);
            }
            (11, Some(expected)) if conditional => {
                self.client.delete_if(&key, expected).await;
            }
            (12, _) => self.list().await,
            _ => {
                if let Response::Read(Some(value)) = self.client.get(&key).await {
                    self.note(&key, value, &Response::Done);
                }
            }
        }
    }

    fn key(&mut self) -> String {
        let number = self.chance.random_range(0..self.load.keys);
        if self.load.apart {
            return format!("k/{:02}-{number:02}", self.number);
        }
        format!("k/{number:02}")
    }

    async fn list(&mut self) {
        let keys_max = [3, 5, 1000][self.chance.random_range(0..3)];
        let after = format!("k/{:02}", self.chance.random_range(0..self.load.keys));
        let after = if self.chance.random() { &after } else { "" };
        // A client that lists another client's keys may come between that client and its write.
        let prefix = if self.load.apart { format!("k/{:02}-", self.number) } else { "k/".into() };
        self.client.list(&prefix, after, keys_max).await;
    }

    fn note(&mut self, key: &str, value: Value, outcome: &Response) {
        if *outcome == Response::Done {
            self.seen.retain(|(other, _)| other != key);
            self.seen.push((key.to_owned(), value));
        }
    }
}
