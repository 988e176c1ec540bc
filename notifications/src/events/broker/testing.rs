//! Messages and lanes for tests of brokers.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::super::counts::Counts;
use super::super::spool::{self, SpooledMessage};
use super::lane::BrokerLane;
use super::settings::BrokerSettings;

/// Timeout of an attempt in tests of silent brokers.
pub(super) const SHORT: Duration = Duration::from_millis(300);
/// Timeout of an attempt in other tests, ample for a busy machine.
pub(super) const AMPLE: Duration = Duration::from_secs(20);

/// Returns messages as a spool returns them.
pub(super) fn spooled<T: AsRef<str>>(texts: &[T]) -> Vec<SpooledMessage> {
    let place = tempfile::tempdir().unwrap();
    let (mut tail, mut head) =
        spool::open(place.path(), 16 << 20, &Arc::new(Counts::default())).unwrap();
    let batch: Vec<Bytes> =
        texts.iter().map(|it| Bytes::copy_from_slice(it.as_ref().as_bytes())).collect();
    tail.append(&batch).unwrap();
    let messages = head.read().unwrap();
    assert_eq!(messages.len(), texts.len());
    messages
}

/// Returns the event of an object in bucket `b`.
pub(super) fn event(key: &str) -> String {
    format!(r#"{{"Records":[{{"s3":{{"bucket":{{"name":"b"}},"object":{{"key":"{key}"}}}}}}]}}"#)
}

/// Makes a lane of these settings.
pub(super) fn lane(settings: BrokerSettings<'_>, patience: Duration) -> BrokerLane {
    BrokerLane::with_patience(settings.client().unwrap(), patience)
}
