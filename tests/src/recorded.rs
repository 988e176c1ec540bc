//! S3 clients that record what they did, for the [checkers].
//!
//! * Every write has a body of its own that begins with its [`Value`], so that a read says which
//!   write it saw; a body that is none of those that were sent whole fails the test at once.
//! * An answer that leaves it open whether something happened counts as unknown: 5xx, a connection
//!   that was lost, no answer in time.
//! * Times are of one clock for all clients of a [`Recorder`].

mod client;
pub mod load;
pub mod tally;
mod ways;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ::bytes::Bytes;
use parking_lot::Mutex;

pub use client::Client;
pub use ways::{SOURCES, Way};

use crate::bytes::body;
use crate::checkers::{self, Call, Found, History, Listing, Operation, Outcome, Value};
use crate::cluster::Cluster;

/// Operations as they come, and which `ETag` stands for which value.
#[derive(Debug)]
pub struct Recorder {
    begun: Instant,
    bucket: String,
    values: AtomicU64,
    clients: AtomicU32,
    operations: Mutex<Vec<Recorded>>,
    etags: Mutex<HashMap<String, Value>>,
}

/// An operation, and the `ETag`s of a listing, which may be known only later.
#[derive(Clone, Debug)]
struct Recorded {
    operation: Operation,
    listed: Vec<(String, String)>,
}

impl Recorder {
    /// For a bucket.
    pub fn new(bucket: &str) -> Arc<Self> {
        Arc::new(Self {
            begun: Instant::now(),
            bucket: bucket.to_owned(),
            values: AtomicU64::new(1),
            clients: AtomicU32::new(1),
            operations: Mutex::default(),
            etags: Mutex::default(),
        })
    }

    /// A client that talks to a proxy of a cluster.
    pub fn client(self: &Arc<Self>, cluster: &Cluster, proxy: usize) -> Client {
        let number = self.clients.fetch_add(1, Ordering::Relaxed);
        let endpoints = cluster.endpoints();
        Client::new(self.clone(), number, &endpoints, proxy % endpoints.len())
    }

    /// The bucket.
    pub fn bucket(&self) -> &str {
        &self.bucket
    }

    fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_nanos()).unwrap()
    }

    fn next_value(&self) -> Value {
        Value(self.values.fetch_add(1, Ordering::Relaxed))
    }

    fn learn(&self, etag: &str, value: Value) {
        if !etag.is_empty() {
            self.etags.lock().insert(etag.to_owned(), value);
        }
    }

    /// The `ETag` of a value, where it is known.
    fn etag(&self, value: Value) -> Option<String> {
        let etags = self.etags.lock();
        etags.iter().find(|(_, other)| **other == value).map(|(etag, _)| etag.clone())
    }

    fn record(&self, recorded: Recorded) {
        self.operations.lock().push(recorded);
    }

    /// So many operations were recorded.
    pub fn count(&self) -> usize {
        self.operations.lock().len()
    }

    /// Everything that was recorded.
    pub fn history(&self) -> History {
        let (operations, etags) = (self.operations.lock(), self.etags.lock());
        let resolved = |Recorded { operation, listed }: &Recorded| {
            let mut operation = operation.clone();
            if let Outcome::Listed(Listing { found, .. }) = &mut operation.outcome {
                let value = |etag: &String| etags.get(etag).copied();
                let named =
                    |(key, etag): &(String, String)| Found { key: key.clone(), value: value(etag) };
                *found = listed.iter().map(named).collect();
            }
            operation
        };
        History { operations: operations.iter().map(resolved).collect() }
    }

    /// Reads every key through every proxy, lists them all through each, and checks everything that
    /// was ever recorded.
    pub async fn finish(self: &Arc<Self>, cluster: &Cluster) {
        let mut keys: Vec<String> =
            self.history().by_key().into_keys().map(str::to_owned).collect();
        keys.sort();
        for proxy in 0..cluster.proxies.len() {
            // A degraded answer would account for nothing (rule A1).
            let mut client = self.client(cluster, proxy).at_level("strict");
            client.is_loyal = true;
            for key in &keys {
                client.get_surely(key).await;
            }
            client.list_all("").await;
        }
        self.check();
        checkers::reads::census(&self.history().firm()).unwrap_or_else(|it| panic!("{it}"));
        cluster.assert_nobody_panicked();
    }

    /// Checks what was recorded so far.
    pub fn check(&self) {
        let (begun, history) = (Instant::now(), self.history());
        if let Err(violation) = checkers::check(&history) {
            panic!("{violation}");
        }
        let count = |wanted: fn(&Operation) -> bool| {
            history.operations.iter().filter(|operation| wanted(operation)).count()
        };
        println!(
            "{} operations ({} writes done, {} refused, {} unknown) are in order; looking took {:?}",
            history.operations.len(),
            count(Operation::is_acknowledged_write),
            count(|it| it.outcome == Outcome::Refused),
            count(|it| it.outcome == Outcome::Unknown && it.call.leaves().is_some()),
            begun.elapsed(),
        );
    }
}

/// How long an answer is waited for.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The body of a value: its name, its length, and bytes that are of this value alone.
fn body_of(value: Value, length: usize) -> Bytes {
    let name = format!("{value} {length}\n");
    [name.as_bytes(), &body(&name, length)].concat().into()
}

/// Which value a body is, whole.
fn value_of(bytes: &[u8]) -> Option<Value> {
    let head = bytes.split(|byte| *byte == b'\n').next()?;
    let (number, length) = std::str::from_utf8(head).ok()?.strip_prefix('v')?.split_once(' ')?;
    let (value, length) = (Value(number.parse().ok()?), length.parse().ok()?);
    (*bytes == body_of(value, length)).then_some(value)
}

/// A write that is to be recorded.
fn is_conditional(call: &Call) -> bool {
    !call.is_plain() && call.leaves().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_says_which_value_it_is_and_only_when_whole() {
        for length in [0, 1, 100, 5_000] {
            let body = body_of(Value(7), length);
            assert_eq!(value_of(&body), Some(Value(7)));
            assert_eq!(value_of(&body[..body.len() - 1]), None);
            let longer = [&body[..], b"x"].concat();
            assert_eq!(value_of(&longer), None);
        }
        let mut mixed = body_of(Value(7), 100).to_vec();
        mixed[60] ^= 1;
        assert_eq!(value_of(&mixed), None);
        assert_eq!(value_of(b"anything else"), None);
    }

    #[test]
    fn listings_name_values_as_soon_as_their_etags_are_known() {
        let recorder = Recorder::new("b");
        let operation = Operation {
            client: 1,
            key: String::new(),
            call: Call::List,
            invoked_at: 0,
            returned_at: 1,
            outcome: Outcome::Listed(Listing::default()),
            given: martlet_protocol::consistency::Given::Quorum,
        };
        let listed = vec![("k".to_owned(), "\"e\"".to_owned())];
        recorder.record(Recorded { operation, listed });
        let found = |recorder: &Recorder| match &recorder.history().operations[0].outcome {
            Outcome::Listed(listing) => listing.found[0].value,
            other => panic!("{other}"),
        };
        assert_eq!(found(&recorder), None);
        recorder.learn("\"e\"", Value(3));
        assert_eq!(found(&recorder), Some(Value(3)));
    }
}
