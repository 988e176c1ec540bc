//! Locks of objects: set when an object is written, and changed afterwards.
//!
//! Invariants:
//! * What an object gets that doesn't say is decided with the bucket of which its entry is written: a
//!   proxy that has not heard of the bucket's change is fenced, and completes the entry anew.
//! * Locks are judged by the time of the cluster (rule C1), as this proxy has it.

use std::borrow::Cow;

use martlet_protocol::entry::{Bucket, Entry, Marks, Object, Value};
use martlet_protocol::lock::{self, Bypass, Lock, Retention};

use crate::api::{ObjectName, Written};
use crate::bucket::lock_of;
use crate::error::{Error, Result};
use crate::store::{Inner, ObjectStore};

impl ObjectStore {
    /// Gives a version another retention, or none.
    ///
    /// # Errors
    /// [`Error::Locked`], where that would loosen it before its time; [`Error::InvalidArgument`] for an
    /// end that has passed; [`Error::InvalidRequest`] in a bucket whose objects can't be locked;
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

    /// Puts a legal hold on a version, or takes it off.
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
    /// Refuses a lock that an object of the bucket can't be written with.
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

/// What is written of a new object: with the retention of those that don't say, if its bucket has one.
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
