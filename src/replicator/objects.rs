//! Object layer of a replicator, which applies lifecycle rules to objects.

use martlet_proxy::{ObjectStore, StoreOptions};
use martlet_topology::Topology;

use martlet_membership::Member;

/// Makes the object layer on the topology of the workers. Returns `None` without a data ring.
pub(super) fn open(member: &Member, topology: &Topology) -> Option<ObjectStore> {
    if topology.cluster().policies().next().is_none() {
        tracing::warn!("no data ring is known: lifecycle rules don't expire objects");
        return None;
    }
    Some(ObjectStore::new(topology.clone(), member.clock.clone(), StoreOptions::default()))
}
