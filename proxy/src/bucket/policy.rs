//! Changes of a bucket's storage policy.
//!
//! The new policy applies to new objects and to parts of new uploads. Existing objects stay under
//! the old policy until the bucket is rewritten ([`rewrite`](crate::rewrite)).

use martlet_protocol::WriteId;
use martlet_protocol::backend::RegisterView;
use martlet_protocol::entry::{Bucket, BucketState, Value};

use super::{bucket_of, busy, root};
use crate::error::{Error, Result};
use crate::index::{Proposal, Step};
use crate::store::ObjectStore;

impl ObjectStore {
    /// Sets the storage policy of new objects and uploads by name. Other proxies use it after their
    /// next lookup of the bucket.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`]; [`Error::InvalidArgument`] for an unknown policy, which names the
    /// known ones; too few nodes replied.
    pub async fn set_bucket_policy(&self, name: &str, policy: &str) -> Result<Bucket> {
        let inner = self.inner();
        let policy = inner.cluster.policy_asked(Some(policy))?;
        let key = root(name);
        let mut set = None;
        let mut evaluate = |view: &RegisterView| {
            let mut bucket = bucket_of(view).ok_or(Error::NoSuchBucket)?.clone();
            if bucket.state == BucketState::Closing {
                return Err(busy());
            }
            let is_set = bucket.policy == policy;
            bucket.policy = policy;
            set = Some(bucket.clone());
            let value = Value::Bucket(Box::new(bucket));
            Ok(if is_set { Step::Keep } else { Step::Write(Proposal::of(value)) })
        };
        let landed = inner.decide(inner.root_intent(&key, WriteId::random()), &mut evaluate).await;
        inner.buckets.forget(name);
        landed?;
        set.ok_or_else(busy)
    }
}
