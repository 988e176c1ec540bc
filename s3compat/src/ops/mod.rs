//! S3 operations over the object layer, one file for each group of operations.
//!
//! Each operation reads the fields of its request, calls the store and builds its reply. Replies to
//! reads and writes of objects are headers, set directly. Documents are values of s3s's types.
//!
//! * `operations`: the state of an operation; `call`: the method of each operation.
//! * `access`: the check before each operation; `policy_context`: the condition keys of a request.
//! * `wire`: values that several operations read or write.

mod access;
mod acl;
mod anonymous_check;
mod answers;
mod attributes;
mod buckets;
mod call;
mod checkpoints;
mod completion;
mod copy;
mod cors;
mod delete;
mod encoding;
mod encryption;
#[cfg(any(test, feature = "fuzzing"))]
mod fuzzing;
mod initiator;
mod lifecycle;
mod list;
mod locate;
mod lock;
mod logging;
mod multipart;
mod new_bucket;
mod notification;
mod operations;
mod ownership;
mod parts;
mod policy;
mod policy_context;
mod principals;
mod read;
mod settings;
mod tagging;
mod uploads;
mod versions;
mod view;
mod wire;
mod write;

pub(crate) use access::{AccessCheck, conceal};
pub(crate) use anonymous_check::StoreAnonymousCheck;
pub(crate) use cors::BucketCorsRules;
pub(crate) use encryption::unlock;
#[cfg(any(test, feature = "fuzzing"))]
pub use fuzzing::DOCUMENTS;
pub(crate) use operations::Operations;
pub(crate) use principals::{BindError, bind};
pub(crate) use view::enter_view;
