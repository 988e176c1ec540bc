//! Object Lock on objects: set by a write, and changed later.
//!
//! Invariants:
//! * The default retention comes from the bucket generation that the entry is written under. A
//!   proxy with an outdated bucket is fenced, and completes the entry again.
//! * Locks are judged by the cluster's time (rule C1), as known to this proxy.

use std::borrow::Cow;

use martlet_protocol::entry::{Bucket, Value};

use crate::bucket::lock_of;
use crate::error::Result;

/// Adds the bucket's default retention to a new object without its own.
pub(crate) fn completed<'a>(bucket: &Bucket, value: &'a Value) -> Result<Cow<'a, Value>> {
    let (Some(lock), Value::Object(object)) = (lock_of(bucket)?, value) else {
        return Ok(Cow::Borrowed(value));
    };
    let mut marks = object.attributes.marks.clone();
    if !lock.complete(&mut marks, object.modified_ms)? {
        return Ok(Cow::Borrowed(value));
    }
    let mut object = object.clone();
    object.attributes.marks = marks;
    Ok(Cow::Owned(Value::Object(object)))
}
