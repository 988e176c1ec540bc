//! `GetBucketRequestPayment`, whose reply is constant: the bucket's owner pays.

use s3s::S3Result;
use s3s::dto::{GetBucketRequestPaymentOutput, Payer};

use super::operations::Operations;
use crate::errors::s3_error;
use crate::reply::Reply;
use crate::request::OperationRequest;

impl Operations {
    /// Refuses a bucket that does not exist.
    async fn check_bucket(&self, bucket: &str) -> S3Result<()> {
        self.store.bucket(bucket).await.map(drop).map_err(s3_error)
    }

    pub(super) async fn get_bucket_request_payment(
        &self,
        request: &OperationRequest,
    ) -> S3Result<Reply> {
        self.check_bucket(request.bucket()).await?;
        let payer = Some(Payer::from_static(Payer::BUCKET_OWNER));
        Reply::xml(&GetBucketRequestPaymentOutput { payer })
    }
}
