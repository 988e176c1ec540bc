//! Object Lock on objects: set by a write, and changed later.
//!
//! Invariants:
//! * The default retention comes from the bucket generation that the entry is written under. A
//!   proxy with an outdated bucket is fenced, and completes the entry again.
//! * Locks are judged by the cluster's time (rule C1), as known to this proxy.

use std::borrow::Cow;

use martlet_protocol::entry::{Bucket, Entry, Marks, Object, Value};
use martlet_protocol::lock::{self, Bypass, Lock, Retention};

use crate::api::{ObjectName, Written};
use crate::bucket::lock_of;
use crate::error::{Error, Result};
use crate::store::{Inner, ObjectStore};

impl ObjectStore {
    /// Sets or removes the retention of a version.
    ///
    /// # Errors
    /// [`Error::Locked`] if that would weaken an unexpired retention; [`Error::InvalidArgument`]
    /// for an end in the past; [`Error::InvalidRequest`] in a bucket without Object Lock;
    /// [`Error::NoSuchKey`], [`Error::NoSuchVersion`], [`Error::DeleteMarker`].
    pub async fn set_retention(
        &self,
        bucket: &str,
        name: impl Into<ObjectName<'_>>,
        retention: Option<Retention>,
        bypass: Bypass,
    ) -> Result<Written> {
        let inner = &self.inner();
        inner.check_lockable(bucket).await?;
        inner.check_end(retention)?;
        let mut change = |_: &Entry, object: &Object| {
            let mut object = object.clone();
            let now_ms = inner.stamps.now_ms();
            lock::set_retention(&mut object.attributes.marks, retention, now_ms, bypass)?;
            Ok(Some(object))
        };
        inner.revise_object(bucket, name.into(), &mut change).await
    }

    /// Sets or removes the legal hold of a version.
    ///
    /// # Errors
    /// As [`ObjectStore::set_retention`].
    pub async fn set_legal_hold(
        &self,
        bucket: &str,
        name: impl Into<ObjectName<'_>>,
        is_on: bool,
    ) -> Result<Written> {
        let inner = &self.inner();
        inner.check_lockable(bucket).await?;
        let mut change = |_: &Entry, object: &Object| {
            let mut object = object.clone();
            lock::set_legal_hold(&mut object.attributes.marks, is_on)?;
            Ok(Some(object))
        };
        inner.revise_object(bucket, name.into(), &mut change).await
    }
}

impl Inner {
    /// Refuses a lock that a new object of the bucket can't have.
    pub(crate) async fn check_new_lock(&self, bucket: &str, marks: &Marks) -> Result<()> {
        let lock = Lock::of(marks)?;
        if lock.is_empty() {
            return Ok(());
        }
        self.check_end(lock.retention)?;
        self.check_lockable(bucket).await
    }

    fn check_end(&self, retention: Option<Retention>) -> Result<()> {
        if retention.is_some_and(|it| it.until_ms <= self.stamps.now_ms()) {
            let message = "The retain until date must be in the future!";
            return Err(Error::InvalidArgument(message.into()));
        }
        Ok(())
    }
}

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
