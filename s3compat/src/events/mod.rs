//! Events: what happens to objects, who wants to hear of it, and what they are told.
//!
//! ```text
//! operation ─▶ Happened ─┬▶ rules of the bucket ─▶ record ─▶ Outlet ─▶ targets
//! lifecycle ─▶ Expired ──┘
//! ```
//!
//! * [`name`]: what S3 calls events, and what rules may call them.
//! * [`rules`]: who hears of what, as a bucket keeps it.
//! * [`record`]: an event as S3 writes it.
//! * [`expired`]: what a bucket's lifecycle took.
//!
//! Invariants:
//! * An event is told after what it tells of has been decided, and never before.
//! * Telling it neither fails a request nor keeps it waiting: an [`Outlet`] takes a message or counts
//!   it as lost, at once.
//! * Requests to buckets without rules look at the settings that they have loaded anyway, and at
//!   nothing else.

mod expired;
mod name;
mod record;
mod rules;

use std::fmt;

use bytes::Bytes;
use martlet_protocol::entry::Bucket;
use martlet_protocol::{Setting, Stamp};
use martlet_proxy::{Deleted, Written};

pub use expired::ExpiryEvents;
pub(crate) use name::{Event, is_known};
use record::message;
pub(crate) use record::{About, test_message};
pub(crate) use rules::{Clash, Kind, Rule, Rules};

use crate::attributes::wire_version;
use crate::ops::target_of;

/// Where messages go: to targets that the process was told of, each under a name.
pub trait Outlet: fmt::Debug + Send + Sync {
    /// Returns true when there is a target of this name, and the rules of a tenant's buckets may name it,
    /// by the tenant's name.
    fn admits(&self, target: &str, tenant: &str) -> bool;

    /// Takes a message, one JSON document, on its way to a target; `owner` is the canonical id of the
    /// tenant whose bucket it is about. It returns at once; what can not be taken is counted as lost.
    fn offer(&self, target: &str, owner: &str, message: Bytes);
}

/// Something that happened to an object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Happening {
    pub(crate) event: Event,
    pub(crate) key: String,
    /// None of an object that is gone.
    pub(crate) size: Option<u64>,
    /// Without quotes.
    pub(crate) etag: Option<String>,
    pub(crate) version: Option<String>,
    /// Where it stands in the order of writes.
    pub(crate) stamp: Option<Stamp>,
}

/// What a request did, among the extensions of its reply.
#[derive(Clone, Debug, Default)]
pub(crate) struct Happened(pub(crate) Vec<Happening>);

impl Happened {
    /// An object was written, or something about it.
    pub(crate) fn wrote(event: Event, key: &str, written: &Written) -> Self {
        Self(vec![Happening {
            event,
            key: key.to_owned(),
            size: Some(written.object.size),
            etag: Some(written.object.etag.to_string()),
            version: wire_version(&written.object),
            stamp: Some(written.stamp),
        }])
    }

    /// An object was deleted, if it was there; `named` is the version that was asked for.
    pub(crate) fn deleted(key: &str, named: bool, deleted: &Deleted) -> Self {
        Self(Happening::deleted(key, named, deleted).into_iter().collect())
    }
}

impl Happening {
    /// The same of one of many.
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

/// Tells those who, by the bucket's rules, want to hear of what happened.
pub(crate) fn tell(outlet: &dyn Outlet, about: &About<'_>, bucket: &Bucket, all: &[Happening]) {
    let Some(document) = bucket.settings.get(Setting::Notification) else { return };
    if all.is_empty() {
        return;
    }
    let Some(rules) = Rules::of(document) else {
        tracing::error!(bucket = about.bucket, "the notification rules of a bucket can't be read");
        return;
    };
    for happening in all {
        for rule in rules.meaning(happening.event, &happening.key) {
            if let Some(target) = target_of(&rule.arn) {
                outlet.offer(target, about.bucket_owner, message(about, happening, &rule.id));
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
        assert!(Happened::deleted("k", false, &nothing).0.is_empty());
        let stamp = Some(Stamp::at_ms(5));
        let event = |named, is_marker| {
            let deleted = Deleted { stamp, version: None, is_marker };
            Happened::deleted("k", named, &deleted).0[0].event
        };
        assert_eq!(event(false, false), Event::Delete);
        assert_eq!(event(false, true), Event::DeleteMarkerCreated);
        assert_eq!(event(true, true), Event::Delete, "a marker itself is gone");
    }
}
