//! `martlet admin ring`: pushes newer rings to a cluster, and lists the rings of each node.
//!
//! It uses the internal ports of storage nodes. A push to one node is enough: the other nodes fetch
//! the ring within seconds. With `--all` each node gets the rings from the command, which shows the
//! answer of each. A repetition goes on with the nodes that were out.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use clap::Subcommand;
use futures::stream::{self, StreamExt};
use martlet_admin_api::RingLine;
use martlet_membership::routes::{self, OfferAnswer, RingsAnswer};
use martlet_membership::{ClusterSecret, RingName, TlsArgs, client_options, read_ring_file};
use martlet_protocol::SystemClock;
use martlet_protocol::http::{HttpBackend, Tls};
use martlet_ring::Ring;
use martlet_serving::Failure;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::print;
use crate::columns::table;

/// Nodes that get rings at a time.
const PUSHES_AT_ONCE: usize = 16;

/// Subcommands of `martlet admin ring`.
#[derive(Debug, Subcommand)]
pub(super) enum RingCommand {
    /// Send newer rings to a node, from which the others fetch them
    #[command(after_help = "Examples:
  martlet admin --cluster-key-file cluster.key ring push index.ring data-0.ring --node 10.0.0.1:6200")]
    Push {
        /// Ring files, named index.ring or data-0.ring
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// Internal address of a storage node
        #[arg(long, value_name = "HOST:PORT")]
        node: String,
        /// Send to each node of the rings, and show the answer of each; exit code 1 unless all took
        /// them. Repeat the command for nodes that were out
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        tls: TlsArgs,
    },
    /// Show the ring epochs of each storage node
    Status {
        /// Internal address of any storage node
        #[arg(long, value_name = "HOST:PORT")]
        node: String,
        #[command(flatten)]
        tls: TlsArgs,
    },
}

/// Credentials for the nodes.
struct NodeCredentials {
    secret: ClusterSecret,
    tls: Option<Tls>,
}

/// Rings of a node, or the error of the request for them.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct NodeRings {
    node: String,
    address: String,
    rings: Vec<RingLine>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Runs a command.
pub(super) fn run(command: &RingCommand, key_file: &Path, json: bool) -> Result<(), Failure> {
    let (RingCommand::Push { tls, .. } | RingCommand::Status { tls, .. }) = command;
    let credentials = NodeCredentials { secret: ClusterSecret::load(key_file)?, tls: tls.load()? };
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| {
            Failure::refused(format!("the async runtime could not be started: {error}"))
        })?;
    match command {
        RingCommand::Push { files, node, all, .. } => {
            let rings = files.iter().map(|file| read_ring_file(file));
            let rings: Vec<(RingName, Arc<Ring>)> = rings.collect::<Result<_, _>>()?;
            if *all {
                let pushes = runtime.block_on(push_to_all(&credentials, &rings, node, json))?;
                print::show(&pushes, json, |pushes| summary(pushes));
                return check_pushes(&pushes);
            }
            runtime.block_on(push(&credentials, &rings, node))
        }
        RingCommand::Status { node, .. } => {
            let nodes = runtime.block_on(status(&credentials, node))?;
            print::show(&nodes, json, |nodes| lines(nodes));
            Ok(())
        }
    }
}

fn client(credentials: &NodeCredentials, address: &str) -> HttpBackend {
    let options = client_options(Arc::new(SystemClock), credentials.tls.clone());
    HttpBackend::new(address, credentials.secret.key.clone(), options, Arc::new(|_| ()))
}

/// Answer of a node to a ring.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct NodePush {
    node: String,
    address: String,
    ring: String,
    epoch: u64,
    /// `accepted`, `waits`, `known`, `refused` or `unreachable`.
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

impl NodePush {
    fn line(&self) -> String {
        let Self { node, address, ring, epoch, outcome, reason } = self;
        let reason = reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
        format!("{node} ({address}): {ring} of epoch {epoch} {outcome}{reason}")
    }
}

