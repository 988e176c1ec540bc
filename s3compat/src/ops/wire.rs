//! Values of requests and replies that several operations have.

use martlet_proxy::ObjectStore;
use s3s::S3Result;
use s3s::dto::Owner;

use crate::errors::denied;
use crate::messages;
use crate::request::OperationRequest;

/// Namespace of S3's documents.
pub(super) const NAMESPACE: &str = "http://s3.amazonaws.com/doc/2006-03-01/";

/// Canonical id of the requester. Anonymous requests are refused: they own nothing.
pub(super) fn owner(request: &OperationRequest) -> S3Result<String> {
    request.context.identity.name().map(str::to_owned).ok_or_else(denied)
}

/// Returns the requested limit, at most `maximum`, which is also the default. Refuses negative
/// numbers.
pub(super) fn limit(requested: Option<i32>, maximum: usize, name: &'static str) -> S3Result<usize> {
    let Some(requested) = requested else { return Ok(maximum) };
    match usize::try_from(requested) {
        Ok(requested) => Ok(requested.min(maximum)),
        Err(_) => Err(messages::LIMIT
            .with_subject(name)
            .with_detail("ArgumentName", name)
            .with_detail("ArgumentValue", requested.to_string())
            .into()),
    }
}

/// Object size in s3s's type. Objects are far smaller than `i64::MAX`.
pub(super) fn wire_size(size: u64) -> i64 {
    i64::try_from(size).unwrap_or(i64::MAX)
}

/// Count in s3s's type. Counts are at most a few thousand.
pub(super) fn wire_count(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// Owner of a bucket in s3s's type, with its display name.
pub(super) async fn wire_owner(store: &ObjectStore, canonical_id: &str) -> Owner {
    let name = store.directory().owner_name(canonical_id).await;
    Owner { id: Some(canonical_id.to_owned()), display_name: Some(name.to_string()) }
}
