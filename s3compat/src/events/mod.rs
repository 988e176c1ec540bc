//! Event notifications: changes of objects, the rules of buckets, and delivery to targets.
//!
//! ```text
//! operation ─▶ ObjectEvents ─┬▶ rules of the bucket ─▶ record ─▶ EventSink ─▶ targets
//! lifecycle ─▶ Expired ──────┘
//! ```
//!
//! * [`name`]: S3's names of events, and patterns in rules.
//! * [`rules`]: notification rules of a bucket.
//! * [`object_event`]: changes of objects; [`record`]: a change as S3 writes it.
//! * [`send`]: delivery to the targets of rules; [`target`]: names of targets in rules.
//! * [`sink`]: the receiver of messages.
//! * [`expired`]: events of a bucket's lifecycle.
//!
//! Invariants:
//! * An event is sent only after its change has been decided.
//! * Sending an event neither fails nor delays a request: an [`EventSink`] accepts a message or
//!   counts it as lost, at once.
//! * For a bucket without rules a request reads only the settings that are loaded anyway.

mod expired;
mod name;
mod object_event;
mod record;
mod rules;
mod send;
mod sink;
mod target;

pub use expired::ExpiryEvents;
pub(crate) use name::{Event, is_known};
pub(crate) use object_event::{ObjectEvent, ObjectEvents};
pub(crate) use record::{RecordContext, test_message};
pub(crate) use rules::{Rule, RuleConflict, Rules, TargetKind};
pub(crate) use send::send_events;
pub use sink::EventSink;
pub(crate) use target::target_of;
