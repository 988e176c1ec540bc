//! Changes of a bucket's storage policy.
//!
//! The new policy applies to new objects and to parts of new uploads. Existing objects stay under
//! the old policy until the bucket is rewritten ([`rewrite`](crate::rewrite)).

use martlet_protocol::WriteId;
use martlet_protocol::backend::RegisterView;
use martlet_protocol::entry::{Bucket, BucketState, Value};

use super::admin::BucketAdmin;
use super::record::{bucket_of, busy, root};
use crate::context::RequestContext;
use crate::error::{Error, Result};
use crate::index::{Intent, Proposal, Step};
use crate::policy::bucket_policy;

impl BucketAdmin {
    /// Sets the storage policy of new objects and uploads by name. Other proxies use it after their
    /// next lookup of the bucket.
    pub(crate) async fn set_policy(
        &self,
        context: &RequestContext,
        name: &str,
        policy: &str,
    ) -> Result<Bucket> {
        let policy = bucket_policy(&context.cluster, Some(policy))?;
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
        let landed = self
            .registers
            .ballots
            .decide(
                Intent::of_root(&key, WriteId::random(), self.registers.stamps.now_ms()),
                &mut evaluate,
            )
            .await;
        self.catalog.forget(name);
        landed?;
        set.ok_or_else(busy)
    }
}
