//! Clocks of this machine and of its peers.
//!
//! Storage nodes send their time in each reply. The median of all clocks, this machine's included,
//! counts as right: so one wrong clock is named, whichever it is.

use martlet_protocol::limits::CLOCK_SKEW_MS_MAX;

use crate::finding::{Finding, shortened};

const CHECK: &str = "clock";
/// Skew from which a clock should be corrected. Members follow the median of all nodes' clocks, so
/// smaller skews cost nothing.
const SKEW_MS_WARN: u64 = 500;
/// Skew from which members refuse stamps of a process that knows no other clock.
const SKEW_MS_FAIL: u64 = CLOCK_SKEW_MS_MAX / 2;
const ADVICE: &str = "set the clock by NTP: systemctl enable --now chrony, or systemd-timesyncd";

/// Clock of a peer beside this machine's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PeerClock {
    /// Name of the peer.
    pub(crate) peer: String,
    /// Milliseconds by which the peer's clock leads this machine's.
    pub(crate) ahead_ms: i64,
    /// Milliseconds by which that may be wrong: half of the round trip.
    pub(crate) error_ms: u64,
}

/// Judges the clocks of peers and of this machine.
pub(crate) fn judge(clocks: &[PeerClock]) -> Vec<Finding> {
    if clocks.is_empty() {
        return Vec::new();
    }
    let mut all: Vec<i64> = clocks.iter().map(|clock| clock.ahead_ms).collect();
    all.push(0);
    all.sort_unstable();
    let median = all[(all.len() - 1) / 2];
    let own = PeerClock { peer: "this machine".into(), ahead_ms: 0, error_ms: 0 };
    let findings: Vec<Finding> =
        std::iter::once(&own).chain(clocks).filter_map(|clock| problem(clock, median)).collect();
    if findings.is_empty() {
        let worst = clocks.iter().map(|clock| (clock.ahead_ms - median).unsigned_abs()).max();
        let seen = format!(
            "this machine and {} nodes are within {} ms of each other",
            clocks.len(),
            worst.unwrap_or_default().max(median.unsigned_abs())
        );
        return vec![Finding::ok(CHECK, "all", seen)];
    }
    shortened(findings)
}

/// Returns the finding about a clock that is wrong by more than its measurement may be.
fn problem(clock: &PeerClock, median: i64) -> Option<Finding> {
    let skew = clock.ahead_ms.saturating_sub(median);
    let sure = skew.unsigned_abs().saturating_sub(clock.error_ms);
    let side = if skew < 0 { "behind" } else { "ahead of" };
    let seen = format!(
        "{} ms {side} the median of all clocks (measured to ±{} ms)",
        skew.unsigned_abs(),
        clock.error_ms
    );
    let finding = Finding::ok(CHECK, &clock.peer, seen);
    match sure {
        SKEW_MS_FAIL.. => Some(finding.fail(ADVICE)),
        SKEW_MS_WARN.. => Some(finding.warn(ADVICE)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Verdict;

    fn clock(peer: &str, ahead_ms: i64) -> PeerClock {
        PeerClock { peer: peer.into(), ahead_ms, error_ms: 10 }
    }

    fn named(clocks: &[PeerClock]) -> Vec<(String, Verdict)> {
        judge(clocks).into_iter().map(|finding| (finding.subject, finding.verdict)).collect()
    }

    #[test]
    fn clocks_that_agree_are_one_line() {
        let findings = judge(&[clock("n1", 12), clock("n2", -40), clock("n3", 3)]);
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].verdict, Verdict::Ok);
        assert!(findings[0].seen.contains("3 nodes"), "{}", findings[0].seen);
        assert!(judge(&[]).is_empty(), "there is nothing to compare with");
    }

    #[test]
    fn the_one_that_is_off_is_named() {
        let peers = [clock("n1", 0), clock("n2", 90_000), clock("n3", 4)];
        assert_eq!(named(&peers), [("n2".to_owned(), Verdict::Fail)]);
        let peers = [clock("n1", 0), clock("n2", -2000), clock("n3", 4)];
        assert_eq!(named(&peers), [("n2".to_owned(), Verdict::Warn)]);
    }

    #[test]
    fn the_own_clock_is_named_if_all_others_agree() {
        let peers = [clock("n1", 60_000), clock("n2", 60_020), clock("n3", 59_990)];
        assert_eq!(named(&peers), [("this machine".to_owned(), Verdict::Fail)]);
        let seen = judge(&peers).remove(0).seen;
        assert!(
            seen.starts_with("59990 ms behind") || seen.starts_with("60000 ms behind"),
            "{seen}"
        );
    }

    #[test]
    fn a_slow_reply_is_no_proof() {
        let slow = PeerClock { error_ms: 700, ..clock("n2", 900) };
        assert_eq!(judge(&[clock("n1", 0), slow])[0].verdict, Verdict::Ok);
    }
}
