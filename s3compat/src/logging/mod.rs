//! Access logs: a line for each request, in S3's format.
//!
//! ```text
//! reply ─▶ Line ─▶ AccessLog: the process's own file
//!               └▶ BucketLogs ─▶ Delivery ─▶ objects in the target bucket
//! ```
//!
//! * [`line`]: the line of a request; [`operation_name`]: names of operations in lines; [`secrets`]:
//!   links without signatures.
//! * [`settings`]: log settings of a bucket.
//! * [`target`]: target buckets, which must accept logs.
//! * [`batch`]: batches of lines, delivered as objects.
//!
//! Invariants:
//! * A line is written when its reply has been sent or abandoned.
//! * Logging neither fails nor delays a request. Lines that can't be queued at once are lost and
//!   counted: logs of buckets are best effort, as in S3.

mod batch;
mod line;
mod operation_name;
mod secrets;
mod settings;
mod target;

use std::fmt;

pub(crate) use batch::LogSource;
pub use batch::{BucketLogs, Delivery, DeliveryOptions};
pub(crate) use line::{
    BatchOutcome, BatchedKey, LineContents, PendingLine, ReplyRequester, RequestLine,
};
pub(crate) use operation_name::OperationName;
pub(crate) use settings::{KeyFormat, LoggedBucket, Logging};
pub(crate) use target::may_deliver;

/// Receiver of a line for each request, to any bucket.
pub trait AccessLog: fmt::Debug + Send + Sync {
    /// Receives a line, without its final newline. The line of a request that deletes many keys is
    /// followed by one line for each key. Returns at once; a line that can't be queued is lost.
    fn offer(&self, line: String);
}
