//! Early access check of anonymous requests, by their heads alone.
//!
//! Operations decide by the whole request, but a document is read before its operation begins.
//! Clients without a key could make the server read many documents in vain. So a request that no
//! policy and no list of a bucket could allow is refused before its body is read.

use std::fmt;

use futures::future::BoxFuture;

use crate::operation::Operation;
use crate::refusal::Refusal;

/// Access check of unsigned requests by the policies and lists of buckets.
pub(crate) trait AnonymousCheck: fmt::Debug + Send + Sync {
    /// Refuses an operation, on a bucket or on none, that no policy and no list could allow. A
    /// missing bucket is [`Code::NoSuchBucket`](crate::refusal::Code::NoSuchBucket).
    fn check_anonymous<'a>(
        &'a self,
        operation: Operation,
        bucket: Option<&'a str>,
    ) -> BoxFuture<'a, Result<(), Refusal>>;
}
