//! Versions of objects: listings, and changes of metadata.

use martlet_protocol::entry::{Entry, Marks, Object};
use martlet_protocol::lock::{self, Bypass, Retention};

use super::ObjectStore;
use crate::api::{ListVersions, ObjectName, VersionPage, Written};
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;

impl ObjectStore {
    /// Lists a page of the versions of a bucket's objects, in order of key, the latest first. In an
    /// unversioned bucket each object is a null version.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`](crate::Error::NoSuchBucket), or too few nodes replied.
    pub async fn list_versions(&self, bucket: &str, list: ListVersions) -> Result<VersionPage> {
        self.services.listings.list_versions(&self.context(), bucket, list).await
    }

    /// Replaces the tags of an object. The entry is written anew; its bytes, extents and version
    /// stay. The extents keep the owner that wrote them.
    ///
    /// # Errors
    /// [`Error::NoSuchKey`], [`Error::NoSuchVersion`], [`Error::DeleteMarker`].
    pub async fn set_tags(
        &self,
        bucket: &str,
        name: impl Into<ObjectName<'_>>,
        tags: Vec<(String, String)>,
    ) -> Result<Written> {
        let mut change = |_: &Entry, object: &Object| {
            let mut object = object.clone();
            object.attributes.tags.clone_from(&tags);
            Ok(Some(object))
        };
        let context = self.context();
        self.services.reviser.revise_object(&context, bucket, name.into(), &mut change).await
    }

    /// Changes the metadata documents of an object by a ballot. `change` runs again after each
    /// concurrent write, so no change is lost.
    ///
    /// # Errors
    /// As [`ObjectStore::set_tags`], errors of `change`, and
    /// [`Error::AccessDenied`](crate::Error::AccessDenied) by the session's guard.
    pub async fn change_marks(
        &self,
        bucket: &str,
        name: impl Into<ObjectName<'_>>,
        mut change: impl FnMut(&Object, &mut Marks) -> Result<()> + Send,
    ) -> Result<Written> {
        let context = self.context();
        let mut change = |_: &Entry, object: &Object| {
            context.admit(object)?;
            let mut changed = object.clone();
            change(object, &mut changed.attributes.marks)?;
            Ok(Some(changed))
        };
        self.services.reviser.revise_object(&context, bucket, name.into(), &mut change).await
    }

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
        let (services, context) = (&*self.services, self.context());
        services.buckets.check_lockable(&context, bucket).await?;
        services.buckets.check_end(retention)?;
        let mut change = |_: &Entry, object: &Object| {
            let mut object = object.clone();
            let now_ms = services.registers.stamps.now_ms();
            lock::set_retention(&mut object.attributes.marks, retention, now_ms, bypass)?;
            Ok(Some(object))
        };
        services.reviser.revise_object(&context, bucket, name.into(), &mut change).await
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
        let (services, context) = (&*self.services, self.context());
        services.buckets.check_lockable(&context, bucket).await?;
        let mut change = |_: &Entry, object: &Object| {
            let mut object = object.clone();
            lock::set_legal_hold(&mut object.attributes.marks, is_on)?;
            Ok(Some(object))
        };
        services.reviser.revise_object(&context, bucket, name.into(), &mut change).await
    }
}
