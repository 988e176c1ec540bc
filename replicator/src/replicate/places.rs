//! Which devices should have an extent.
//!
//! Its own record says by which storage policy it was placed, and, for a fragment, which of the
//! partition's replicas it is: a fragment belongs to one device.

use martlet_protocol::DeviceId;
use martlet_protocol::extent::ExtentRecord;

use crate::cluster::Cluster;
use crate::coded::{Coded, code_of};

/// Where extents belong, as far as the rings of a cluster say.
#[derive(Clone, Copy)]
pub(crate) struct Places<'a>(&'a Cluster);

impl<'a> Places<'a> {
    /// By the rings as they are now.
    pub(crate) fn of(cluster: &'a Cluster) -> Self {
        Self(cluster)
    }

    /// The cluster that this is about.
    pub(crate) fn cluster(self) -> &'a Cluster {
        self.0
    }

    /// The primaries of an extent, or the home of a fragment; none when no ring is known for it.
    pub(crate) fn primaries(self, record: &ExtentRecord) -> Vec<DeviceId> {
        match Coded::of_record(self.0, record) {
            Some(Ok(coded)) => coded.home_of(record.extent.id).into_iter().collect(),
            Some(Err(_)) => Vec::new(),
            None => {
                let ring = self.0.data.get(&record.layout.policy);
                let ring = ring.filter(|ring| code_of(ring).is_none());
                let placement = record.extent.id.placement();
                ring.map(|ring| ring.primaries(ring.partition(placement)).collect())
                    .unwrap_or_default()
            }
        }
    }
}
