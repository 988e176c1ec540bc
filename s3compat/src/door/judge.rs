//! Anonymous requests, judged by their heads.
//!
//! Operations decide by all that a request says. But a document is read before its operation begins, and
//! whoever has no key could have much read that comes to nothing. So what no policy and no list of a bucket
//! could allow is refused before its body is read.

use std::fmt;

use futures::future::BoxFuture;
use martlet_protocol::http::with_request;

use super::prepare::{Gate, Passed};
use super::reply::RequestId;
use super::table::BodyKind;
use crate::auth::{Identity, Refusal};

/// Knows what the policies and lists of buckets could allow to requests that nobody signed.
pub(crate) trait HeadJudge: fmt::Debug + Send + Sync {
    /// Refuses an operation on a bucket, or on none, that no policy and no list could allow. A bucket that
    /// isn't there is [`Code::NoSuchBucket`](crate::auth::Code::NoSuchBucket).
    fn check_anonymous<'a>(
        &'a self,
        operation: &'static str,
        bucket: Option<&'a str>,
    ) -> BoxFuture<'a, Result<(), Refusal>>;
}

impl Gate {
    /// Refuses an anonymous document that nothing could allow, before any of it is read.
    pub(super) async fn judge(&self, passed: &Passed, id: RequestId) -> Result<(), Refusal> {
        let is_document =
            matches!(passed.operation.body, BodyKind::Xml { .. } | BodyKind::Text { .. });
        match self.judge.get() {
            Some(judge) if is_document && passed.identity == Identity::Anonymous => {
                let judged = judge.check_anonymous(passed.operation.name, passed.bucket.as_deref());
                with_request(id.header(), judged).await
            }
            _ => Ok(()),
        }
    }
}
