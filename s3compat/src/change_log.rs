//! Records of requests that make, delete or configure buckets, and of users' own keys.
//!
//! A record begins before the operation and ends before the reply. The operation then runs in a task
//! of its own, so that a client that leaves ends nothing between the two. Requests of anonymous
//! clients are not recorded.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use futures::future::BoxFuture;
use s3s::{S3Error, S3ErrorCode};

use crate::operation::{Operation, PathKind};
use crate::reply::Reply;
use crate::request::{OperationRequest, PreparedRequest};

/// Item that a change makes, deletes or configures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeTarget {
    /// Bucket, by its name.
    Bucket(String),
    /// Access key of the requester's user.
    AccessKey(String),
}

/// Change that a request is going to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedChange {
    /// S3's or IAM's name of the operation.
    pub operation: &'static str,
    /// Item of the change.
    pub target: ChangeTarget,
    /// Account of the requester: a tenant's name, or `root`.
    pub account: String,
    /// User within the account; the account's own name for the account itself.
    pub user: String,
    /// Access key of the request, in changes of keys.
    pub key: Option<String>,
    /// Address of the client.
    pub peer: Option<IpAddr>,
}

/// Stores the status of the reply as the end of a record. Fails with a sentence.
pub type RecordEnd = Box<dyn FnOnce(u16) -> BoxFuture<'static, Result<(), String>> + Send>;

/// Log of changes.
pub trait ChangeLog: fmt::Debug + Send + Sync {
    /// Stores that a change begins. Fails with a sentence, if the change must not be made.
    fn begin(&self, change: RecordedChange) -> BoxFuture<'_, Result<RecordEnd, String>>;
}

impl Operation {
    /// Returns true if the operation makes, deletes or configures a bucket.
    fn changes_bucket(self) -> bool {
        let row = self.row();
        let is_of_set = matches!(self, Self::HoldCheckpoint | Self::DeleteCheckpoint);
        row.path == PathKind::Bucket && matches!(row.method, "PUT" | "DELETE") && !is_of_set
    }
}

impl RecordedChange {
    /// Returns the change that a request makes, if it is signed and makes one.
    pub(crate) fn of(request: &OperationRequest) -> Option<Self> {
        if !request.operation().changes_bucket() {
            return None;
        }
        let who = request.context.identity.who()?;
        Some(Self {
            operation: request.operation().name(),
            target: ChangeTarget::Bucket(request.target.bucket()?.to_owned()),
            account: who.account.to_string(),
            user: who.user.to_string(),
            key: None,
            peer: request.context.connection.peer,
        })
    }
}

/// Answers a request between the begin and the end of its record.
pub(crate) async fn recorded<F>(
    log: Arc<dyn ChangeLog>,
    change: RecordedChange,
    request: PreparedRequest,
    answer: impl FnOnce(PreparedRequest) -> F + Send + 'static,
) -> Reply
where
    F: Future<Output = Reply> + Send + 'static,
{
    let task = tokio::spawn(async move {
        let end = match log.begin(change).await {
            Ok(end) => end,
            Err(sentence) => return refusal(S3ErrorCode::ServiceUnavailable, sentence),
        };
        // A panic of the operation is an outcome too.
        let reply = match tokio::spawn(answer(request)).await {
            Ok(reply) => reply,
            Err(_) => refusal(S3ErrorCode::InternalError, "the operation failed".to_owned()),
        };
        match end(reply.status.as_u16()).await {
            Ok(()) => reply,
            Err(sentence) => refusal(S3ErrorCode::InternalError, sentence),
        }
    });
    let failed = |_| refusal(S3ErrorCode::InternalError, "the operation failed".to_owned());
    task.await.unwrap_or_else(failed)
}

fn refusal(code: S3ErrorCode, sentence: String) -> Reply {
    S3Error::with_message(code, sentence).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_that_configure_buckets_are_recorded_and_no_others() {
        let recorded: Vec<&str> = Operation::ALL
            .iter()
            .filter(|operation| operation.changes_bucket())
            .map(|operation| operation.name())
            .collect();
        let expected = "CreateBucket DeleteBucket PutBucketPolicy DeleteBucketPolicy PutBucketAcl \
            PutBucketCors DeleteBucketCors PutBucketEncryption DeleteBucketEncryption \
            PutBucketLifecycleConfiguration DeleteBucketLifecycle PutBucketLogging \
            PutBucketNotificationConfiguration PutObjectLockConfiguration \
            PutBucketOwnershipControls DeleteBucketOwnershipControls PutPublicAccessBlock \
            DeletePublicAccessBlock PutBucketTagging DeleteBucketTagging PutBucketVersioning \
            PutBucketCheckpoints DeleteBucketCheckpoints";
        assert_eq!(recorded, expected.split_whitespace().collect::<Vec<_>>());
    }
}
