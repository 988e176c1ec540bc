//! Running nodes of a cluster: their rings and devices, and the push of newer rings.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use martlet_admin_api::{ProcessReport, RingLine};
use martlet_membership::routes::{self, OfferAnswer};
use martlet_membership::{ClusterSecret, RingName, client_options};
use martlet_protocol::http::{HttpBackend, Tls, TlsFiles};
use martlet_protocol::{DeviceId, SystemClock};
use martlet_ring::{Ring, RingHash, Usage};
use martlet_serving::Failure;
use serde::Deserialize;

use crate::names::{AUTHORITY, CLUSTER_DIR, CLUSTER_KEY, OPERATOR};
use crate::spec::ClusterSpec;

/// Time for the reply of a node.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time for a node to take a ring.
const PUSH_PATIENCE: Duration = Duration::from_mins(1);
/// Most nodes that are asked at once.
const AT_ONCE: usize = 32;

/// Key and certificates of an operator, from the output folder.
pub struct Credentials {
    secret: ClusterSecret,
    tls: Option<Tls>,
}

impl Credentials {
    /// Reads the credentials of an output folder. `None` before the first apply.
    pub fn of_folder(spec: &ClusterSpec, out: &Path) -> Result<Option<Self>, Failure> {
        let folder = out.join(CLUSTER_DIR);
        let files = TlsFiles {
            certificate: folder.join(format!("{OPERATOR}.crt")),
            key: folder.join(format!("{OPERATOR}.key")),
            authority: folder.join(AUTHORITY),
        };
        let key = folder.join(CLUSTER_KEY);
        if !key.exists() || (spec.tls.members && !files.key.exists()) {
            return Ok(None);
        }
        let tls = spec.tls.members.then(|| Tls::load(&files)).transpose().map_err(|error| {
            Failure::refused(format!(
                "the operator's certificate in {} can't be used: {error}",
                folder.display()
            ))
        })?;
        Ok(Some(Self { secret: ClusterSecret::load(&key)?, tls }))
    }

    fn client(&self, address: &str) -> HttpBackend {
        let options = client_options(Arc::new(SystemClock), self.tls.clone());
        HttpBackend::new(address, self.secret.key.clone(), options, Arc::new(|_| ()))
    }
}

/// State of a storage node.
#[derive(Clone, Debug)]
pub struct NodeSurvey {
    /// Name of the node.
    pub name: String,
    /// Internal address of the node.
    pub address: String,
    /// Report of the node, or the reason for its absence.
    pub report: Result<ProcessReport, String>,
}

/// Part of the reply of a node that a plan reads.
#[derive(Deserialize)]
struct StatusReply {
    own: ProcessReport,
}

impl NodeSurvey {
    /// Rings of the node, if it answers.
    pub fn rings(&self) -> &[RingLine] {
        self.report.as_ref().map(|report| report.rings.as_slice()).unwrap_or_default()
    }

    /// True if the node answers and uses exactly this ring.
    pub(crate) fn uses(&self, name: &str, epoch: u64, hash: &RingHash) -> bool {
        let is_it = |line: &&RingLine| line.name == name && line.epoch == epoch;
        self.rings().iter().find(is_it).is_some_and(|line| is_hash(line, hash))
    }
}

/// True if a line has the first bytes of a ring's hash.
pub(crate) fn is_hash(line: &RingLine, hash: &RingHash) -> bool {
    !line.hash.is_empty() && hex::encode(hash).starts_with(&line.hash)
}

/// Queries all storage nodes of a file, many at once. Each has five seconds. `on_reply` receives the
/// number of nodes that replied or were given up, in the order of the file, and the number of all.
pub async fn survey(
    spec: &ClusterSpec,
    credentials: &Credentials,
    mut on_reply: impl FnMut(usize, usize),
) -> Vec<NodeSurvey> {
    let nodes = spec.storage_nodes();
    let (mut done, all) = (0, nodes.len());
    let queries = nodes.into_iter().map(|(name, address)| async move {
        let client = credentials.client(&address);
        let report = match tokio::time::timeout(PATIENCE, client.get(routes::STATUS)).await {
            Err(_) => Err("it does not answer in time".to_owned()),
            Ok(Err(error)) => Err(error.to_string()),
            Ok(Ok(bytes)) => serde_json::from_slice::<StatusReply>(&bytes)
                .map(|reply| reply.own)
                .map_err(|error| format!("its reply can't be decoded: {error}")),
        };
        NodeSurvey { name, address, report }
    });
    let replies = futures::stream::iter(queries).buffered(AT_ONCE).inspect(|_| {
        done += 1;
        on_reply(done, all);
    });
    replies.collect().await
}

/// Returns the fill level of all devices that nodes have reported.
pub(crate) fn usage(nodes: &[NodeSurvey]) -> BTreeMap<DeviceId, Usage> {
    let reports = nodes.iter().filter_map(|node| node.report.as_ref().ok());
    let devices = reports.flat_map(|report| &report.devices);
    devices
        .map(|device| {
            let used = device.total_bytes.saturating_sub(device.free_bytes);
            (DeviceId(device.device), Usage { used, capacity: device.total_bytes })
        })
        .collect()
}

/// Offers a ring to running nodes until one has it, and returns that node's name. From there it
/// travels to all members.
pub async fn push(
    credentials: &Credentials,
    nodes: &[NodeSurvey],
    name: &str,
    ring: &Ring,
) -> Result<String, Failure> {
    let ring_name: RingName = name.parse().map_err(Failure::Refused)?;
    let bytes = Bytes::from(ring.encode());
    let mut refusals = Vec::new();
    for node in nodes.iter().filter(|node| node.report.is_ok()) {
        let client = credentials.client(&node.address);
        let path = routes::ring(ring_name);
        let sent = tokio::time::timeout(PUSH_PATIENCE, client.put(&path, bytes.clone())).await;
        let answer = match sent {
            Err(_) => Err("it does not answer in time".to_owned()),
            Ok(Err(error)) => Err(error.to_string()),
            Ok(Ok(reply)) => serde_json::from_slice::<OfferAnswer>(&reply)
                .map_err(|error| format!("its reply can't be decoded: {error}")),
        };
        match answer {
            Ok(OfferAnswer { refused: None, .. }) => return Ok(node.name.clone()),
            Ok(OfferAnswer { refused: Some(why), .. }) | Err(why) => {
                refusals.push(format!("{}: {why}", node.name));
            }
        }
    }
    Err(Failure::refused(format!("no node took the {name} ring: {}", refusals.join("; "))))
}
