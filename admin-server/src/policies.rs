//! Admin API of storage policies, for processes with an S3 port.

use axum::Json;
use axum::extract::State;
use martlet_admin_api::{self as wire, PolicyLine};
use martlet_proxy::ObjectStore;
use martlet_ring::Ring;
use martlet_serving::access::RouteAccess;
use martlet_serving::api::{ApiDoc, ApiRoutes};
use martlet_topology::Cluster;

/// Route of `martlet admin policy`.
pub fn routes(store: ObjectStore) -> ApiRoutes {
    let doc = ApiDoc::reply::<Vec<PolicyLine>>(RouteAccess::Anyone, "List the storage policies");
    ApiRoutes::new().get(wire::POLICIES, doc, list).with_state(store)
}

async fn list(State(store): State<ObjectStore>) -> Json<Vec<PolicyLine>> {
    let cluster = store.topology().cluster();
    Json(cluster.policies().map(|ring| line(&cluster, ring)).collect())
}

fn line(cluster: &Cluster, ring: &Ring) -> PolicyLine {
    let identity = ring.identity();
    PolicyLine {
        id: identity.policy.0,
        name: identity.policy_name.clone(),
        redundancy: identity.redundancy.to_string(),
        replicas: ring.replicas_exact(),
        devices: u64::try_from(ring.devices().len()).unwrap_or(u64::MAX),
        epoch: ring.epoch(),
        default: cluster.default_policy() == identity.policy,
    }
}
