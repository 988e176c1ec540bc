//! JSON messages about event targets: their backlog, and messages that they refused.
//!
//! A refused message is parked in a file of its lane, beside the lane's spool. A lane holds the
//! messages of one tenant for one target. Each process has its own lanes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Path of the event targets of a process.
pub const EVENTS: &str = "/admin/v1/events";
/// Path of the parked messages of a lane, in pages.
pub const PARKED: &str = "/admin/v1/events/parked";
/// Path that sends the parked messages of a lane again, by POST.
pub const PARKED_RETRY: &str = "/admin/v1/events/parked/retry";
/// Maximum number of messages in one page.
pub const PAGE_MAX: usize = 50;
/// Maximum bytes of a lane's file that one page reads.
pub const PAGE_BYTES_MAX: u64 = 256 * 1024;
/// Maximum bytes of a message in a page. Longer messages are cut.
pub const MESSAGE_BYTES_MAX: usize = 16 * 1024;

/// Event target of a process, with counts since the process started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EventTargetLine {
    /// Name of the target.
    pub target: String,
    /// Messages accepted into a queue.
    pub taken: u64,
    /// Messages that the target acknowledged.
    pub delivered: u64,
    /// Messages dropped for lack of room, or found damaged.
    pub lost: u64,
    /// Failed attempts to deliver.
    pub failures: u64,
    /// Bytes of waiting messages in all spools of the target.
    pub waiting_bytes: u64,
    /// Messages that the target refused.
    pub refused: u64,
    /// Lanes with parked messages.
    pub parked: Vec<ParkedLane>,
}

/// Lane with parked messages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ParkedLane {
    /// Canonical id of the tenant, `root`, or `others` for all tenants beyond the first 32.
    pub lane: String,
    /// Bytes of parked messages.
    pub bytes: u64,
    /// Bytes of messages that were released and wait for room in the spool.
    pub again_bytes: u64,
    /// Path of the file with the parked messages.
    pub path: String,
}

/// Page of parked messages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ParkedPage {
    /// Messages in the order in which they were parked.
    pub items: Vec<ParkedMessage>,
    /// Bytes of all parked messages of the lane.
    pub bytes: u64,
    /// Offset of the next page, in bytes. `None` on the last page.
    pub next: Option<u64>,
}

/// Parked message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ParkedMessage {
    /// Offset of the message in its file, in bytes.
    pub offset: u64,
    /// Length of the message, in bytes.
    pub length: u64,
    /// The message as it was sent, cut after 16 KiB.
    pub text: String,
}

/// Request to release the parked messages of a lane.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ParkedRequest {
    /// Name of the target.
    pub target: String,
    /// Lane, as the list of targets names it.
    pub lane: String,
    /// Bytes of parked messages that the requester saw. The request is refused if there are others.
    pub bytes: u64,
}

/// Messages that left the parked ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ParkedReply {
    /// Name of the target.
    pub target: String,
    /// Lane of the messages.
    pub lane: String,
    /// Bytes of these messages.
    pub bytes: u64,
}

/// Query for a page of parked messages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ParkedQuery {
    /// Name of the target.
    pub target: String,
    /// Lane, as the list of targets names it.
    pub lane: String,
    /// Offset of the page, in bytes: 0, or the `next` of a page.
    #[serde(default)]
    pub after: u64,
}
