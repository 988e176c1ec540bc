//! `GetBucketRequestPayment`, whose reply is constant: the bucket's owner pays.

use s3s::dto::{GetBucketRequestPaymentInput, GetBucketRequestPaymentOutput, Payer};
use s3s::{S3Request, S3Response, S3Result};

use super::Operations;
use crate::errors::s3_error;

impl Operations {
    /// Refuses a bucket that does not exist.
    async fn check_bucket(&self, bucket: &str) -> S3Result<()> {
        self.store.bucket(bucket).await.map(drop).map_err(s3_error)
    }

    pub(super) async fn get_bucket_request_payment(
        &self,
        request: S3Request<GetBucketRequestPaymentInput>,
    ) -> S3Result<S3Response<GetBucketRequestPaymentOutput>> {
        self.check_bucket(&request.input.bucket).await?;
        let payer = Some(Payer::from_static(Payer::BUCKET_OWNER));
        Ok(S3Response::new(GetBucketRequestPaymentOutput { payer }))
    }
}
