//! The view of a bucket's complete checkpoints: `NAME--committed`, or the header `x-martlet-view`.
//!
//! A request of the view becomes one of the bucket before its access check. So the bucket's policy
//! decides, and a key that names a generation is checked as the key of the set.

use http::HeaderName;
use martlet_protocol::entry::Object;
use martlet_proxy::{Error, ListObjects, ObjectName, ObjectPage, Session, ViewedObject};
use s3s::{S3Error, S3Result, s3_error};

use super::operations::Operations;
use crate::errors;
use crate::fields::text;
use crate::messages;
use crate::operation::Operation;
use crate::request::OperationRequest;
use crate::target::{Query, with_pair};
use crate::view::View;

/// Header that selects the view of the bucket that the request names.
const VIEW: HeaderName = HeaderName::from_static("x-martlet-view");
/// The only view.
const COMMITTED: &str = "committed";
/// End of the names of views.
pub(crate) const SUFFIX: &str = "--committed";

/// The view that a request names, and the bucket.
fn named_view(request: &OperationRequest) -> S3Result<Option<(String, View)>> {
    let shown = request.bucket();
    let bucket = match text(&request.headers, &VIEW)? {
        Some(COMMITTED) => shown.strip_suffix(SUFFIX).unwrap_or(shown),
        Some(other) => return Err(s3_error!(InvalidArgument, "there is no view {other:?}")),
        None => match shown.strip_suffix(SUFFIX) {
            Some(bucket) => bucket,
            None => return Ok(None),
        },
    };
    let (key, query) = (request.key().to_owned(), request.raw_query.clone());
    Ok(Some((bucket.to_owned(), View { bucket: shown.to_owned(), key, query })))
}

/// Turns a request of the view into one of the bucket. Its access check needs the names of sets, not
/// those of generations: until then the query has them too.
///
/// # Errors
/// 405 for operations that the view doesn't have.
pub(crate) async fn enter_view(request: &mut OperationRequest, session: &Session) -> S3Result<()> {
    let Some((bucket, view)) = named_view(request)? else { return Ok(()) };
    // A bucket of this name may be older than views.
    if view.bucket != bucket {
        match session.bucket(&view.bucket).await {
            Ok(_) => return Ok(()),
            Err(Error::NoSuchBucket) => {}
            Err(error) => return Err(errors::s3_error(error)),
        }
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
        | Operation::GetBucketLocation => {}
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
    request.target.rename(bucket, key);
    request.view = Some(view);
    Ok(())
}

/// 503: what the view names isn't there now.
fn uncertain() -> S3Error {
    let message = "a version that the view names can't be read now";
    errors::s3_error(martlet_protocol::Error::unavailable(message).into())
}

/// Object of a read in the view.
pub(super) struct ViewedRead(ViewedObject);

impl ViewedRead {
    pub(super) fn name(&self) -> ObjectName<'_> {
        ObjectName { key: &self.0.key, version: self.0.version }
    }

    /// Refuses an object that isn't the one that the view means.
    pub(super) fn check(&self, object: &Object) -> S3Result<()> {
        if self.0.is(object) { Ok(()) } else { Err(uncertain()) }
    }

    /// Error of a read. A version that is pinned can't be absent.
    pub(super) fn error(&self, error: Error) -> S3Error {
        read_error(error, self.0.version.is_some())
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
    /// Object of a read in the view; none for a read of the bucket.
    pub(super) async fn viewed(&self, request: &OperationRequest) -> S3Result<Option<ViewedRead>> {
        let Some(view) = &request.view else { return Ok(None) };
        let viewed = self.store.checkpoints().resolve(request.bucket(), &view.key).await;
        viewed.map(|it| Some(ViewedRead(it))).map_err(errors::s3_error)
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
    fn what_is_pinned_can_not_be_absent() {
        for error in [Error::NoSuchVersion, Error::NoSuchKey] {
            assert_eq!(status(&read_error(error, true)), StatusCode::SERVICE_UNAVAILABLE);
        }
        assert_eq!(status(&read_error(Error::AccessDenied, true)), StatusCode::FORBIDDEN);
        assert_eq!(status(&read_error(Error::NoSuchKey, false)), StatusCode::NOT_FOUND);
    }
}
