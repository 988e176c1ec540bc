//! `martlet admin ring`: pushes newer rings to a cluster, and lists the rings of each node.
//!
//! A proxy at the admin address pushes rings to all nodes as a job. With `--node` the command itself
//! sends them to the internal ports of storage nodes: to one node, from which the others fetch them
//! within seconds, or to each node with `--all`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use clap::Subcommand;
use martlet_admin_api::RingLine;
use martlet_admin_api::jobs::{JOB_REQUEST_BYTES_MAX, JobLine, JobRequest};
use martlet_admin_api::ring_push::{RingFile, RingPushLine, check_push, push_summary};
use martlet_membership::routes::{self, OfferAnswer, RingsAnswer};
use martlet_membership::{
    ClusterSecret, NamedRing, RingName, RingPush, TlsArgs, node_addresses, push_options,
    read_ring_file,
};
use martlet_protocol::SystemClock;
use martlet_protocol::http::{HttpBackend, Tls};
use martlet_ring::Ring;
use martlet_serving::Failure;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::connection::AdminConnection;
use super::print::NewestRings;
use super::{job, print};
use crate::columns::table;

/// Timeout of a request with rings.
const PUSH_PATIENCE: Duration = Duration::from_mins(1);

/// Subcommands of `martlet admin ring`.
#[derive(Debug, Subcommand)]
pub(super) enum RingCommand {
    /// Send newer rings to all nodes
    #[command(after_help = "\
The proxy at the admin address sends the rings to each node as a job, and shows the answer of each node. \
Repeat the command for nodes that were out; they also fetch the rings from others when they are back. \
Without a proxy, name a storage node with --node, and the cluster's key.

Examples:
  martlet admin --admin-address n1:6201 --admin-key-file ops.key ring push index.ring data-0.ring
  martlet admin --cluster-key-file cluster.key ring push index.ring --node 10.0.0.1:6200")]
    Push {
        /// Ring files, named index.ring or data-0.ring
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// Send to the internal address of this storage node, from which the others fetch the rings
        #[arg(long, value_name = "HOST:PORT")]
        node: Option<String>,
        /// Send to each node of the rings from here, and show the answer of each; exit code 1 unless
        /// all took them
        #[arg(long, requires = "node")]
        all: bool,
        /// Print the job of the proxy and return
        #[arg(long, conflicts_with = "node")]
        detach: bool,
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
pub(super) fn run(
    command: &RingCommand,
    connection: &AdminConnection,
    json: bool,
) -> Result<(), Failure> {
    match command {
        RingCommand::Push { files, node, all, detach, tls } => {
            let rings = files.iter().map(|file| read_ring_file(file));
            let rings: Vec<NamedRing> = rings.collect::<Result<_, _>>()?;
            let Some(node) = node else {
                return push_by_job(connection, &rings, *detach, json);
            };
            let (credentials, runtime) = (credentials(connection, tls)?, runtime()?);
            if *all {
                let answers = runtime.block_on(push_to_all(&credentials, rings, node, json))?;
                print::show(&answers, json, |answers| format!("{}\n", push_summary(answers)));
                return check_push(&answers).map_err(Failure::refused);
            }
            runtime.block_on(push(&credentials, &rings, node))
        }
        RingCommand::Status { node, tls } => {
            let nodes = runtime()?.block_on(status(&credentials(connection, tls)?, node))?;
            print::show(&nodes, json, |nodes| lines(nodes));
            Ok(())
        }
    }
}

fn credentials(connection: &AdminConnection, tls: &TlsArgs) -> Result<NodeCredentials, Failure> {
    let file = connection.cluster_key_file.as_deref().ok_or_else(|| {
        Failure::usage("no cluster key is given: name its file with --cluster-key-file")
    })?;
    Ok(NodeCredentials { secret: ClusterSecret::load(file)?, tls: tls.load()? })
}

fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| {
        Failure::refused(format!("the async runtime could not be started: {error}"))
    })
}

fn client(credentials: &NodeCredentials, address: &str) -> HttpBackend {
    let options = push_options(Arc::new(SystemClock), credentials.tls.clone());
    HttpBackend::new(address, credentials.secret.key.clone(), options, Arc::new(|_| ()))
}

