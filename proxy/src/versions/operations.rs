//! Operations on single versions: removal, tags, metadata documents and locks.

use martlet_protocol::VersionId;
use martlet_protocol::entry::{Entry, Marks, Object};
use martlet_protocol::lock::{self, Bypass, Retention};

use super::remove::VersionRemoval;
use super::reviser::Reviser;
use crate::api::{DeleteConditions, Deleted, ObjectName, WrittenObject};
use crate::bucket::{BucketCatalog, again_if_replaced};
use crate::context::ContextSource;
use crate::delete::ObjectRemover;
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::index::RegisterClient;
use crate::listing::Listings;

/// Versions of objects, their metadata and their locks.
#[derive(Clone, Copy)]
pub struct Versions<'a> {
    pub(crate) registers: &'a RegisterClient,
    pub(crate) catalog: &'a BucketCatalog,
    pub(crate) listings: &'a Listings,
    pub(crate) reviser: &'a Reviser,
    pub(crate) remover: &'a ObjectRemover,
    pub(crate) contexts: ContextSource<'a>,
}

impl Versions<'_> {
    /// Deletes one version of an object for good, unless it is locked. A missing version is no
    /// error.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`], [`Error::Locked`], or too few nodes replied.
    pub async fn delete(self, bucket: &str, key: &str, version: VersionId) -> Result<Deleted> {
        let nothing = DeleteConditions::default();
        self.delete_past(bucket, key, version, Bypass::Nothing, &nothing).await
    }

    /// Deletes a version like [`Versions::delete`], with a bypass of governance locks and with
    /// conditions.
    ///
    /// # Errors
    /// As [`Versions::delete`], and [`Error::PreconditionFailed`].
    pub async fn delete_past(
        self,
        bucket: &str,
        key: &str,
        version: VersionId,
        bypass: Bypass,
        conditions: &DeleteConditions,
    ) -> Result<Deleted> {
        let (remover, context) = (self.remover, &*self.contexts.context());
        let removal = VersionRemoval { version, bypass };
        again_if_replaced(|| remover.delete_version(context, bucket, key, removal, conditions))
            .await
    }

    /// Replaces the tags of an object. The entry is written anew; its bytes, extents and version
    /// stay. The extents keep the owner that wrote them.
    ///
    /// # Errors
    /// [`Error::NoSuchKey`], [`Error::NoSuchVersion`], [`Error::DeleteMarker`].
    pub async fn set_tags(
        self,
        bucket: &str,
        name: impl Into<ObjectName<'_>>,
        tags: Vec<(String, String)>,
    ) -> Result<WrittenObject> {
        let mut change = |_: &Entry, object: &Object| {
            let mut object = object.clone();
            object.attributes.tags.clone_from(&tags);
            Ok(Some(object))
        };
        let context = self.contexts.context();
        self.reviser.revise_object(&context, bucket, name.into(), &mut change).await
    }

    /// Changes the metadata documents of an object by a ballot. `change` runs again after each
    /// concurrent write, so no change is lost.
    ///
    /// # Errors
    /// As [`Versions::set_tags`], errors of `change`, and
    /// [`Error::AccessDenied`](crate::Error::AccessDenied) by the session's guard.
    pub async fn change_marks(
        self,
        bucket: &str,
        name: impl Into<ObjectName<'_>>,
        mut change: impl FnMut(&Object, &mut Marks) -> Result<()> + Send,
    ) -> Result<WrittenObject> {
        let context = self.contexts.context();
        let mut change = |_: &Entry, object: &Object| {
            context.admit(object)?;
            let mut changed = object.clone();
            change(object, &mut changed.attributes.marks)?;
            Ok(Some(changed))
        };
        self.reviser.revise_object(&context, bucket, name.into(), &mut change).await
    }

    /// Sets or removes the retention of a version.
    ///
    /// # Errors
    /// [`Error::Locked`] if that would weaken an unexpired retention; [`Error::InvalidArgument`]
    /// for an end in the past; [`Error::InvalidRequest`] in a bucket without Object Lock;
    /// [`Error::NoSuchKey`], [`Error::NoSuchVersion`], [`Error::DeleteMarker`].
    pub async fn set_retention(
        self,
        bucket: &str,
        name: impl Into<ObjectName<'_>>,
        retention: Option<Retention>,
        bypass: Bypass,
    ) -> Result<WrittenObject> {
        let context = self.contexts.context();
        self.catalog.check_lockable(&context, bucket).await?;
        self.catalog.check_end(retention)?;
        let mut change = |_: &Entry, object: &Object| {
            let mut object = object.clone();
            let now_ms = self.registers.stamps.now_ms();
            lock::set_retention(&mut object.attributes.marks, retention, now_ms, bypass)?;
            Ok(Some(object))
        };
        self.reviser.revise_object(&context, bucket, name.into(), &mut change).await
    }

    /// Sets or removes the legal hold of a version.
    ///
    /// # Errors
    /// As [`Versions::set_retention`].
    pub async fn set_legal_hold(
        self,
        bucket: &str,
        name: impl Into<ObjectName<'_>>,
        is_on: bool,
    ) -> Result<WrittenObject> {
        let context = self.contexts.context();
        self.catalog.check_lockable(&context, bucket).await?;
        let mut change = |_: &Entry, object: &Object| {
            let mut object = object.clone();
            lock::set_legal_hold(&mut object.attributes.marks, is_on)?;
            Ok(Some(object))
        };
        self.reviser.revise_object(&context, bucket, name.into(), &mut change).await
    }
}
