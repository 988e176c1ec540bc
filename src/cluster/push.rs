//! Delivery of a new ring to a running node, from which it spreads to all members.

use bytes::Bytes;
use martlet_admin_api::control::{ProcessRole, ProcessState};
use martlet_membership::ClusterSecret;
use martlet_membership::routes::{OfferAnswer, RINGS};
use martlet_protocol::http::{ClientOptions, HttpBackend};
use martlet_serving::Failure;

use super::supervisor::Supervisor;

/// Offers a ring to each running node until one accepts it. Returns that node's name, or a phrase
/// for all of them if every node has the ring already.
pub(super) async fn push_ring(
    supervisor: &Supervisor,
    name: &str,
    ring: Vec<u8>,
) -> Result<String, Failure> {
    let secret = ClusterSecret::load(&supervisor.folder.key_path())?;
    let ring = Bytes::from(ring);
    let mut refusals = Vec::new();
    for watched in &supervisor.watched {
        let Some(address) = watched.member.address else { continue };
        let runs = *watched.process.state() == ProcessState::Running;
        if watched.member.role != ProcessRole::StorageNode || !runs {
            continue;
        }
        let key = secret.key.clone();
        let deaf = std::sync::Arc::new(|_| {});
        let node = HttpBackend::new(address.to_string(), key, ClientOptions::default(), deaf);
        let node_name = &watched.member.name;
        match offer(&node, name, ring.clone()).await {
            Ok(true) => return Ok(node_name.clone()),
            // The node read the new ring file at its start.
            Ok(false) => {}
            Err(why) => refusals.push(format!("{node_name}: {why}")),
        }
    }
    if refusals.is_empty() {
        return Ok("every node that runs".to_owned());
    }
    Err(Failure::refused(format!("no node took the new ring: {}", refusals.join("; "))))
}

async fn offer(node: &HttpBackend, name: &str, ring: Bytes) -> Result<bool, String> {
    let path = format!("{RINGS}/{name}");
    let answer = node.put(&path, ring).await.map_err(|error| error.to_string())?;
    let answer: OfferAnswer =
        serde_json::from_slice(&answer).map_err(|_| "its answer can't be decoded".to_owned())?;
    match answer.refused {
        Some(why) => Err(why),
        // A waiting ring is stored; it spreads once it is in use.
        None => Ok(answer.taken || answer.waits),
    }
}
