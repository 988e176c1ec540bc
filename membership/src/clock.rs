//! Cluster time (rule C1): the median of the storage nodes' clocks.
//!
//! Stamps are issued and checked by it. So a process with a wrong local clock neither issues stamps
//! that other processes refuse nor refuses theirs.
//!
//! * A steady tick counts elapsed time, also while the host sleeps. Every clock, including the local one, is an
//!   offset from it. So a step of the local clock changes only its own vote.
//! * All processes take the median of the storage nodes' clocks, so processes with equal samples
//!   agree. A process that is not a storage node votes only while it has no node's sample.
//! * Of an even number, the lower of the two middle offsets counts: a lagging clock only causes a
//!   wait, while stamps of a leading clock are refused.
//! * Until a majority of the nodes' clocks is known, the cluster clock may jump. After that it
//!   moves by at most [`STEP_MS_MAX`] for each call of [`ClusterClock::settle`], and never back. So a
//!   majority of clocks that is set wrong leads the cluster astray slowly, and is seen before.
//! * The tick stands still while a virtual machine is paused. Its process is then late by hours, and would
//!   execute calls that are too late. So nodes also send the cluster time that they have. A process that lags
//!   behind the cluster time of a majority of all storage nodes by more than [`LAG_MS_MAX`] takes it at once.
//!   No clock of a machine counts here, so this jump never leads the cluster: it ends where most nodes are. One
//!   such reading makes a [round](super::visits) read the times of all nodes.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use martlet_protocol::limits::CLOCK_SKEW_MS_MAX;
use martlet_protocol::{BootInstant, Clock};
use parking_lot::Mutex;

/// Maximum step of one [`ClusterClock::settle`], in milliseconds.
pub(crate) const STEP_MS_MAX: i64 = 500;
/// Maximum round trip of a usable sample.
const ROUND_TRIP_MAX: Duration = Duration::from_secs(2);
/// Milliseconds for which a sample with a shorter round trip is kept in place of fresh ones.
const SAMPLE_AGE_MS_MAX: u64 = 30_000;
/// Milliseconds by which samples of an unchanged clock differ at most, beside their round trips: it drifts.
const DRIFT_MS_MAX: u64 = 100;
/// Milliseconds by which the cluster clock may lag behind most nodes. Half of the skew that rules allow is
/// left for the errors of samples, and for the time until they come.
const LAG_MS_MAX: i64 = 30_000;
const _: () = assert!(LAG_MS_MAX.unsigned_abs() * 2 <= CLOCK_SKEW_MS_MAX);

/// Milliseconds since the process began, with the time in which the host slept.
#[derive(Debug)]
pub(crate) struct Ticks {
    began: BootInstant,
}

impl Ticks {
    pub(crate) fn new() -> Self {
        Self { began: BootInstant::now() }
    }
}

impl Clock for Ticks {
    fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// Clock of the cluster.
#[derive(Debug)]
pub struct ClusterClock {
    ticks: Arc<dyn Clock>,
    own: Arc<dyn Clock>,
    /// True if the local clock is part of the median.
    votes: bool,
    samples: Mutex<BTreeMap<String, Sample>>,
    /// Offsets of nodes' cluster time, with the ticks at which they came.
    cluster_times: Mutex<BTreeMap<String, (i64, u64)>>,
    offset_ms: AtomicI64,
    last_ms: AtomicU64,
    settled: AtomicBool,
}

/// Times in a node's reply, in milliseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClockReading {
    /// Time by the clock of its machine.
    pub(crate) own_ms: u64,
    /// Cluster time, if the reply has it.
    pub(crate) cluster_ms: Option<u64>,
}

/// Sample of another node's clock.
#[derive(Clone, Copy, Debug)]
struct Sample {
    offset_ms: i64,
    round_trip: Duration,
    at_ms: u64,
}

impl ClusterClock {
    /// Makes a clock that follows `own` until it has samples of other clocks. `votes` is true for
    /// storage nodes.
    pub(crate) fn new(ticks: Arc<dyn Clock>, own: Arc<dyn Clock>, votes: bool) -> Self {
        let clock = Self {
            ticks,
            own,
            votes,
            samples: Mutex::default(),
            cluster_times: Mutex::default(),
            offset_ms: AtomicI64::new(0),
            last_ms: AtomicU64::new(0),
            settled: AtomicBool::new(false),
        };
        clock.offset_ms.store(clock.own_offset_ms(), Ordering::Relaxed);
        clock
    }

