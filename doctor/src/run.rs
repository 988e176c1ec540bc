//! All checks of a target, in the order of the report.

use std::thread;

use crate::finding::{Finding, Report, shortened};
use crate::peers::{self, PeerCredentials, PeerFacts};
use crate::rings::ReadRings;
use crate::target::{DeviceTarget, MemberTarget, PeerView, Target};
use crate::{certificates, clock, filesystem, limits, ports, rings, sync_probe, versions};

/// Setting of the certificate between members, which must be for the node's host in the rings.
const MEMBER_CERTIFICATE: &str = "tls_certificate";

/// Groups of checks, in their order.
const GROUPS: [&str; 8] = [
    "file systems",
    "syncs of the devices",
    "limits",
    "ports",
    "rings",
    "certificates and formats",
    "other nodes",
    "views of other processes",
];

/// Groups of checks that are done, and the one that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExamineStage {
    /// Groups that are done.
    pub done: u64,
    /// All groups.
    pub total: u64,
    /// Group that runs.
    pub running: &'static str,
}

/// Examines a target. Nodes are asked over the network; the other checks stay on this machine. `observe`
/// receives each group of checks before it begins.
pub fn examine(target: &Target, observe: &mut dyn FnMut(ExamineStage)) -> Report {
    let mut done = 0;
    let mut next = || {
        let running = GROUPS[usize::try_from(done).unwrap_or_default().min(GROUPS.len() - 1)];
        observe(ExamineStage { done, total: GROUPS.len() as u64, running });
        done += 1;
    };
    next();
    let mut findings = filesystem::examine(target);
    next();
    if target.probes_syncs {
        findings.extend(probe_all(&target.devices));
    }
    next();
    findings.extend(limits::examine(target));
    next();
    findings.extend(ports::examine(&target.addresses));
    next();
    let ReadRings { rings, findings: of_rings } = rings::read(&target.rings);
    findings.extend(of_rings);
    let mut certificates = target.certificates.clone();
    let of_member = certificates.iter_mut().filter(|it| it.setting == MEMBER_CERTIFICATE);
    if let Some(member) = &target.member {
        let host = rings::own_host(&rings, &member.name);
        of_member.for_each(|files| files.names.extend(host.clone()));
    }
    next();
    findings.extend(certificates::examine(&certificates));
    findings.extend(certificates::examine_secrets(&target.secret_files));
    findings.extend(versions::examine_formats(&target.devices));
    next();
    if let Some(member) = &target.member {
        findings.extend(rings::examine_devices(&rings, member, &target.devices));
        let nodes = rings::other_nodes(&rings, &member.name);
        match ask(member, nodes) {
            Ok(peers) => {
                findings.extend(peers::judge(&peers));
                findings.extend(clock::judge(&peers::clocks(&peers)));
                findings.extend(rings::judge_peers(&rings, &peers));
                findings.push(versions::judge_peers(&peers));
                findings.push(versions::judge_levels(&peers));
            }
            Err(error) => findings.push(
                Finding::ok("peers", "all", error).fail("correct the key or the certificate first"),
            ),
        }
        next();
        findings.extend(shortened(
            target.views.iter().flat_map(|view| judge_view(&member.name, view)).collect(),
        ));
    } else {
        next();
        findings.push(versions::judge_peers(&[]));
    }
    Report { findings }
}

/// Probes all devices at once: each disk has a queue of its own.
fn probe_all(devices: &[DeviceTarget]) -> Vec<Finding> {
    thread::scope(|scope| {
        let probes: Vec<_> =
            devices.iter().map(|device| scope.spawn(|| sync_probe::examine(device))).collect();
        probes.into_iter().filter_map(|probe| probe.join().ok()).collect()
    })
}

fn ask(
    member: &MemberTarget,
    nodes: std::collections::BTreeMap<String, String>,
) -> Result<Vec<PeerFacts>, String> {
    if nodes.is_empty() {
        return Ok(Vec::new());
    }
    let credentials = PeerCredentials::load(member)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("the async runtime could not be started: {error}"))?;
    Ok(runtime.block_on(peers::observe(&credentials, nodes)))
}

/// Judges the view that another process has of this node.
fn judge_view(own: &str, view: &PeerView) -> Vec<Finding> {
    let subject = view.address.clone();
    let finding = |seen: String| Finding::ok("reachable", &subject, seen);
    let status = match &view.status {
        Ok(status) => status,
        Err(error) => {
            let advice = "name the admin address of a process that runs, and its cluster's key";
            return vec![finding(error.clone()).warn(advice)];
        }
    };
    let role = &status.own.role;
    match status.nodes.iter().find(|node| node.name == own) {
        None => vec![finding(format!("{role} has no node {own} in its rings"))],
        Some(node) if node.answers => {
            vec![finding(format!("{role} reaches {own} at {}", node.address))]
        }
        Some(node) => vec![finding(format!("{role} can't reach {own} at {}", node.address)).fail(
            "start the node, open its internal port in the firewalls between, and check that the \
             rings have its address",
        )],
    }
}

#[cfg(test)]
mod tests {
    use martlet_admin_api::{NodeLine, ProcessReport, ServerStatus};

    use super::*;
    use crate::finding::Verdict;

    fn view(status: Result<ServerStatus, String>) -> PeerView {
        PeerView { address: "10.0.0.2:9001".to_owned(), status }
    }

    fn status(answers: bool) -> ServerStatus {
        let node = NodeLine {
            name: "n1".into(),
            address: "10.0.0.1:6200".into(),
            answers,
            ..NodeLine::default()
        };
        let own = ProcessReport::of("storage-node n2");
        ServerStatus { own, nodes: vec![node], ..ServerStatus::default() }
    }

    #[test]
    fn a_node_that_others_can_not_reach_fails() {
        let judged = |name: &str, status| judge_view(name, &view(status)).remove(0);
        assert_eq!(judged("n1", Ok(status(true))).verdict, Verdict::Ok);
        let silent = judged("n1", Ok(status(false)));
        assert_eq!(silent.verdict, Verdict::Fail);
        assert!(silent.seen.contains("storage-node n2 can't reach n1"), "{}", silent.seen);
        assert_eq!(judged("n9", Ok(status(true))).verdict, Verdict::Ok);
        assert_eq!(judged("n1", Err("refused".into())).verdict, Verdict::Warn);
    }

    #[test]
    fn a_machine_before_its_first_start_is_examined_and_left_alone() {
        let place = tempfile::tempdir().unwrap();
        let target = Target {
            devices: vec![DeviceTarget { name: "d1".into(), path: place.path().join("d1") }],
            data_dir: Some(place.path().join("state")),
            probes_syncs: true,
            ..Target::default()
        };
        let mut stages = Vec::new();
        let report = examine(&target, &mut |stage| stages.push(stage));
        let counts: Vec<u64> = stages.iter().map(|stage| stage.done).collect();
        assert_eq!(counts, (0..8).collect::<Vec<_>>(), "each group is announced once, in order");
        assert!(stages.iter().all(|stage| stage.total == 8));
        let checks: Vec<&str> = report.findings.iter().map(|finding| finding.check).collect();
        for check in ["file system", "space", "syncs", "open files", "format", "version"] {
            assert!(checks.contains(&check), "{checks:?}");
        }
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
    }
}
