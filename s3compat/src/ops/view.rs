//! The view of a bucket's complete checkpoints: `NAME--committed`, the header `x-martlet-view`, or the
//! default view of the key that signed.
//!
//! A request of the view becomes one of the bucket before its access check. So the bucket's policy
//! decides, and a key that names a generation is checked as the key of the set.

use std::sync::{Arc, OnceLock};

use http::HeaderName;
use martlet_protocol::Setting;
use martlet_protocol::entry::Object;
use martlet_proxy::{
    DefaultView, Error, ListObjects, ObjectName, ObjectPage, Session, ViewedObject,
};
use s3s::{S3Error, S3Result, s3_error};

use super::operations::Operations;
use super::read::not_modified;
use crate::errors;
use crate::fields::text;
use crate::messages;
use crate::operation::Operation;
use crate::reply::Reply;
use crate::request::OperationRequest;
use crate::target::{Query, with_pair};
use crate::version_ids::named;
use crate::view::View;

/// Header that selects the view of the bucket that the request names.
const VIEW: HeaderName = HeaderName::from_static("x-martlet-view");
/// The only view.
const COMMITTED: &str = "committed";
/// Header value for the bucket itself, whatever the key's default view is.
const BUCKET: &str = "bucket";
/// End of the names of views.
pub(crate) const SUFFIX: &str = "--committed";

/// Selection of the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SelectedBy {
    Name,
    Header,
    Key,
}

/// A selected view, and the bucket that it shows.
struct Selection {
    by: SelectedBy,
    bucket: String,
    view: View,
}

/// Returns the view that a request selects.
fn selected_view(request: &OperationRequest) -> S3Result<Option<Selection>> {
    let shown = request.bucket();
    let stem = shown.strip_suffix(SUFFIX);
    let default = request.context.identity.who().map_or(DefaultView::Bucket, |who| who.view);
    let (by, bucket) = match (text(&request.headers, &VIEW)?, stem) {
        (Some(COMMITTED), stem) => (SelectedBy::Header, stem.unwrap_or(shown)),
        (None, Some(stem)) => (SelectedBy::Name, stem),
        (None, None) if default == DefaultView::Committed => (SelectedBy::Key, shown),
        (None | Some(BUCKET), _) => return Ok(None),
        (Some(other), _) => {
            let message = format!("there is no view {other:?}: use {COMMITTED} or {BUCKET}");
            return Err(s3_error!(InvalidArgument, "{message}"));
        }
    };
    let (key, query) = (request.key().to_owned(), request.raw_query.clone());
    let resolved = OnceLock::new();
    let view = View { bucket: shown.to_owned(), key, query, resolved };
    Ok(Some(Selection { by, bucket: bucket.to_owned(), view }))
}

/// Returns true if a bucket is there and has checkpoint rules.
async fn has_rules(session: &Session, bucket: &str) -> S3Result<bool> {
    match session.bucket(bucket).await {
        Ok(bucket) => Ok(bucket.settings.get(Setting::Checkpoints).is_some()),
        Err(Error::NoSuchBucket) => Ok(false),
        Err(error) => Err(errors::s3_error(error)),
    }
}

/// Turns a request of the view into one of the bucket. Its access check needs the names of sets, not
/// those of generations: until then the query has them too.
///
/// # Errors
/// 405 for operations that the view doesn't have.
pub(crate) async fn enter_view(request: &mut OperationRequest, session: &Session) -> S3Result<()> {
    match selected_view(request)? {
        None => Ok(()),
        Some(selection) => Box::pin(enter(request, session, selection)).await,
    }
}