    /// Records a node's reading, taken half a round trip ago. Slow replies are ignored.
    pub(crate) fn observe(&self, node: &str, reading: ClockReading, round_trip: Duration) {
        if round_trip > ROUND_TRIP_MAX {
            return;
        }
        let half_ms = u64::try_from(round_trip.as_millis() / 2).unwrap_or(0);
        let at_ms = self.ticks.now_ms();
        let offset_of = |their_ms: u64| difference(their_ms.saturating_add(half_ms), at_ms);
        if let Some(cluster_ms) = reading.cluster_ms {
            let offset = (offset_of(cluster_ms), at_ms);
            self.cluster_times.lock().insert(node.to_owned(), offset);
        }
        let fresh = Sample { offset_ms: offset_of(reading.own_ms), round_trip, at_ms };
        let mut samples = self.samples.lock();
        match samples.get_mut(node) {
            Some(kept) => {
                let is_old = at_ms.saturating_sub(kept.at_ms) > SAMPLE_AGE_MS_MAX;
                if is_old || round_trip <= kept.round_trip || fresh.contradicts(kept) {
                    *kept = fresh;
                }
            }
            None => drop(samples.insert(node.to_owned(), fresh)),
        }
    }

    /// Moves the clock towards the median. `nodes` names all other storage nodes; samples of other
    /// names are dropped. Jumps forward if most nodes have a later cluster time. Returns true if the
    /// clocks of a majority of all storage nodes are known.
    pub(crate) fn settle(&self, nodes: &[&str]) -> bool {
        let mut offsets: Vec<i64> = {
            let named: HashSet<&str> = nodes.iter().copied().collect();
            self.cluster_times.lock().retain(|node, _| named.contains(node.as_str()));
            let mut samples = self.samples.lock();
            samples.retain(|node, _| named.contains(node.as_str()));
            samples.values().map(|sample| sample.offset_ms).collect()
        };
        if self.votes || offsets.is_empty() {
            offsets.push(self.own_offset_ms());
        }
        let voters = nodes.len() + usize::from(self.votes);
        let is_majority = voters == 0 || offsets.len() * 2 > voters;
        offsets.sort_unstable();
        let target = offsets[(offsets.len() - 1) / 2];
        if self.is_settled() {
            self.catch_up(voters);
        }
        if !self.is_settled() {
            self.offset_ms.store(target, Ordering::SeqCst);
            // Times shown before a majority was known may be wrong, so the clock may go back here.
            self.last_ms.store(0, Ordering::SeqCst);
            self.settled.store(is_majority, Ordering::SeqCst);
        } else if is_majority {
            let now = self.offset_ms.load(Ordering::SeqCst);
            let step = target.saturating_sub(now).clamp(-STEP_MS_MAX, STEP_MS_MAX);
            self.offset_ms.store(now + step, Ordering::SeqCst);
        }
        is_majority
    }

    /// Jumps to the cluster time that a majority of `voters` storage nodes has reached, if this clock lags
    /// far behind. Readings are never from the future, so an old or slow one only shows less.
    fn catch_up(&self, voters: usize) {
        let now = self.offset_ms.load(Ordering::SeqCst);
        let mut offsets = self.young_offsets();
        offsets.sort_unstable_by_key(|offset| std::cmp::Reverse(*offset));
        let Some(reached) = offsets.get(voters / 2) else { return };
        let lag_ms = reached.saturating_sub(now);
        if lag_ms > LAG_MS_MAX {
            tracing::warn!(
                lag_ms,
                "cluster time stood still in this process, as in a virtual machine that was paused: taking \
                 that of most nodes"
            );
            self.offset_ms.store(*reached, Ordering::SeqCst);
        }
    }

    /// Returns the offsets of the cluster times that nodes sent lately.
    fn young_offsets(&self) -> Vec<i64> {
        let ticks_ms = self.ticks.now_ms();
        let is_young = |at_ms: u64| ticks_ms.saturating_sub(at_ms) <= SAMPLE_AGE_MS_MAX;
        let times = self.cluster_times.lock();
        times.values().filter(|(_, at_ms)| is_young(*at_ms)).map(|(offset, _)| *offset).collect()
    }