async fn push(
    credentials: &NodeCredentials,
    rings: &[(RingName, Arc<Ring>)],
    node: &str,
) -> Result<(), Failure> {
    let client = client(credentials, node);
    for (name, ring) in rings {
        let OfferAnswer { taken, waits, refused } = offer(&client, node, *name, ring).await?;
        if let Some(reason) = refused {
            return Err(Failure::refused(format!("{node} refused the ring {name}: {reason}")));
        }
        let epoch = ring.epoch();
        let became = match (taken, waits) {
            (true, _) => "is in use",
            (_, true) => "waits for the end of the ring change before it,",
            _ => "was already known",
        };
        println!("{name} of epoch {epoch} {became} at {node}");
    }
    Ok(())
}

async fn offer(
    client: &HttpBackend,
    node: &str,
    name: RingName,
    ring: &Ring,
) -> Result<OfferAnswer, Failure> {
    let sent = client.put(&routes::ring(name), Bytes::from(ring.encode())).await;
    decode(node, &sent.map_err(|error| broken(node, &error))?)
}

/// Sends rings to all nodes of the cluster, and of the rings themselves. Prints each answer as it
/// comes, unless the output is JSON.
async fn push_to_all(
    credentials: &NodeCredentials,
    rings: &[(RingName, Arc<Ring>)],
    first: &str,
    json: bool,
) -> Result<Vec<NodePush>, Failure> {
    let mut nodes = addresses(&index_of(credentials, first).await?);
    nodes.extend(rings.iter().flat_map(|(_, ring)| addresses(ring)));
    let pushes: Vec<_> = nodes
        .iter()
        .map(|(node, address)| push_to_one(credentials, rings, node, address))
        .collect();
    let mut pushes = stream::iter(pushes).buffer_unordered(PUSHES_AT_ONCE);
    let mut all = Vec::new();
    while let Some(of_node) = pushes.next().await {
        if !json {
            for push in &of_node {
                println!("{}", push.line());
            }
        }
        all.extend(of_node);
    }
    Ok(all)
}

/// Sends rings to a node, in their order, up to the first that it doesn't take.
async fn push_to_one(
    credentials: &NodeCredentials,
    rings: &[(RingName, Arc<Ring>)],
    node: &str,
    address: &str,
) -> Vec<NodePush> {
    let client = client(credentials, address);
    let mut pushes = Vec::new();
    for (name, ring) in rings {
        let (outcome, reason) = match offer(&client, address, *name, ring).await {
            Err(error) => ("unreachable", Some(error.to_string())),
            Ok(OfferAnswer { refused: Some(reason), .. }) => ("refused", Some(reason)),
            Ok(OfferAnswer { taken: true, .. }) => ("accepted", None),
            Ok(OfferAnswer { waits: true, .. }) => ("waits", None),
            Ok(_) => ("known", None),
        };
        let is_unreachable = outcome == "unreachable";
        pushes.push(NodePush {
            node: node.to_owned(),
            address: address.to_owned(),
            ring: name.to_string(),
            epoch: ring.epoch(),
            outcome,
            reason,
        });
        if is_unreachable {
            break;
        }
    }
    pushes
}

fn count_of(pushes: &[NodePush], outcome: &str) -> usize {
    pushes.iter().filter(|push| push.outcome == outcome).count()
}

fn summary(pushes: &[NodePush]) -> String {
    let counts = ["accepted", "waits", "known", "refused", "unreachable"]
        .map(|outcome| format!("{} {outcome}", count_of(pushes, outcome)));
    format!("{}\n", counts.join(", "))
}

/// Fails if a node has refused a ring or was out.
fn check_pushes(pushes: &[NodePush]) -> Result<(), Failure> {
    match count_of(pushes, "refused") + count_of(pushes, "unreachable") {
        0 => Ok(()),
        _ => Err(Failure::refused(
            "some nodes have not taken the rings: remove the reasons above, and run the command \
             again; nodes that were out fetch the rings from others when they are back",
        )),
    }
}

/// Fetches the index ring of a node.
async fn index_of(credentials: &NodeCredentials, node: &str) -> Result<Ring, Failure> {
    let reply = client(credentials, node).get(&routes::ring(RingName::Index)).await;
    let bytes = reply.map_err(|error| broken(node, &error))?;
    Ring::decode(&bytes)
        .map_err(|error| Failure::refused(format!("{node} has a damaged index ring: {error}")))
}

