//! Early access check of anonymous requests, by their heads alone.
//!
//! Operations decide by the whole request, but a document is read before its operation begins.
//! Clients without a key could make the server read many documents in vain. So a request that no
//! policy and no list of a bucket could allow is refused before its body is read.

use std::fmt;

use futures::future::BoxFuture;
use http::HeaderValue;
use martlet_protocol::http::with_request;

use super::operation::Operation;
use super::pipeline::{CheckedHead, RequestPipeline};
use super::table::BodyKind;
use crate::auth::{Identity, Refusal};

/// Access check of unsigned requests by the policies and lists of buckets.
pub(crate) trait AnonymousCheck: fmt::Debug + Send + Sync {
    /// Refuses an operation, on a bucket or on none, that no policy and no list could allow. A
    /// missing bucket is [`Code::NoSuchBucket`](crate::auth::Code::NoSuchBucket).
    fn check_anonymous<'a>(
        &'a self,
        operation: Operation,
        bucket: Option<&'a str>,
    ) -> BoxFuture<'a, Result<(), Refusal>>;
}

impl RequestPipeline {
    /// Refuses an anonymous document that nothing could allow, before its body is read.
    pub(super) async fn check_anonymous_document(
        &self,
        passed: &CheckedHead,
        id: &HeaderValue,
    ) -> Result<(), Refusal> {
        let is_document =
            matches!(passed.operation.row().body, BodyKind::Xml { .. } | BodyKind::Text { .. });
        match self.judge.get() {
            Some(judge) if is_document && passed.identity == Identity::Anonymous => {
                let judged = judge.check_anonymous(passed.operation, passed.target.bucket());
                with_request(id.clone(), judged).await
            }
            _ => Ok(()),
        }
    }
}