    /// Returns true if readings of all nodes are needed: until a majority of their clocks was known, and while
    /// a node's cluster time leads so far that a majority would make this clock jump.
    pub(crate) fn is_in_doubt(&self) -> bool {
        let now = self.offset_ms.load(Ordering::SeqCst);
        let leads = |offset: i64| offset.saturating_sub(now) > LAG_MS_MAX;
        !self.is_settled() || self.young_offsets().into_iter().any(leads)
    }

    fn is_settled(&self) -> bool {
        self.settled.load(Ordering::SeqCst)
    }

    /// Returns cluster time for other processes, in milliseconds since 1970; none until a majority of the
    /// nodes' clocks is known.
    pub(crate) fn settled_ms(&self) -> Option<u64> {
        self.is_settled().then(|| self.now_ms())
    }

    /// Milliseconds by which a node's clock leads the cluster's. `None` without a sample.
    pub(crate) fn ahead_ms(&self, node: &str) -> Option<i64> {
        let sample = *self.samples.lock().get(node)?;
        Some(sample.offset_ms - self.offset_ms.load(Ordering::Relaxed))
    }

    /// Milliseconds by which the local clock leads the cluster's.
    pub(crate) fn own_ahead_ms(&self) -> i64 {
        self.own_offset_ms() - self.offset_ms.load(Ordering::Relaxed)
    }

    fn own_offset_ms(&self) -> i64 {
        difference(self.own.now_ms(), self.ticks.now_ms())
    }
}

impl Clock for ClusterClock {
    fn now_ms(&self) -> u64 {
        let offset_ms = self.offset_ms.load(Ordering::Relaxed);
        let now = self.ticks.now_ms().saturating_add_signed(offset_ms);
        let last = self.last_ms.load(Ordering::Relaxed);
        if now > last { now.max(self.last_ms.fetch_max(now, Ordering::Relaxed)) } else { last }
    }
}

impl Sample {
    /// Returns true if no clock that only drifts could show both samples: one of the clocks stepped, or the
    /// ticks stood still.
    fn contradicts(&self, other: &Self) -> bool {
        let error = (self.round_trip + other.round_trip) / 2;
        let error_ms = u64::try_from(error.as_millis()).unwrap_or(u64::MAX);
        self.offset_ms.abs_diff(other.offset_ms) > error_ms.saturating_add(DRIFT_MS_MAX)
    }
}

fn difference(a_ms: u64, b_ms: u64) -> i64 {
    let signed = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
    signed(a_ms) - signed(b_ms)
}

#[cfg(test)]
mod pauses;

#[cfg(test)]
mod tests {
    use martlet_protocol::ManualClock;

    use super::*;

    pub(super) const NOON_MS: u64 = 1_700_000_000_000;
    const FIVE_MINUTES_MS: u64 = 300_000;

    pub(super) struct Setup {
        pub(super) ticks: Arc<ManualClock>,
        pub(super) own: Arc<ManualClock>,
        pub(super) clock: ClusterClock,
    }

    /// Process whose local clock shows `own_ms`.
    pub(super) fn setup(own_ms: u64, votes: bool) -> Setup {
        let ticks = Arc::new(ManualClock::at(1000));
        let own = Arc::new(ManualClock::at(own_ms));
        let clock = ClusterClock::new(ticks.clone(), own.clone(), votes);
        Setup { ticks, own, clock }
    }

    impl Setup {
        fn observe(&self, node: &str, own_ms: u64, round_trip: Duration) {
            self.clock.observe(node, ClockReading { own_ms, cluster_ms: None }, round_trip);
        }

        /// Records a reading of a node whose machine and cluster time show these times.
        pub(super) fn observe_both(&self, node: &str, own_ms: u64, cluster_ms: u64) {
            let reading = ClockReading { own_ms, cluster_ms: Some(cluster_ms) };
            self.clock.observe(node, reading, Duration::ZERO);
        }
    }

    pub(super) fn pass(setup: &Setup, ms: u64) {
        setup.ticks.advance_ms(ms);
        setup.own.advance_ms(ms);
    }

    #[test]
    fn alone_it_shows_its_own_time() {
        let alone = setup(NOON_MS, true);
        assert!(alone.clock.settle(&[]));
        pass(&alone, 250);
        assert_eq!(alone.clock.now_ms(), NOON_MS + 250);
    }

