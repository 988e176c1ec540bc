//! `martlet admin census`: compares the contents of every device with the rings. It queries the
//! storage nodes at their internal addresses and does not rely on reported figures.
//!
//! A rebalance, a drain or a repair is done when a census is clean.

use std::collections::{BTreeMap, HashMap};
use std::io::IsTerminal;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use martlet_admin_api::jobs::{JobLine, JobRequest};
use martlet_admin_api::{self as wire, ServerStatus};
use martlet_membership::{ClusterSecret, RingName, RingSet, TlsArgs, client_options, routes};
use martlet_protocol::http::HttpBackend;
use martlet_protocol::{Backend, DeviceId, SystemClock, Term};
use martlet_replicator::{CensusOptions, CensusProgress, CensusReport, census};
use martlet_ring::Ring;
use martlet_serving::{Failure, parse_span};
use martlet_topology::{Cluster, Topology};

use super::client::AdminEndpoint;
use super::job;

/// Interval between two lines of progress.
const PRINT_INTERVAL: Duration = Duration::from_secs(1);

/// Arguments of `martlet admin census`.
#[derive(Args, Debug)]
pub(super) struct CensusArgs {
    /// Pause between two pages; longer pauses load the cluster less
    #[arg(long, value_name = "SPAN", default_value = "5ms", value_parser = parse_span)]
    pause: Duration,
    /// Let the server or proxy at the admin address count, print its job and return
    #[arg(long)]
    detach: bool,
    #[command(flatten)]
    tls: TlsArgs,
}

/// Outcome of the command: the report, or a job that was not followed.
pub(super) enum CensusOutcome {
    Report(Box<CensusReport>),
    Detached(Box<JobLine>),
}

/// Takes a census. With a cluster's key this command queries the nodes, unless it is detached.
/// Otherwise the server counts its own devices as a job.
pub(super) fn take(
    args: &CensusArgs,
    server: &AdminEndpoint,
    secret: Option<ClusterSecret>,
    json: bool,
) -> Result<CensusOutcome, Failure> {
    let Some(secret) = secret.filter(|_| !args.detach) else {
        let pause_ms = u64::try_from(args.pause.as_millis()).unwrap_or(u64::MAX);
        let job = job::start(server, &JobRequest::Census { pause_ms: Some(pause_ms) })?;
        if args.detach {
            return Ok(CensusOutcome::Detached(Box::new(job)));
        }
        let ended = job::follow(server, job, json)?;
        job::check_outcome(&ended)?;
        let report = serde_json::from_value(ended.detail.unwrap_or_default());
        let report = report.map_err(|error| {
            Failure::refused(format!("the report is not one of this version: {error}"))
        })?;
        return Ok(CensusOutcome::Report(Box::new(report)));
    };
    let status: ServerStatus = server.request_json(wire::STATUS, &[])?;
    if let Some(why) = rings_in_motion(&status) {
        return Err(Failure::refused(why));
    }
    let tls = args.tls.load()?;
    let reach = |address: &str| {
        let options = client_options(Arc::new(SystemClock), tls.clone());
        Arc::new(HttpBackend::new(address, secret.key.clone(), options, Arc::new(|_| ())))
    };
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| {
            Failure::refused(format!("the async runtime could not be started: {error}"))
        })?;
    runtime.block_on(async {
        let rings = rings(&status, reach).await?;
        let topology = topology(&rings, Term(status.term), reach)?;
        let options = CensusOptions { pause: args.pause, ..CensusOptions::default() };
        let report = census(&topology, options, &mut progress_printer()).await;
        Ok(CensusOutcome::Report(Box::new(report)))
    })
}

/// Returns the reason for which a census would count by an old ring: a ring waits, or nodes have
/// others than the queried process.
fn rings_in_motion(status: &ServerStatus) -> Option<String> {
    if let Some(epoch) = status.waiting_epoch {
        return Some(format!(
            "the index ring of epoch {epoch} waits for the ring change before it: try again later"
        ));
    }
    let others = status.nodes.iter().filter(|node| node.answers && !node.rings.is_empty());
    others.flat_map(|node| status.own.rings.iter().map(move |ring| (node, ring))).find_map(
        |(node, ring)| {
            (!node.rings.contains(ring)).then(|| {
                format!(
                    "{} has another {} ring than the queried process: rings are still spreading, \
                     try again in a moment",
                    node.name, ring.name
                )
            })
        },
    )
}

