//! Changes of a bucket's storage policy.
//!
//! The new policy applies to new objects and to parts of new uploads. Existing objects stay under
//! the old policy until the bucket is rewritten ([`rewrite`](crate::rewrite)).

use martlet_protocol::entry::Bucket;

use super::admin::Buckets;
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::policy::bucket_policy;

impl Buckets<'_> {
    /// Sets the storage policy of new objects and uploads by name. Other proxies use it after their
    /// next lookup of the bucket.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`]; [`Error::InvalidArgument`] for an unknown policy, which names the
    /// known ones; too few nodes replied.
    pub async fn set_policy(self, name: &str, policy: &str) -> Result<Bucket> {
        let context = self.contexts.context();
        let policy = bucket_policy(&context.cluster, Some(policy))?;
        let set = |bucket: &mut Bucket| {
            bucket.policy = policy;
            Ok(())
        };
        self.change(name, set).await
    }
}
