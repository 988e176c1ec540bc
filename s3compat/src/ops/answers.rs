//! What is true of every bucket: no encryption, and its owner pays. `GetBucketEncryption`,
//! `GetBucketRequestPayment`.

use s3s::dto::{
    GetBucketEncryptionInput, GetBucketEncryptionOutput, GetBucketRequestPaymentInput,
    GetBucketRequestPaymentOutput, Payer,
};
use s3s::{S3Request, S3Response, S3Result};

use super::Operations;
use super::settings::missing;
use crate::errors::s3_error;

impl Operations {
    /// Refuses where there is no such bucket.
    async fn check_bucket(&self, bucket: &str) -> S3Result<()> {
        self.store.bucket(bucket).await.map(drop).map_err(s3_error)
    }

    pub(super) async fn get_bucket_encryption(
        &self,
        request: S3Request<GetBucketEncryptionInput>,
    ) -> S3Result<S3Response<GetBucketEncryptionOutput>> {
        self.check_bucket(&request.input.bucket).await?;
        Err(missing(
            "ServerSideEncryptionConfigurationNotFoundError",
            "The server side encryption configuration was not found",
        ))
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
