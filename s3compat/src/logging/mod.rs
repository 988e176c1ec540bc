//! Access logs: who asked for what, a line for each request, as S3 writes them.
//!
//! ```text
//! reply ─▶ Line ─▶ AccessLog: the process's own file
//!               └▶ BucketLogs ─▶ Delivery ─▶ objects in the bucket that its owner named
//! ```
//!
//! * [`line`]: a request in one line; [`noun`]: what its operation is called there.
//! * [`settings`]: where the requests to a bucket are logged.
//! * [`batch`]: lines gathered into objects.
//!
//! Invariants:
//! * A line is written when its reply has been sent or given up.
//! * Logging neither fails a request nor keeps it waiting. What can not be taken at once is lost and
//!   counted: logs of buckets are best effort, as in S3.

mod batch;
mod line;
mod noun;
mod settings;

use std::fmt;

pub use batch::{BucketLogs, Delivery, DeliveryOptions};
pub(crate) use batch::{Entry, Source};
pub(crate) use line::{Asker, Batched, BatchedKey, Facts, Line};
pub(crate) use noun::name as operation_name;
pub(crate) use settings::{KeyFormat, Logging};

/// Takes a line for each request, whatever bucket it is about.
pub trait AccessLog: fmt::Debug + Send + Sync {
    /// Takes a line, without its end; behind that of a request that deletes many keys come theirs, a line
    /// each. It returns at once; what can not be taken is lost.
    fn offer(&self, line: String);
}
