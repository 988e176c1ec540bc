//! Object layer of a replicator, which applies lifecycle rules to objects.

use std::sync::Arc;

use martlet_membership::{Member, RingSet};
use martlet_proxy::{Cluster, ObjectStore, StoreOptions};
use martlet_serving::Failure;

/// Makes the object layer over these rings. Returns `None` without a data ring.
pub(super) fn open(member: &Member, rings: &RingSet) -> Result<Option<ObjectStore>, Failure> {
    let Some(cluster) = cluster(member, rings)? else {
        tracing::warn!("no data ring is known: lifecycle rules don't expire objects");
        return Ok(None);
    };
    let store = ObjectStore::new(cluster, member.clock.clone(), StoreOptions::default());
    store.set_term(member.keeper.term());
    Ok(Some(store))
}

/// Applies newer rings and terms to the object layer (rule P3).
pub(super) fn renew(store: &ObjectStore, member: &Member, rings: &RingSet) {
    match cluster(member, rings) {
        Ok(Some(cluster)) => store.set_cluster(cluster),
        Ok(None) => {}
        Err(error) => tracing::error!(%error, "could not use newer rings, keeping the old ones"),
    }
    store.set_term(member.keeper.term());
}

fn cluster(member: &Member, rings: &RingSet) -> Result<Option<Cluster>, Failure> {
    let data: Vec<_> = rings.data().map(|(_, ring)| ring.clone()).collect();
    let (Some(index), false) = (rings.index(), data.is_empty()) else { return Ok(None) };
    let cluster = Cluster::new(Arc::clone(index), data, member.backends(rings))
        .map_err(|error| Failure::refused(format!("the rings don't form a cluster: {error}")))?;
    Ok(Some(cluster))
}
