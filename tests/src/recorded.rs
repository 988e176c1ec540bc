//! S3 clients that record their operations for the [checkers].
//!
//! * Every write has a unique body that begins with its [`Value`], so that a read identifies the
//!   write that it saw. A body that differs from all whole bodies fails the test at once.
//! * An ambiguous reply counts as unknown: 5xx, a lost connection, or a timeout.
//! * All clients of a [`Recorder`] share one clock.

mod client;
pub mod load;
pub mod tally;
mod write_methods;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ::bytes::Bytes;
use parking_lot::Mutex;

pub use client::RecordedClient;
pub use write_methods::{SOURCES, WriteMethod};

use crate::bytes::body;
use crate::checkers::{self, History, Invocation, ListedKey, Listing, Operation, Response, Value};
use crate::cluster::TestCluster;

/// Recorded operations, and the value of each known `ETag`.
#[derive(Debug)]
pub struct Recorder {
    begun: Instant,
    bucket: String,
    values: AtomicU64,
    clients: AtomicU32,
    operations: Mutex<Vec<RecordedOperation>>,
    etags: Mutex<HashMap<String, Value>>,
}

/// An operation, and the `ETag`s of a listing, whose values may become known only later.
#[derive(Clone, Debug)]
struct RecordedOperation {
    operation: Operation,
    listed: Vec<(String, String)>,
}

impl Recorder {
    /// Makes a recorder for a bucket.
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

    /// Returns a client of one of a cluster's proxies.
    pub fn client(self: &Arc<Self>, cluster: &TestCluster, proxy: usize) -> RecordedClient {
        let number = self.clients.fetch_add(1, Ordering::Relaxed);
        let endpoints = cluster.endpoints();
        RecordedClient::new(self.clone(), number, &endpoints, proxy % endpoints.len())
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

    /// Returns the `ETag` of a value, if known.
    fn etag(&self, value: Value) -> Option<String> {
        let etags = self.etags.lock();
        etags.iter().find(|(_, other)| **other == value).map(|(etag, _)| etag.clone())
    }

    fn record(&self, recorded: RecordedOperation) {
        self.operations.lock().push(recorded);
    }

    /// Number of operations recorded.
    pub fn count(&self) -> usize {
        self.operations.lock().len()
    }

    /// Returns all recorded operations, with the values of listed `ETag`s.
    pub fn history(&self) -> History {
        let (operations, etags) = (self.operations.lock(), self.etags.lock());
        let resolved = |RecordedOperation { operation, listed }: &RecordedOperation| {
            let mut operation = operation.clone();
            if let Response::Listed(Listing { found, .. }) = &mut operation.outcome {
                let value = |etag: &String| etags.get(etag).copied();
                let named = |(key, etag): &(String, String)| ListedKey {
                    key: key.clone(),
                    value: value(etag),
                };
                *found = listed.iter().map(named).collect();
            }
            operation
        };
        History { operations: operations.iter().map(resolved).collect() }
    }

    /// Reads every key and lists all keys through every proxy, then checks all recorded operations.
    pub async fn finish(self: &Arc<Self>, cluster: &TestCluster) {
        let mut keys: Vec<String> =
            self.history().by_key().into_keys().map(str::to_owned).collect();
        keys.sort();
        for proxy in 0..cluster.proxies.len() {
            // A degraded reply would prove nothing (rule A1).
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

    /// Checks the operations recorded so far.
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
            count(|it| it.outcome == Response::Refused),
            count(|it| it.outcome == Response::Unknown && it.call.leaves().is_some()),
            begun.elapsed(),
        );
    }
}

/// Maximum time to wait for a reply.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Returns the body of a value: its name, its length, and bytes that only this value has.
fn body_of(value: Value, length: usize) -> Bytes {
    let name = format!("{value} {length}\n");
    [name.as_bytes(), &body(&name, length)].concat().into()
}

/// Returns the value of a whole body.
fn value_of(bytes: &[u8]) -> Option<Value> {
    let head = bytes.split(|byte| *byte == b'\n').next()?;
    let (number, length) = std::str::from_utf8(head).ok()?.strip_prefix('v')?.split_once(' ')?;
    let (value, length) = (Value(number.parse().ok()?), length.parse().ok()?);
    (*bytes == body_of(value, length)).then_some(value)
}

/// Returns true for a conditional write.
fn is_conditional(call: &Invocation) -> bool {
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
            call: Invocation::List,
            invoked_at: 0,
            returned_at: 1,
            outcome: Response::Listed(Listing::default()),
            given: martlet_protocol::consistency::AchievedLevel::Quorum,
        };
        let listed = vec![("k".to_owned(), "\"e\"".to_owned())];
        recorder.record(RecordedOperation { operation, listed });
        let found = |recorder: &Recorder| match &recorder.history().operations[0].outcome {
            Response::Listed(listing) => listing.found[0].value,
            other => panic!("{other}"),
        };
        assert_eq!(found(&recorder), None);
        recorder.learn("\"e\"", Value(3));
        assert_eq!(found(&recorder), Some(Value(3)));
    }
}
