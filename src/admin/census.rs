//! `martlet admin census`: compares the contents of every device with the rings. It queries the
//! storage nodes at their internal addresses and does not rely on reported figures.
//!
//! A rebalance, a drain or a repair is done when a census is clean.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use martlet_admin_api::accounts::ListPage;
use martlet_admin_api::buckets::{BUCKETS, BucketSummary, PAGE_MAX};
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
use crate::progress::CountedWork;

/// Pages of buckets whose last counts are added up for an estimate.
const BUCKET_PAGES_MAX: usize = 50;

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
    let expected = expected_registers(server);
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
        let report = census(&topology, options, &mut progress_display(expected, json)).await;
        Ok(CensusOutcome::Report(Box::new(report)))
    })
}

/// Returns the reason for which a census would count by an old ring: a ring waits, the queried process
/// lacks the ring of the change in progress, or nodes have others than it.
fn rings_in_motion(status: &ServerStatus) -> Option<String> {
    if let Some(epoch) = status.waiting_epoch {
        return Some(format!(
            "the index ring of epoch {epoch} waits for the ring change before it: {}",
            // A process runs the later change: the waiting ring comes into use when it is over.
            if is_changing(status) || status.ring_overtaken {
                "try again later"
            } else {
                "try again in a moment; if it still waits then, no ring in use begins that change: \
                 push a ring of a builder that is made again from the index ring in use, by \
                 `reconstruct` and `settle`"
            }
        ));
    }
    if status.ring_overtaken {
        return Some(
            "the queried process lacks the index ring of the ring change in progress: try again in a \
             moment, or at the admin address of another process"
                .to_owned(),
        );
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

/// True if the change of the index ring in use is not over.
fn is_changing(status: &ServerStatus) -> bool {
    let changes = status.moves.iter().filter_map(|line| line.change.as_ref());
    changes.map(|change| change.phase.as_str()).any(|phase| phase != "new")
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

/// Returns the number of versions at the last counts of all buckets, an estimate of the registers.
/// None if the process has no list of buckets, or the list is long.
fn expected_registers(server: &AdminEndpoint) -> Option<u64> {
    let limit = PAGE_MAX.to_string();
    let (mut sum, mut after) = (0, None::<String>);
    for _ in 0..BUCKET_PAGES_MAX {
        let mut query = vec![("limit", limit.as_str())];
        query.extend(after.as_deref().map(|after| ("after", after)));
        let page: ListPage<BucketSummary> = server.request_json(BUCKETS, &query).ok()?;
        sum += page.items.iter().filter_map(|bucket| bucket.objects).sum::<u64>();
        after = page.next;
        if after.is_none() {
            return (sum > 0).then_some(sum);
        }
    }
    None
}

/// Returns an observer that shows the progress.
fn progress_display(expected: Option<u64>, json: bool) -> impl FnMut(&CensusProgress) + Send {
    let mut work = CountedWork::begin("census", json);
    move |progress: &CensusProgress| {
        let half = CensusHalf::of(progress, expected);
        work.show(&line(progress, half.estimate), half.unit, half.done, half.total);
    }
}

/// Half of a census, registers or extents, with its amount. The time left is that of the half.
#[derive(Debug, PartialEq, Eq)]
struct CensusHalf {
    unit: &'static str,
    done: u64,
    total: Option<u64>,
    /// Estimated number of registers.
    estimate: Option<u64>,
}

impl CensusHalf {
    /// Devices report the number of their extents. That of registers is the estimate `expected`.
    fn of(progress: &CensusProgress, expected: Option<u64>) -> Self {
        let CensusProgress { registers, extent_copies, counted_copies, .. } = *progress;
        if counted_copies > 0 {
            let total = Some(extent_copies.max(counted_copies));
            return Self { unit: "copies", done: counted_copies, total, estimate: None };
        }
        let estimate = expected.filter(|expected| *expected >= registers);
        Self { unit: "registers", done: registers, total: estimate, estimate }
    }
}

fn line(progress: &CensusProgress, estimate: Option<u64>) -> String {
    let CensusProgress { registers, extents, extent_copies, faults, .. } = progress;
    let of = estimate.map(|all| format!(" of about {all} (by the last counts of buckets)"));
    let of = of.unwrap_or_default();
    format!(
        "{registers} registers{of} and {extents} extents (of {extent_copies} copies) counted, {faults} \
         faults"
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
    use martlet_admin_api::{ChangeLine, MovesLine};

    use super::*;

    #[test]
    fn a_census_that_is_not_clean_ends_badly() {
        let clean = CensusReport { clean: true, ..CensusReport::default() };
        assert!(check_outcome(&clean).is_ok());
        let refusal = check_outcome(&CensusReport::default()).unwrap_err().to_string();
        assert!(refusal.contains("not clean"), "{refusal}");
    }

    #[test]
    fn a_ring_that_waits_for_no_begun_change_has_another_remedy() {
        let line = |phase: &str| {
            let change = ChangeLine { change: 2, phase: phase.into(), receivers: 1, joined: 0 };
            MovesLine {
                ring: "index".into(),
                epoch: 2,
                partitions: 8,
                replicas: 24,
                partitions_moving: 1,
                replicas_moving: 1,
                change: Some(change),
            }
        };
        let waits = |moves| {
            let status = ServerStatus { waiting_epoch: Some(3), moves, ..ServerStatus::default() };
            rings_in_motion(&status).unwrap()
        };
        for phase in ["waiting", "old", "joint"] {
            let reason = waits(vec![line(phase)]);
            assert!(reason.ends_with("before it: try again later"), "{reason}");
        }
        for moves in [vec![line("new")], Vec::new()] {
            let reason = waits(moves);
            assert!(reason.contains("made again from the index ring in use"), "{reason}");
        }
    }

    #[test]
    fn a_process_without_the_ring_of_a_change_in_progress_takes_no_census() {
        for waiting_epoch in [Some(3), None] {
            let status =
                ServerStatus { waiting_epoch, ring_overtaken: true, ..ServerStatus::default() };
            let reason = rings_in_motion(&status).unwrap();
            assert!(reason.contains("try again"), "{reason}");
            assert!(!reason.contains("made again"), "its rings must not give way: {reason}");
        }
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
        let text = "5 registers and 2 extents (of 6 copies) counted, 1 faults";
        assert_eq!(line(&progress, None), text);
        let estimated = line(&progress, Some(9));
        assert!(
            estimated.starts_with("5 registers of about 9 (by the last counts of buckets) and 2"),
            "{estimated}"
        );
    }

    #[test]
    fn each_half_of_a_census_has_its_own_total() {
        let progress = |registers, counted_copies| CensusProgress {
            registers,
            counted_copies,
            extent_copies: 60,
            ..CensusProgress::default()
        };
        let half = |unit, done, total, estimate| CensusHalf { unit, done, total, estimate };
        for (progress, expected, then) in [
            (progress(5, 0), None, half("registers", 5, None, None)),
            (progress(5, 0), Some(100), half("registers", 5, Some(100), Some(100))),
            (progress(101, 0), Some(100), half("registers", 101, None, None)),
            (progress(101, 20), Some(100), half("copies", 20, Some(60), None)),
            (progress(101, 70), None, half("copies", 70, Some(70), None)),
        ] {
            assert_eq!(CensusHalf::of(&progress, expected), then);
        }
    }
}