    #[test]
    fn a_node_five_minutes_off_follows_the_others_at_once() {
        for wrong_ms in [NOON_MS - FIVE_MINUTES_MS, NOON_MS + FIVE_MINUTES_MS] {
            let node = setup(wrong_ms, true);
            assert_eq!(node.clock.now_ms(), wrong_ms);
            node.observe("a", NOON_MS - 10, Duration::from_millis(20));
            node.observe("b", NOON_MS, Duration::ZERO);
            assert!(node.clock.settle(&["a", "b"]));
            assert_eq!(node.clock.now_ms(), NOON_MS);
        }
    }

    #[test]
    fn others_pay_no_heed_to_one_that_is_five_minutes_off() {
        for wrong_ms in [NOON_MS - FIVE_MINUTES_MS, NOON_MS + FIVE_MINUTES_MS] {
            let node = setup(NOON_MS, true);
            node.observe("good", NOON_MS, Duration::ZERO);
            node.observe("wrong", wrong_ms, Duration::ZERO);
            node.clock.settle(&["good", "wrong"]);
            assert_eq!(node.clock.now_ms(), NOON_MS);
            let ahead = difference(wrong_ms, NOON_MS);
            assert_eq!(node.clock.ahead_ms("wrong"), Some(ahead));
        }
    }

    #[test]
    fn a_proxy_and_two_nodes_that_disagree_agree_with_each_other() {
        let wrong_ms = NOON_MS + FIVE_MINUTES_MS;
        let [first, second] = [setup(NOON_MS, true), setup(wrong_ms, true)];
        first.observe("second", wrong_ms, Duration::ZERO);
        second.observe("first", NOON_MS, Duration::ZERO);
        first.clock.settle(&["second"]);
        second.clock.settle(&["first"]);
        let proxy = setup(NOON_MS - FIVE_MINUTES_MS, false);
        proxy.observe("first", NOON_MS, Duration::ZERO);
        proxy.observe("second", wrong_ms, Duration::ZERO);
        proxy.clock.settle(&["first", "second"]);
        let all = [&first, &second, &proxy].map(|it| it.clock.now_ms());
        assert_eq!(all, [NOON_MS; 3]);
    }

    #[test]
    fn once_settled_it_goes_by_steps_and_never_back() {
        let node = setup(NOON_MS, true);
        node.observe("a", NOON_MS, Duration::ZERO);
        assert!(node.clock.settle(&["a"]));
        let before = node.clock.now_ms();
        pass(&node, SAMPLE_AGE_MS_MAX + 1);
        let now_ms = node.ticks.now_ms() + NOON_MS - 1000;
        node.observe("a", now_ms - FIVE_MINUTES_MS, Duration::ZERO);
        for step in 1..=3 {
            node.clock.settle(&["a"]);
            assert_eq!(node.clock.own_ahead_ms(), step * STEP_MS_MAX);
            assert!(node.clock.now_ms() >= before);
        }
    }

    #[test]
    fn a_step_of_the_own_clock_moves_only_its_vote() {
        let node = setup(NOON_MS, true);
        node.observe("a", NOON_MS, Duration::ZERO);
        node.observe("b", NOON_MS, Duration::ZERO);
        node.clock.settle(&["a", "b"]);
        node.own.advance_ms(FIVE_MINUTES_MS);
        assert_eq!(node.clock.now_ms(), NOON_MS);
        node.clock.settle(&["a", "b"]);
        assert_eq!(node.clock.now_ms(), NOON_MS);
    }

    #[test]
    fn without_a_majority_it_may_still_jump() {
        let proxy = setup(NOON_MS + FIVE_MINUTES_MS, false);
        proxy.observe("a", NOON_MS + 2 * FIVE_MINUTES_MS, Duration::ZERO);
        assert!(!proxy.clock.settle(&["a", "b", "c"]));
        for node in ["b", "c"] {
            proxy.observe(node, NOON_MS, Duration::ZERO);
        }
        assert!(proxy.clock.settle(&["a", "b", "c"]));
        assert_eq!(proxy.clock.now_ms(), NOON_MS);
    }

    #[test]
    fn replies_that_took_long_count_for_less() {
        let proxy = setup(NOON_MS, false);
        proxy.observe("a", NOON_MS, Duration::from_millis(1));
        proxy.observe("a", NOON_MS - 400, Duration::from_millis(800));
        proxy.observe("b", NOON_MS - FIVE_MINUTES_MS, Duration::from_secs(9));
        proxy.clock.settle(&["a", "b"]);
        assert_eq!(proxy.clock.now_ms(), NOON_MS);
        assert_eq!(proxy.clock.ahead_ms("b"), None);
    }
}
