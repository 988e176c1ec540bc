//! Other nodes of the cluster, as they answer at their internal addresses, and the view that other
//! processes have of this one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use martlet_admin_api::{ProcessReport, ReleaseLine, RingLine};
use martlet_membership::{ClusterSecret, client_options, routes};
use martlet_protocol::http::{HttpBackend, NodeReport, Tls, TlsFiles};
use martlet_protocol::release::WIRE;
use martlet_protocol::{Clock, SystemClock};
use serde::Deserialize;

use crate::clock::PeerClock;
use crate::finding::{Finding, shortened};
use crate::target::MemberTarget;

const CHECK: &str = "peers";
/// Time for the answer of a node.
const PATIENCE: Duration = Duration::from_secs(5);
/// Nodes that are asked at once.
const AT_ONCE: usize = 64;

/// Observed node.
#[derive(Clone, Debug)]
pub(crate) struct PeerFacts {
    pub(crate) name: String,
    pub(crate) address: String,
    /// Answer of the node, or the reason for its absence.
    pub(crate) answer: Result<PeerAnswer, String>,
    /// True if the node and this release have no version of the internal protocol in common.
    pub(crate) is_foreign: bool,
}

/// Answer of a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PeerAnswer {
    /// Milliseconds by which the node's clock leads this machine's, and the error of that.
    pub(crate) ahead_ms: i64,
    pub(crate) error_ms: u64,
    pub(crate) version: String,
    /// Versions that the node knows; none of releases before versions were announced.
    pub(crate) release: Option<ReleaseLine>,
    pub(crate) rings: Vec<RingLine>,
}

/// Part of a node's status that is read.
#[derive(Deserialize)]
struct StatusReply {
    own: ProcessReport,
}

/// Credentials of a member.
pub(crate) struct PeerCredentials {
    secret: ClusterSecret,
    tls: Option<Tls>,
}

impl PeerCredentials {
    /// Reads the key and the certificates that the settings name.
    pub(crate) fn load(member: &MemberTarget) -> Result<Self, String> {
        let secret = ClusterSecret::load(&member.key_file).map_err(|error| error.to_string())?;
        let tls = member.tls.clone().map(|[certificate, key, authority]| {
            Tls::load(&TlsFiles { certificate, key, authority })
        });
        let tls = tls.transpose().map_err(|error| format!("TLS can't be set up: {error}"))?;
        Ok(Self { secret, tls })
    }
}

/// Queries the nodes, by their names and internal addresses.
pub(crate) async fn observe(
    credentials: &PeerCredentials,
    nodes: BTreeMap<String, String>,
) -> Vec<PeerFacts> {
    let queries = nodes.into_iter().map(|(name, address)| async move {
        let reported = LastReport::default();
        let asked = tokio::time::timeout(PATIENCE, query(credentials, &address, &reported)).await;
        let answer = asked.unwrap_or_else(|_| Err("no answer within 5 s".to_owned()));
        let is_foreign = reported.is_foreign();
        PeerFacts { name, address, answer, is_foreign }
    });
    futures::stream::iter(queries).buffered(AT_ONCE).collect().await
}

/// Last report of a node, with the time of its arrival by this machine's clock.
#[derive(Clone, Default)]
struct LastReport(Arc<Mutex<Option<(NodeReport, u64)>>>);

impl LastReport {
    fn get(&self) -> Option<(NodeReport, u64)> {
        self.0.lock().ok()?.clone()
    }

    /// Returns true if the node announced a release without a common version.
    fn is_foreign(&self) -> bool {
        let release = self.get().and_then(|(report, _)| report.release);
        release.is_some_and(|announced| WIRE.common(announced.release().wire).is_none())
    }
}

async fn query(
    credentials: &PeerCredentials,
    address: &str,
    reported: &LastReport,
) -> Result<PeerAnswer, String> {
    let (clock, sink) = (SystemClock, reported.clone());
    let options = client_options(Arc::new(clock), credentials.tls.clone());
    let observer = Arc::new(move |report: NodeReport| {
        if let Ok(mut latest) = sink.0.lock() {
            *latest = Some((report, SystemClock.now_ms()));
        }
    });
    let client = HttpBackend::new(address, credentials.secret.key.clone(), options, observer);
    let asked = client.get(routes::STATUS).await;
    let reported = reported.get();
    let bytes = asked.map_err(|error| error.to_string())?;
    let StatusReply { own } = serde_json::from_slice(&bytes)
        .map_err(|error| format!("its reply can't be decoded: {error}"))?;
    let (report, here_ms) = reported.ok_or("its reply carries no clock")?;
    Ok(answer(&report, here_ms, own))
}