/// Has the proxy at the admin address push the rings, and follows its job.
fn push_by_job(
    connection: &AdminConnection,
    rings: &[NamedRing],
    is_detached: bool,
    json: bool,
) -> Result<(), Failure> {
    let file = |(name, ring): &NamedRing| RingFile {
        name: name.to_string(),
        file: STANDARD.encode(ring.encode()),
    };
    let files: Vec<RingFile> = rings.iter().map(file).collect();
    // The rest of the request is shorter than a page.
    let bytes: usize = files.iter().map(|file| file.file.len()).sum::<usize>() + 4096;
    if bytes > JOB_REQUEST_BYTES_MAX {
        return Err(Failure::refused(format!(
            "these rings are larger than a request of the admin API, of {} MiB: push one by one, or \
             to a storage node with --node",
            JOB_REQUEST_BYTES_MAX >> 20
        )));
    }
    let server = connection.endpoint()?.patient(PUSH_PATIENCE);
    let line = job::start(&server, &JobRequest::RingPush { rings: files })?;
    if is_detached {
        job::show_detached(&line, json);
        return Ok(());
    }
    let line = job::follow(&server, line, json)?;
    print::show(&line, json, answer_lines);
    job::check_outcome(&line)
}

/// Formats the answers of nodes that a job collected.
fn answer_lines(line: &JobLine) -> String {
    let answers = line.detail.clone().unwrap_or_default();
    let answers: Vec<RingPushLine> = serde_json::from_value(answers).unwrap_or_default();
    let lines = answers.iter().map(|answer| answer.text() + "\n");
    lines.chain([line.progress.text.clone() + "\n"]).collect()
}

async fn push(
    credentials: &NodeCredentials,
    rings: &[NamedRing],
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
/// comes, after the number of nodes that have answered, unless the output is JSON.
async fn push_to_all(
    credentials: &NodeCredentials,
    rings: Vec<NamedRing>,
    first: &str,
    json: bool,
) -> Result<Vec<RingPushLine>, Failure> {
    let push = RingPush::new(rings, node_addresses(&index_of(credentials, first).await?));
    let print = |answer: &RingPushLine| {
        if !json {
            println!("{} of {} nodes: {}", push.nodes_done(), push.node_count(), answer.text());
        }
    };
    push.run(|address| client(credentials, address), print).await;
    Ok(push.progress().answers)
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
    for (name, address) in node_addresses(&index) {
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

/// Formats the rings of each node. Editions older than the newest are marked, and others of its epoch.
fn lines(nodes: &[NodeRings]) -> String {
    let newest = NewestRings::of(nodes.iter().flat_map(|node| &node.rings));
    let mut rows = vec![vec!["node".to_owned(), "address".to_owned()]];
    rows[0].extend(newest.names().map(str::to_owned));
    for node in nodes {
        let mut row = vec![node.node.clone(), node.address.clone()];
        if let Some(error) = &node.error {
            row.push(error.clone());
        } else {
            row.extend(newest.names().map(|name| edition(node, name, &newest)));
        }
        rows.push(row);
    }
    table(&rows, &[])
}

fn edition(node: &NodeRings, name: &str, newest: &NewestRings) -> String {
    match node.rings.iter().find(|ring| ring.name == name) {
        None => "none".to_owned(),
        Some(ring) => format!("{}-{}{}", ring.epoch, ring.hash, newest.mark(ring)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_a_job_are_shown_one_by_one() {
        let answer = |node: &str, outcome: &str| {
            serde_json::json!({
                "node": node, "address": "a:1", "ring": "index", "epoch": 7, "outcome": outcome
            })
        };
        let line = JobLine {
            detail: Some(vec![answer("n1", "accepted"), answer("n2", "known")].into()),
            ..JobLine::default()
        };
        let text = answer_lines(&line);
        assert!(text.contains("n1 (a:1): index of epoch 7 accepted\nn2 (a:1)"), "{text}");
    }

    #[test]
    fn nodes_with_older_rings_are_marked() {
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
            node("n5", vec![ring(2)], None),
            node("n6", vec![RingLine { hash: "h0".into(), ..ring(2) }], None),
        ];
        let text = lines(&nodes);
        for line in [
            "n1    a:1      2-h2",
            "n2    a:1      1-h1 (old)",
            "n3    a:1      none",
            "n4    a:1      it is down",
            "n6    a:1      2-h0 (other ring)",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }
}
