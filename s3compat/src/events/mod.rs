//! Event notifications: changes of objects, the rules of buckets, and delivery to targets.
//!
//! ```text
//! operation ─▶ ObjectEvents ─┬▶ rules of the bucket ─▶ record ─▶ EventSink ─▶ targets
//! lifecycle ─▶ Expired ──────┘
//! ```
//!
//! * [`name`]: S3's names of events, and patterns in rules.
//! * [`rules`]: notification rules of a bucket.
//! * [`record`]: an event as S3 writes it.
//! * [`expired`]: events of a bucket's lifecycle.
//!
//! Invariants:
//! * An event is sent only after its change has been decided.
//! * Sending an event neither fails nor delays a request: an [`EventSink`] accepts a message or
//!   counts it as lost, at once.
//! * For a bucket without rules a request reads only the settings that are loaded anyway.

mod expired;
mod name;
mod record;
mod rules;

use std::fmt;

use bytes::Bytes;
use martlet_protocol::Stamp;
use martlet_protocol::entry::Bucket;
use martlet_proxy::{Deleted, Written};

pub use expired::ExpiryEvents;
pub(crate) use name::{Event, is_known};
use record::message;
pub(crate) use record::{RecordContext, test_message};
pub(crate) use rules::{Rule, RuleConflict, Rules, TargetKind};

use crate::attributes::wire_version;
use crate::bucket_documents::BucketDocuments;
use crate::ops::target_of;

/// Sender of messages to targets, which the process's configuration defines by name.
pub trait EventSink: fmt::Debug + Send + Sync {
    /// Returns true if the target exists, and rules of this tenant's buckets may name it. `tenant`
    /// is the tenant's name.
    fn admits(&self, target: &str, tenant: &str) -> bool;

    /// Sends a message, one JSON document, to a target. `owner` is the canonical id of the bucket's
    /// tenant. Returns at once; a message that can't be queued is counted as lost.
    fn offer(&self, target: &str, owner: &str, message: Bytes);
}

/// A change of an object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ObjectEvent {
    pub(crate) event: Event,
    pub(crate) key: String,
    /// `None` for a deleted object.
    pub(crate) size: Option<u64>,
    /// ETag without quotes.
    pub(crate) etag: Option<String>,
    pub(crate) version: Option<String>,
    /// Stamp of the write.
    pub(crate) stamp: Option<Stamp>,
}

/// Changes by a request, among the extensions of its reply.
#[derive(Clone, Debug, Default)]
pub(crate) struct ObjectEvents(pub(crate) Vec<ObjectEvent>);

impl ObjectEvents {
    /// An object was written, or its metadata changed.
    pub(crate) fn wrote(event: Event, key: &str, written: &Written) -> Self {
        Self(vec![ObjectEvent {
            event,
            key: key.to_owned(),
            size: Some(written.object.size),
            etag: Some(written.object.etag.to_string()),
            version: wire_version(&written.object),
            stamp: Some(written.stamp),
        }])
    }

    /// An object was deleted, if it existed. `named` is true if the request named a version.
    pub(crate) fn deleted(key: &str, named: bool, deleted: &Deleted) -> Self {
        Self(ObjectEvent::deleted(key, named, deleted).into_iter().collect())
    }
}

impl ObjectEvent {
    /// Deletion of one object, if it existed. `named` is true if the request named a version.
    pub(crate) fn deleted(key: &str, named: bool, deleted: &Deleted) -> Option<Self> {
        let stamp = deleted.stamp?;
        let is_new_marker = deleted.is_marker && !named;
        Some(Self {
            event: if is_new_marker { Event::DeleteMarkerCreated } else { Event::Delete },
            key: key.to_owned(),
            size: None,
            etag: None,
            version: deleted.version.map(|version| version.to_string()),
            stamp: Some(stamp),
        })
    }
}

/// Sends changes to the targets that the bucket's rules name.
pub(crate) fn send_events(
    sink: &dyn EventSink,
    about: &RecordContext<'_>,
    bucket: &Bucket,
    all: &[ObjectEvent],
) {
    if all.is_empty() {
        return;
    }
    let documents = BucketDocuments::of(about.bucket, bucket);
    let Some(rules) = documents.rules(about.bucket, bucket) else { return };
    for happening in all {
        for rule in rules.meaning(happening.event, &happening.key) {
            if let Some(target) = target_of(&rule.arn) {
                sink.offer(target, about.bucket_owner, message(about, happening, &rule.id));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delete_that_removed_nothing_is_no_event() {
        let nothing = Deleted { stamp: None, version: None, is_marker: false };
        assert!(ObjectEvents::deleted("k", false, &nothing).0.is_empty());
        let stamp = Some(Stamp::at_ms(5));
        let event = |named, is_marker| {
            let deleted = Deleted { stamp, version: None, is_marker };
            ObjectEvents::deleted("k", named, &deleted).0[0].event
        };
        assert_eq!(event(false, false), Event::Delete);
        assert_eq!(event(false, true), Event::DeleteMarkerCreated);
        assert_eq!(event(true, true), Event::Delete, "a marker itself is gone");
    }
}