/// Makes the answer of a reply that arrived at `here_ms` by this machine's clock.
fn answer(report: &NodeReport, here_ms: u64, own: ProcessReport) -> PeerAnswer {
    let error_ms = u64::try_from(report.round_trip.as_millis() / 2).unwrap_or(u64::MAX);
    let signed = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
    let ahead_ms = signed(report.now_ms.saturating_add(error_ms)) - signed(here_ms);
    PeerAnswer { ahead_ms, error_ms, version: own.version, release: own.release, rings: own.rings }
}

/// Returns the clocks of all nodes that answered.
pub(crate) fn clocks(peers: &[PeerFacts]) -> Vec<PeerClock> {
    let answered = peers.iter().filter_map(|peer| Some((peer, peer.answer.as_ref().ok()?)));
    answered
        .map(|(peer, answer)| PeerClock {
            peer: peer.name.clone(),
            ahead_ms: answer.ahead_ms,
            error_ms: answer.error_ms,
        })
        .collect()
}

/// Judges the nodes' absence.
pub(crate) fn judge(peers: &[PeerFacts]) -> Vec<Finding> {
    if peers.is_empty() {
        return Vec::new();
    }
    let silent = peers.iter().filter_map(|peer| Some((peer, peer.answer.as_ref().err()?)));
    let mut findings = shortened(
        silent
            .map(|(peer, error)| {
                let advice = if peer.is_foreign {
                    "upgrade one release after the other: see docs/UPGRADES.md"
                } else {
                    "start the node, open its internal port in the firewalls between, and use one \
                     cluster key and one authority on all machines"
                };
                Finding::ok(CHECK, &peer.name, format!("{}: {error}", peer.address)).warn(advice)
            })
            .collect(),
    );
    let answering = peers.iter().filter(|peer| peer.answer.is_ok()).count();
    let seen = format!("{answering} of {} other nodes answer", peers.len());
    findings.insert(0, Finding::ok(CHECK, "all", seen));
    findings
}

#[cfg(test)]
mod tests {
    use martlet_protocol::Term;
    use martlet_protocol::http::{Announcement, RingTag};

    use super::*;
    use crate::finding::Verdict;

    #[test]
    fn a_clock_is_read_from_a_reply() {
        let tag = RingTag { name: "index".into(), epoch: 1, hash: [0; 8] };
        let report = NodeReport {
            cluster_ms: None,
            now_ms: 61_000,
            round_trip: Duration::from_millis(20),
            rings: Announcement::new(&[tag]).rings().clone(),
            term: Term::NONE,
            clients_wait: None,
            data_port: None,
            release: None,
            is_repeated: false,
        };
        let own = ProcessReport::of("storage-node n1");
        let answer = answer(&report, 1010, own);
        assert_eq!((answer.ahead_ms, answer.error_ms), (60_000, 10));
        assert_eq!(answer.version, env!("CARGO_PKG_VERSION"));
        let address = "n1:1".to_owned();
        let peer = PeerFacts { name: "n1".into(), address, answer: Ok(answer), is_foreign: false };
        let findings = crate::clock::judge(&clocks(&[peer]));
        assert_eq!(findings[0].verdict, Verdict::Fail, "{findings:?}");
    }

    #[test]
    fn silent_nodes_are_named() {
        let peer = |name: &str, answer: Result<PeerAnswer, String>| PeerFacts {
            name: name.into(),
            address: format!("{name}:6200"),
            answer,
            is_foreign: false,
        };
        assert!(judge(&[]).is_empty());
        let fine = judge(&[peer("n1", Ok(PeerAnswer::default()))]);
        assert_eq!(fine.len(), 1);
        let findings = judge(&[
            peer("n1", Ok(PeerAnswer::default())),
            peer("n2", Err("connection refused".into())),
        ]);
        assert_eq!(findings[0].seen, "1 of 2 other nodes answer");
        assert_eq!((findings[1].subject.as_str(), findings[1].verdict), ("n2", Verdict::Warn));
        assert!(findings[1].seen.contains("refused") && clocks(&[]).is_empty());
        let foreign = PeerFacts { is_foreign: true, ..peer("n2", Err("speaks version 4".into())) };
        let advice = judge(&[foreign])[1].advice.clone();
        assert!(advice.as_ref().is_some_and(|it| it.contains("UPGRADES")), "{advice:?}");
    }
}
