//! Cluster of the object layer, made from the rings at the start and renewed with newer rings.

use std::sync::Arc;

use martlet_membership::{Member, RingSet};
use martlet_proxy::ObjectStore;
use martlet_serving::{Failure, wait_for_stop};
use martlet_topology::Cluster;
use tokio::sync::watch;

use crate::policies::check_cpu;
use crate::process::s3_port::S3Settings;

/// Makes the cluster of these rings, with the default policy of the settings.
pub(super) fn of(
    member: &Member,
    rings: &RingSet,
    settings: &S3Settings,
) -> Result<Cluster, Failure> {
    let index = rings.index().cloned().ok_or_else(|| Failure::refused("there is no index ring"))?;
    let data: Vec<_> = rings.data().map(|(_, ring)| ring.clone()).collect();
    if data.is_empty() {
        return Err(Failure::usage(
            "no data ring is known: name one besides the index ring, as in --ring data-0.ring",
        ));
    }
    check_cpu(data.iter().map(Arc::as_ref))?;
    let cluster = Cluster::new(index, data, member.backends(rings))
        .map_err(|error| Failure::refused(format!("the rings don't form a cluster: {error}")))?;
    settings.with_default_policy(cluster)
}

/// Applies newer rings to the object layer (rule P3), until `stop`.
pub(super) async fn follow_rings(
    store: ObjectStore,
    member: Arc<Member>,
    settings: S3Settings,
    mut changes: watch::Receiver<u64>,
    mut stop: watch::Receiver<bool>,
) {
    loop {
        let rings = member.keeper.rings();
        member.nodes.follow(&rings);
        match of(&member, &rings, &settings) {
            Ok(cluster) => store.topology().set_cluster(cluster),
            Err(error) => {
                tracing::error!(%error, "could not use newer rings, keeping the old ones");
            }
        }
        tokio::select! {
            () = wait_for_stop(&mut stop) => return,
            changed = changes.changed() => if changed.is_err() { return },
        }
    }
}
