//! Writes of an extent as copies: all concurrently, acknowledged by a majority (rule X5).

use std::sync::Arc;

use futures::future::BoxFuture;
use martlet_protocol::backend::NewExtent;
use martlet_protocol::extent::ExtentRef;
use martlet_protocol::{Error, Result};

use super::client::ExtentClient;
use super::delivery::{self, ExtentPlan, ReplicaWrite};
use super::fanout::Fanout;
use super::uncommitted::UncommittedExtents;

/// Begins an extent with one copy for each replica of its policy's ring. Callers push bytes into
/// the fanout; the future completes once enough devices have stored them.
pub(crate) fn begin(
    client: &Arc<ExtentClient>,
    extent: &NewExtent,
    uncommitted: Arc<UncommittedExtents>,
) -> Result<(Fanout, BoxFuture<'static, Result<ExtentRef>>)> {
    let (policy, id) = (extent.layout.policy, extent.id);
    let cluster = client.cluster();
    let ring = cluster.data(policy)?;
    let replicas = ring.primaries(ring.partition(id.placement())).len();
    let replicas = u8::try_from(replicas).map_err(|_| Error::internal("too many replicas"))?;
    let copy = |number| ReplicaWrite { number, new: extent.clone(), fragment: None };
    let replicas: Vec<_> = (0..replicas).map(copy).collect();
    let needed = replicas.len() / 2 + 1;
    delivery::begin(client, ExtentPlan { policy, id, replicas, needed, uncommitted })
}