/// Fetches the rings of the queried process from nodes that have them.
async fn rings(
    status: &ServerStatus,
    reach: impl Fn(&str) -> Arc<HttpBackend>,
) -> Result<RingSet, Failure> {
    let mut all = BTreeMap::new();
    for line in &status.own.rings {
        let name: RingName = line.name.parse().map_err(Failure::refused)?;
        let has = status.nodes.iter().filter(|node| node.rings.contains(line));
        for node in has {
            let Ok(bytes) = reach(&node.address).get(&routes::ring(name)).await else { continue };
            if let Ok(ring) = Ring::decode(&bytes)
                && ring.epoch() == line.epoch
            {
                all.insert(name, Arc::new(ring));
                break;
            }
        }
        if !all.contains_key(&name) {
            return Err(Failure::refused(format!(
                "no node with the ring {} of epoch {} answers: try again in a moment",
                line.name, line.epoch
            )));
        }
    }
    RingSet::new(all).map_err(Failure::refused)
}

fn topology(
    rings: &RingSet,
    term: Term,
    reach: impl Fn(&str) -> Arc<HttpBackend>,
) -> Result<Topology, Failure> {
    let index = rings.index().cloned();
    let index = index.ok_or_else(|| {
        Failure::refused(
            "the process has no index ring: give the admin address of a cluster member",
        )
    })?;
    let nodes: HashMap<&str, Arc<dyn Backend>> = rings
        .addresses()
        .iter()
        .map(|(name, address)| (name.as_str(), reach(address) as Arc<dyn Backend>))
        .collect();
    let places = rings.places().iter();
    let nodes: HashMap<DeviceId, Arc<dyn Backend>> =
        places.filter_map(|(id, place)| Some((*id, nodes.get(&*place.node)?.clone()))).collect();
    let data = rings.data().map(|(_, ring)| ring.clone()).collect();
    let cluster = Cluster::partial(index, data, nodes)
        .map_err(|error| Failure::refused(format!("the rings don't form a cluster: {error}")))?;
    let topology = Topology::new(cluster);
    topology.raise_term(term);
    Ok(topology)
}

/// Returns an observer that prints progress on a terminal.
fn progress_printer() -> impl FnMut(&CensusProgress) + Send {
    let is_seen = std::io::stderr().is_terminal();
    let mut printed = Instant::now();
    move |progress: &CensusProgress| {
        if is_seen && printed.elapsed() >= PRINT_INTERVAL {
            printed = Instant::now();
            eprintln!("{}", line(progress));
        }
    }
}

fn line(progress: &CensusProgress) -> String {
    let CensusProgress { registers, extents, extent_copies, faults, .. } = progress;
    format!(
        "{registers} registers and {extents} extents (of {extent_copies} copies) counted, {faults} faults"
    )
}

/// Fails unless the census is clean.
pub(super) fn check_outcome(report: &CensusReport) -> Result<(), Failure> {
    if report.clean {
        return Ok(());
    }
    Err(Failure::refused(
        "the census is not clean: some replicas are missing, outdated or misplaced",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_census_that_is_not_clean_ends_badly() {
        let clean = CensusReport { clean: true, ..CensusReport::default() };
        assert!(check_outcome(&clean).is_ok());
        let refusal = check_outcome(&CensusReport::default()).unwrap_err().to_string();
        assert!(refusal.contains("not clean"), "{refusal}");
    }

    #[test]
    fn progress_is_one_line() {
        let progress = CensusProgress {
            registers: 5,
            extents: 2,
            extent_copies: 6,
            faults: 1,
            ..CensusProgress::default()
        };
        assert_eq!(line(&progress), "5 registers and 2 extents (of 6 copies) counted, 1 faults");
    }
}
