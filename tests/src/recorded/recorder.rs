//! Recorder of operations, and the checks of the recorded history.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use crate::checkers::{self, History, ListedKey, Listing, Operation, Response, Value};
use crate::cluster::TestCluster;

/// Recorded operations, and the value of each known `ETag`.
#[derive(Debug)]
pub struct Recorder {
    begun: Instant,
    bucket: String,
    values: AtomicU64,
    clients: AtomicU32,
    pub(super) operations: Mutex<Vec<RecordedOperation>>,
    etags: Mutex<HashMap<String, Value>>,
}

/// An operation, and the `ETag`s of a listing, whose values may become known only later.
#[derive(Clone, Debug)]
pub(super) struct RecordedOperation {
    pub(super) operation: Operation,
    pub(super) listed: Vec<(String, String)>,
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

    /// The bucket.
    pub fn bucket(&self) -> &str {
        &self.bucket
    }

    pub(super) fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_nanos()).unwrap()
    }

    pub(super) fn next_client(&self) -> u32 {
        self.clients.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn next_value(&self) -> Value {
        Value(self.values.fetch_add(1, Ordering::Relaxed))
    }

    pub(super) fn learn(&self, etag: &str, value: Value) {
        if !etag.is_empty() {
            self.etags.lock().insert(etag.to_owned(), value);
        }
    }

    /// Returns the `ETag` of a value, if known.
    pub(super) fn etag(&self, value: Value) -> Option<String> {
        let etags = self.etags.lock();
        etags.iter().find(|(_, other)| **other == value).map(|(etag, _)| etag.clone())
    }

    pub(super) fn record(&self, recorded: RecordedOperation) {
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
        cluster.assert_no_panic();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkers::Invocation;

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
