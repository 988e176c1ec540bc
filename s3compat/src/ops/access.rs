//! Who may do what: whoever has a name may do everything to buckets of its own, and nothing to
//! those of others.

use martlet_proxy::{Error, ObjectStore};
use s3s::access::{S3Access, S3AccessContext};
use s3s::auth::{S3Auth, SecretKey};
use s3s::{S3Error, S3Result, s3_error};

use super::session;
use crate::auth::Identity;
use crate::errors::s3_error;

/// s3s is told no secrets: the door has authenticated the request and taken its credentials out.
pub(crate) struct NoSecrets;

#[async_trait::async_trait]
impl S3Auth for NoSecrets {
    async fn get_secret_key(&self, _access_key: &str) -> S3Result<SecretKey> {
        Err(denied())
    }
}

/// Asks for the identity that the door found, and for the bucket to be its own.
pub(crate) struct IdentityRequired {
    pub(crate) store: ObjectStore,
}

#[async_trait::async_trait]
impl S3Access for IdentityRequired {
    async fn check(&self, context: &mut S3AccessContext<'_>) -> S3Result<()> {
        let identity = context.extensions_mut().get::<Identity>();
        let Some(name) = identity.and_then(Identity::name).map(str::to_owned) else {
            return Err(denied());
        };
        let store = session(context.extensions_mut(), &self.store);
        match context.s3_path().get_bucket_name() {
            // Whether a name is taken is CreateBucket's own question.
            Some(bucket) if context.s3_op().name() != "CreateBucket" => {
                owns(&store, &name, bucket).await
            }
            _ => Ok(()),
        }
    }
}

/// Refuses the bucket of somebody else. One that isn't there is left to the operation.
pub(super) async fn owns(store: &ObjectStore, name: &str, bucket: &str) -> S3Result<()> {
    match store.bucket(bucket).await {
        Ok(bucket) if bucket.owner == name => Ok(()),
        Ok(_) => Err(denied()),
        Err(Error::NoSuchBucket) => Ok(()),
        Err(error) => Err(s3_error(error)),
    }
}

/// 403.
pub(super) fn denied() -> S3Error {
    s3_error!(AccessDenied, "Access Denied")
}
