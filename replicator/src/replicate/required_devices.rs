//! Devices that should have an extent.
//!
//! The extent's record contains its storage policy and, for a fragment, its replica number in the
//! partition: a fragment belongs to one device.

use martlet_protocol::DeviceId;
use martlet_protocol::extent::ExtentRecord;

use crate::cluster::StepTopology;
use crate::coded::{CodedExtent, code_of};

/// Required holders of extents, by a cluster's rings.
#[derive(Clone, Copy)]
pub(crate) struct RequiredDevices<'a>(&'a StepTopology);

impl<'a> RequiredDevices<'a> {
    /// Uses the current rings.
    pub(crate) fn of(cluster: &'a StepTopology) -> Self {
        Self(cluster)
    }

    /// Returns the cluster.
    pub(crate) fn cluster(self) -> &'a StepTopology {
        self.0
    }

    /// Returns the primaries of an extent, or the home of a fragment; none without a ring for its
    /// policy.
    pub(crate) fn primaries(self, record: &ExtentRecord) -> Vec<DeviceId> {
        match CodedExtent::of_record(self.0, record) {
            Some(Ok(coded)) => coded.home_of(record.extent.id).into_iter().collect(),
            Some(Err(_)) => Vec::new(),
            None => {
                let ring = self.0.data(record.layout.policy).ok();
                let ring = ring.filter(|ring| code_of(ring).is_none());
                let placement = record.extent.id.placement();
                ring.map(|ring| ring.primaries(ring.partition(placement)).collect())
                    .unwrap_or_default()
            }
        }
    }
}
