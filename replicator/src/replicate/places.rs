//! Which devices should have an extent.
//!
//! An extent doesn't say which storage policy it was placed by: its bucket does, and where there is
//! only one policy nobody has to ask.

use std::collections::HashMap;

use martlet_protocol::extent::ExtentRecord;
use martlet_protocol::{BucketId, DeviceId, PolicyId, Result};

use crate::cluster::Cluster;
use crate::sweep::list_buckets;

/// Where extents belong, as far as the rings of a cluster and its buckets say.
pub(crate) struct Places<'a> {
    cluster: &'a Cluster,
    only: Option<PolicyId>,
    of_bucket: HashMap<BucketId, PolicyId>,
}

impl<'a> Places<'a> {
    /// As of now.
    ///
    /// # Errors
    /// When there are several policies, and nobody can tell which buckets there are.
    pub(crate) async fn of(cluster: &'a Cluster) -> Result<Self> {
        let mut policies = cluster.data.keys().copied();
        let only = policies.next().filter(|_| policies.next().is_none());
        let mut of_bucket = HashMap::new();
        if only.is_none() {
            let buckets = list_buckets(cluster).await?.into_iter();
            of_bucket.extend(buckets.map(|(bucket, known)| (bucket, known.policy)));
        }
        Ok(Self { cluster, only, of_bucket })
    }

    /// The cluster that this is about.
    pub(crate) fn cluster(&self) -> &'a Cluster {
        self.cluster
    }

    /// The primaries of an extent; none when its bucket is gone, or younger than this.
    pub(crate) fn primaries(&self, record: &ExtentRecord) -> Vec<DeviceId> {
        let policy = self.only.or_else(|| self.of_bucket.get(&record.owner.bucket).copied());
        let ring = policy.and_then(|policy| self.cluster.data.get(&policy));
        ring.map(|ring| ring.primaries(ring.partition(record.extent.id.placement())).collect())
            .unwrap_or_default()
    }
}