async fn status(credentials: &NodeCredentials, node: &str) -> Result<Vec<NodeRings>, Failure> {
    let index = index_of(credentials, node).await?;
    let mut all = Vec::new();
    for (name, address) in addresses(&index) {
        let reply = client(credentials, &address).get(routes::RINGS).await;
        let decoded = match reply {
            Ok(bytes) => decode::<RingsAnswer>(&address, &bytes).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        let (rings, error) = match decoded {
            Ok(answer) => (answer.rings, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        all.push(NodeRings { node: name, address, rings, error });
    }
    Ok(all)
}

fn addresses(ring: &Ring) -> BTreeMap<String, String> {
    let node =
        |device: &martlet_ring::Device| (device.node.name.clone(), device.node.address.clone());
    ring.devices().iter().map(node).collect()
}

fn decode<T: DeserializeOwned>(node: &str, bytes: &[u8]) -> Result<T, Failure> {
    serde_json::from_slice(bytes).map_err(|error| {
        Failure::refused(format!(
            "{node} does not answer as a storage node of this version: {error}"
        ))
    })
}

fn broken(node: &str, error: &martlet_protocol::Error) -> Failure {
    Failure::refused(format!(
        "{node} could not be reached: {error}; check that it is a storage node's internal address \
         and that the key is its cluster's"
    ))
}

/// Formats the rings of each node. Editions older than the newest are marked.
fn lines(nodes: &[NodeRings]) -> String {
    let mut newest: BTreeMap<&str, u64> = BTreeMap::new();
    for ring in nodes.iter().flat_map(|node| &node.rings) {
        let epoch = newest.entry(&ring.name).or_default();
        *epoch = ring.epoch.max(*epoch);
    }
    let mut rows = vec![vec!["node".to_owned(), "address".to_owned()]];
    rows[0].extend(newest.keys().map(|name| (*name).to_owned()));
    for node in nodes {
        let mut row = vec![node.node.clone(), node.address.clone()];
        if let Some(error) = &node.error {
            row.push(error.clone());
        } else {
            row.extend(newest.iter().map(|(name, epoch)| edition(node, name, *epoch)));
        }
        rows.push(row);
    }
    table(&rows, &[])
}

fn edition(node: &NodeRings, name: &str, newest: u64) -> String {
    match node.rings.iter().find(|ring| ring.name == name) {
        None => "none".to_owned(),
        Some(ring) if ring.epoch < newest => format!("{}-{} (old)", ring.epoch, ring.hash),
        Some(ring) => format!("{}-{}", ring.epoch, ring.hash),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_shown_and_what_is_left_ends_badly() {
        let push = |outcome: &'static str, reason: Option<&str>| NodePush {
            node: "n1".into(),
            address: "a:1".into(),
            ring: "index".into(),
            epoch: 7,
            outcome,
            reason: reason.map(str::to_owned),
        };
        let accepted = push("accepted", None);
        assert_eq!(accepted.line(), "n1 (a:1): index of epoch 7 accepted");
        let refused = push("refused", Some("older"));
        assert_eq!(refused.line(), "n1 (a:1): index of epoch 7 refused: older");
        let good = [accepted, push("waits", None), push("known", None)];
        assert!(check_pushes(&good).is_ok());
        assert_eq!(summary(&good), "1 accepted, 1 waits, 1 known, 0 refused, 0 unreachable\n");
        for bad in [refused, push("unreachable", Some("no route"))] {
            assert!(check_pushes(&[bad]).is_err());
        }
    }

    #[test]
    fn who_is_behind_is_marked() {
        let ring = |epoch| RingLine { name: "index".into(), epoch, hash: format!("h{epoch}") };
        let node = |name: &str, rings, error: Option<&str>| NodeRings {
            node: name.into(),
            address: "a:1".into(),
            rings,
            error: error.map(str::to_owned),
        };
        let nodes = [
            node("n1", vec![ring(2)], None),
            node("n2", vec![ring(1)], None),
            node("n3", vec![], None),
            node("n4", vec![], Some("it is down")),
        ];
        let text = lines(&nodes);
        for line in [
            "n1    a:1      2-h2",
            "n2    a:1      1-h1 (old)",
            "n3    a:1      none",
            "n4    a:1      it is down",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }
}
