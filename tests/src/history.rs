//! Checks of objects after a load that was interrupted: acknowledged writes exist and are whole,
//! and any other write is wholly visible or wholly absent.
//!
//! A writer has keys of its own and one request under way at a time. So a key holds the last
//! version that was acknowledged, or a later one without a reply.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ::bytes::Bytes;
use futures::future::join_all;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::bytes::body;
use crate::s3::S3;

/// Inline, packed and file extents, with both sides of the limits between them.
const SIZES: [usize; 9] = [0, 1, 4096, 8192, 8193, 100_000, 1 << 20, (1 << 20) + 1, 3_000_000];
const KEYS: usize = 10;

/// State of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Version {
    Absent,
    /// The body of this name and length.
    Body(String, usize),
}

impl Version {
    fn is(&self, found: Option<&Bytes>) -> bool {
        match (self, found) {
            (Self::Absent, None) => true,
            (Self::Body(name, length), Some(bytes)) => {
                bytes.len() == *length && *bytes == body(name, *length)
            }
            _ => false,
        }
    }
}

/// Possible states of a key.
#[derive(Clone, Debug)]
struct KeyStates {
    sure: Version,
    maybe: Vec<Version>,
}

/// Possible states of the keys of a bucket.
#[derive(Clone, Debug)]
pub struct BucketHistory {
    bucket: String,
    writers: Vec<BTreeMap<String, KeyStates>>,
    rounds: usize,
}

/// Counts of a load.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoadCounts {
    /// Writes and deletes that were acknowledged.
    pub acknowledged: usize,
    /// Writes and deletes that were answered 500 or 503.
    pub refused: usize,
}

impl BucketHistory {
    /// Makes the history of an empty bucket for so many writers.
    pub fn new(bucket: &str, writers: usize) -> Self {
        Self { bucket: bucket.to_owned(), writers: vec![BTreeMap::new(); writers], rounds: 0 }
    }

    /// Runs all writers, which write, overwrite and delete, until `time` is over or the server is
    /// gone.
    pub async fn load(
        &mut self,
        address: SocketAddr,
        chance: &mut SmallRng,
        time: Duration,
    ) -> LoadCounts {
        self.rounds += 1;
        let until = Instant::now() + time;
        let writers = self.writers.iter_mut().enumerate().map(|(number, keys)| {
            let name = format!("{}-{number}", self.rounds);
            let target = format!("/{}/w{number}", self.bucket);
            let chance = SmallRng::seed_from_u64(chance.random());
            Writer { target, name, keys, chance, client: S3::new(address) }.run(until)
        });
        let outcomes = join_all(writers).await;
        outcomes.into_iter().fold(LoadCounts::default(), |sum, one| LoadCounts {
            acknowledged: sum.acknowledged + one.acknowledged,
            refused: sum.refused + one.refused,
        })
    }

    /// Checks every key and the listing. The states found become the certain states.
    pub async fn check(&mut self, client: &mut S3) {
        for (target, past) in self.writers.iter_mut().flatten() {
            let reply = client.get(target).await.unwrap();
            let found = match reply.status {
                200 => Some(&reply.body),
                404 => None,
                _ => panic!("{target}: {} {}", reply.status, reply.text()),
            };
            let mut possible = past.maybe.drain(..).chain([past.sure.clone()]);
            let version = possible.find(|version| version.is(found));
            past.sure = version.unwrap_or_else(|| {
                let length = found.map(Bytes::len);
                panic!("{target}: {length:?} bytes that should not be there; sure: {:?}", past.sure)
            });
        }
        self.check_listing(client).await;
    }

    async fn check_listing(&self, client: &mut S3) {
        let there = |past: &KeyStates| past.sure != Version::Absent;
        let bucket = format!("/{}/", self.bucket);
        let mut keys: Vec<_> = self
            .writers
            .iter()
            .flatten()
            .filter(|(_, past)| there(past))
            .map(|(target, _)| target.trim_start_matches(&bucket).to_owned())
            .collect();
        keys.sort();
        assert_eq!(client.keys(&self.bucket).await, keys);
    }

    /// Deletes all keys.
    pub async fn delete_all(&mut self, client: &mut S3) {
        for (target, past) in self.writers.iter_mut().flatten() {
            let reply = client.delete(target).await.unwrap();
            assert_eq!(reply.status, 204, "{}", reply.text());
            *past = KeyStates { sure: Version::Absent, maybe: Vec::new() };
        }
    }
}

/// A writer with its own keys.
struct Writer<'a> {
    target: String,
    name: String,
    keys: &'a mut BTreeMap<String, KeyStates>,
    chance: SmallRng,
    client: S3,
}

impl Writer<'_> {
    async fn run(mut self, until: Instant) -> LoadCounts {
        let mut outcome = LoadCounts::default();
        for step in 0.. {
            if Instant::now() >= until {
                break;
            }
            match self.step(step).await {
                Some(true) => outcome.acknowledged += 1,
                Some(false) => outcome.refused += 1,
                None => break,
            }
        }
        outcome
    }

    /// Sends one request. Returns true if the reply acknowledges it; `None` if the server is gone.
    async fn step(&mut self, step: usize) -> Option<bool> {
        let target = format!("{}/{}", self.target, self.chance.random_range(0..KEYS));
        let version = if self.chance.random_range(0..6) == 0 {
            Version::Absent
        } else {
            let length = SIZES[self.chance.random_range(0..SIZES.len())];
            Version::Body(format!("{target} {} {step}", self.name), length)
        };
        let nothing = || KeyStates { sure: Version::Absent, maybe: Vec::new() };
        let past = self.keys.entry(target.clone()).or_insert_with(nothing);
        past.maybe.push(version.clone());
        let reply = match &version {
            Version::Absent => self.client.delete(&target).await,
            Version::Body(name, length) => self.client.put(&target, body(name, *length)).await,
        };
        match reply.ok()?.status {
            200 | 204 => {
                *past = KeyStates { sure: version, maybe: Vec::new() };
                Some(true)
            }
            500 | 503 => Some(false),
            status => panic!("{target}: {status}"),
        }
    }
}
