//! Receiver of event messages.

use std::fmt;

use bytes::Bytes;

/// Sender of messages to targets, which the process's configuration defines by name.
pub trait EventSink: fmt::Debug + Send + Sync {
    /// Returns true if the target exists, and rules of this tenant's buckets may name it. `tenant`
    /// is the tenant's name.
    fn admits(&self, target: &str, tenant: &str) -> bool;

    /// Sends a message, one JSON document, to a target. `owner` is the canonical id of the bucket's
    /// tenant. Returns at once; a message that can't be queued is counted as lost.
    fn offer(&self, target: &str, owner: &str, message: Bytes);
}
