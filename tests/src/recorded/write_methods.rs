//! Ways to write an object: a `PUT`, the parts of an upload, a copy. All take the same conditions
//! (rule R7), so a client may use any way for any write.

use crate::s3::{LostReply, Reply};

/// Bucket of the sources of copies; not recorded.
pub const SOURCES: &str = "sources";

/// Way to write an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriteMethod {
    /// `PutObject`.
    #[default]
    Put,
    /// An upload of one part, then `CompleteMultipartUpload`.
    Parts,
    /// `CopyObject` of an object in [`SOURCES`].
    Copy,
}

/// Outcome of a write.
pub(super) enum WriteAttempt {
    /// The write failed before the call that changes the key.
    NotBegun,
    /// Reply to the call that changes the key.
    Answered(Result<Reply, LostReply>),
}