async fn enter(
    request: &mut OperationRequest,
    session: &Session,
    selection: Selection,
) -> S3Result<()> {
    let Selection { by, bucket, view } = selection;
    // A bucket of this name may be older than views.
    if view.bucket != bucket {
        match session.bucket(&view.bucket).await {
            Ok(_) => return Ok(()),
            Err(Error::NoSuchBucket) => {}
            Err(error) => return Err(errors::s3_error(error)),
        }
    }
    // Of other buckets, and of none, a key's default view says nothing.
    if by == SelectedBy::Key && (bucket.is_empty() || !has_rules(session, &bucket).await?) {
        return Ok(());
    }
    match request.operation() {
        // The operation itself refuses the name.
        Operation::CreateBucket if view.bucket != bucket => return Ok(()),
        Operation::GetObject
        | Operation::HeadObject
        | Operation::LocateObject
        | Operation::ListObjects
        | Operation::ListObjectsV2
        | Operation::HeadBucket
        | Operation::GetBucketLocation
        | Operation::GetCheckpoint
        | Operation::GetCheckpointRetention
        | Operation::HoldCheckpoint => {}
        _ => return Err(messages::METHOD_NOT_ALLOWED.error()),
    }
    let query = Query::parse(&view.query)?;
    if query.get("versionId").is_some() {
        return Err(s3_error!(InvalidArgument, "the view has no versions"));
    }
    let sets = session.checkpoints();
    if let Some(prefix) = query.get("prefix") {
        let plain = sets.plain_key(&bucket, prefix).await.map_err(errors::s3_error)?;
        if plain != prefix {
            request.raw_query = with_pair(&query, "prefix", &plain);
        }
    }
    let key = match view.key.as_str() {
        "" => None,
        key => Some(sets.plain_key(&bucket, key).await.map_err(errors::s3_error)?),
    };
    Arc::make_mut(&mut request.target).rename(bucket, key);
    request.view = Some(view);
    Ok(())
}

/// 503: what the view names isn't there now.
fn uncertain() -> S3Error {
    let message = "a version that the view names can't be read now";
    errors::s3_error(martlet_protocol::Error::unavailable(message).into())
}

/// Object of a GetObject, HeadObject or `LocateObject`.
pub(super) enum ReadTarget<'a> {
    /// Object of the bucket, as the request names it.
    Bucket(ObjectName<'a>),
    /// Object that the view means by the name.
    View(ViewedObject),
}

impl ReadTarget<'_> {
    pub(super) fn name(&self) -> ObjectName<'_> {
        match self {
            Self::Bucket(name) => *name,
            Self::View(object) => ObjectName { key: &object.key, version: object.version },
        }
    }

    /// Refuses an object that isn't the one that the view means.
    pub(super) fn check(&self, object: &Object) -> S3Result<()> {
        match self {
            Self::View(viewed) if !viewed.is(object) => Err(uncertain()),
            _ => Ok(()),
        }
    }

    /// Reply to a read that failed: 304, or an error. A version that is pinned can't be absent.
    pub(super) fn failed(&self, error: Error) -> S3Result<Reply> {
        let is_pinned = matches!(self, Self::View(object) if object.version.is_some());
        match error {
            Error::NotModified(object) => Ok(not_modified(&object)),
            error => Err(read_error(error, is_pinned)),
        }
    }
}

fn read_error(error: Error, is_pinned: bool) -> S3Error {
    match error {
        Error::NoSuchVersion | Error::NoSuchKey | Error::DeleteMarker { .. } if is_pinned => {
            uncertain()
        }
        error => errors::s3_error(error),
    }
}

impl Operations {
    /// Object that a request reads, in the bucket or in the view.
    pub(super) async fn read_target<'a>(
        &self,
        request: &'a OperationRequest,
        query: &Query<'_>,
    ) -> S3Result<ReadTarget<'a>> {
        let Some(view) = &request.view else {
            return named(request.key(), query.get("versionId")).map(ReadTarget::Bucket);
        };
        if let Some(viewed) = view.resolved.get() {
            return Ok(ReadTarget::View(viewed.clone()));
        }
        let viewed = self.store.checkpoints().resolve(request.bucket(), &view.key).await;
        viewed.map(ReadTarget::View).map_err(errors::s3_error)
    }

    /// A page of the bucket, or of its view.
    pub(super) async fn page(
        &self,
        bucket: &str,
        list: ListObjects,
        is_view: bool,
    ) -> S3Result<ObjectPage> {
        let page = if is_view {
            self.store.checkpoints().list(bucket, &list).await
        } else {
            self.store.list(bucket, list).await
        };
        page.map_err(errors::s3_error)
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;

    fn status(error: &S3Error) -> StatusCode {
        error.status_code().unwrap()
    }

    #[test]
    fn missing_pinned_versions_return_service_unavailable() {
        for error in [Error::NoSuchVersion, Error::NoSuchKey] {
            assert_eq!(status(&read_error(error, true)), StatusCode::SERVICE_UNAVAILABLE);
        }
        assert_eq!(status(&read_error(Error::AccessDenied, true)), StatusCode::FORBIDDEN);
        assert_eq!(status(&read_error(Error::NoSuchKey, false)), StatusCode::NOT_FOUND);
    }
}
