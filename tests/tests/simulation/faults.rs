//! Faults of a run and their times, drawn from the seed before the run begins.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::chance::SharedRng;
use super::cluster::SimulatedCluster;
use super::network::{Caller, LinkDirection, Weather};
use super::node::NodeCondition;
use super::reduction::Reduction;

/// Length of a run in milliseconds above which tombstones are collected.
pub(crate) const LONG_MS: u64 = 10 * 60 * 1000;

/// A fault, or the end of one.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ClusterFault {
    /// A link is cut in some direction.
    Cut(usize, usize, LinkDirections),
    /// All proxies and workers are cut off from a node.
    CutNode(usize, LinkDirections),
    /// A proxy is cut off from all nodes.
    CutProxy(usize, LinkDirections),
    /// All links are whole again.
    Heal,
    /// A node goes down.
    Crash(usize, NodeCondition),
    /// A node comes back.
    Restart(usize),
    /// A node loses all data.
    Wipe(usize),
    /// A bit of some extent of a node is flipped.
    Flip(usize, u64),
    /// A proxy crashes with its requests, and another takes its place.
    CrashProxy(usize),
    /// The clock of a node is wrong.
    SkewNode(usize, i64),
    /// The clock of a proxy is wrong.
    SkewProxy(usize, i64),
    /// The network gets better or worse.
    Weather(Weather),
}

/// Directions of a link.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LinkDirections {
    There,
    Back,
    Both,
}

impl LinkDirections {
    fn all(self) -> &'static [LinkDirection] {
        match self {
            Self::There => &[LinkDirection::There],
            Self::Back => &[LinkDirection::Back],
            Self::Both => &[LinkDirection::There, LinkDirection::Back],
        }
    }
}

/// Kinds of faults that a run has.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each sort of fault is there or not")]
pub(crate) struct Climate {
    pub(crate) weather: Weather,
    cuts: bool,
    crashes: bool,
    proxy_crashes: bool,
    clocks: bool,
    wipe: bool,
    flips: bool,
    /// The one node that may lose acknowledged data, so that at most one copy is lost.
    victim: usize,
    /// True if tombstones may be collected during the run (rule T1). Then nodes may be away for longer
    /// than the reclaim age.
    is_long: bool,
    /// True if the errors of clocks stay within the bounds of cluster time: ages of tombstones and of
    /// withdrawn generations rest on it.
    has_cluster_time: bool,
}

impl Climate {
    /// Draws a climate. One run in six has delays only; in the others every kind of fault may
    /// occur.
    pub(crate) fn drawn(chance: &SharedRng, nodes: usize, length_ms: u64, has_sets: bool) -> Self {
        let calm = chance.below(6) == 0;
        let some = |per_mille| !calm && chance.per_mille(per_mille);
        let lossy = some(500);
        Self {
            weather: Weather {
                delay_ms: chance.pick(&[0, 2, 5, 20]),
                long_delay_ms: chance.pick(&[20, 200, 1000]),
                long_per_mille: chance.pick(&[0, 20, 100]),
                lost_per_mille: if lossy { chance.pick(&[5, 20, 80]) } else { 0 },
                twice_per_mille: if lossy { chance.pick(&[0, 20, 100]) } else { 0 },
            },
            cuts: some(600),
            crashes: some(500),
            proxy_crashes: some(500),
            clocks: some(400),
            wipe: some(250),
            flips: some(300),
            victim: chance.index(nodes),
            is_long: length_ms > LONG_MS,
            has_cluster_time: has_sets || length_ms > LONG_MS,
        }
    }

    /// Loses and repeats no message from now on, and delays none for long.
    pub(crate) fn calm(&mut self) {
        let delay_ms = self.weather.delay_ms;
        self.weather = Weather { delay_ms, ..Weather::default() };
    }

    /// Returns the node that dies for good, if any.
    pub(crate) fn dead(&self, chance: &SharedRng) -> Option<usize> {
        (self.crashes && chance.per_mille(300)).then_some(self.victim)
    }
}

/// Faults in the order of their times.
pub(crate) struct Schedule(Vec<ScheduledFault>);

/// A fault, or the end of one, with its time.
struct ScheduledFault {
    at_ms: u64,
    fault: ClusterFault,
    /// Number of the fault; its end has the same number.
    number: usize,
}

impl Schedule {
    /// Draws a schedule for `length_ms`.
    pub(crate) fn drawn(
        climate: &Climate,
        chance: &SharedRng,
        (nodes, proxies): (usize, usize),
        length_ms: u64,
    ) -> Self {
        let mut faults = Vec::new();
        let mut number = 0;
        let mut add = |number, at_ms, fault: Option<ClusterFault>| {
            faults.extend(fault.map(|fault| ScheduledFault { at_ms, fault, number }));
        };
        let mut at_ms = 0;
        while at_ms < length_ms {
            at_ms += chance.between(10, length_ms / 6);
            let (node, proxy) = (chance.index(nodes), chance.index(proxies));
            let lasts_ms = if climate.is_long {
                chance.pick(&[2000, 60_000, length_ms / 2])
            } else {
                chance.pick(&[20, 300, 2000, 8000])
            };
            let (fault, end) = one(climate, chance, (node, proxy));
            add(number, at_ms, fault);
            add(number, at_ms + lasts_ms, end);
            number += 1;
        }
        if climate.wipe {
            add(number, chance.below(length_ms), Some(ClusterFault::Wipe(climate.victim)));
            number += 1;
        }
        for _ in 0..if climate.flips { 3 } else { 0 } {
            let flip = ClusterFault::Flip(climate.victim, chance.below(1000));
            add(number, chance.below(length_ms), Some(flip));
            number += 1;
        }
        faults.sort_by_key(|scheduled| scheduled.at_ms);
        Self(faults)
    }

    /// Leaves out faults, and their ends with them.
    pub(crate) fn reduce(&mut self, reduction: &Reduction) {
        self.0.retain(|scheduled| reduction.has_fault(scheduled.number));
    }

    /// Numbers of all faults.
    pub(crate) fn numbers(&self) -> BTreeSet<usize> {
        self.0.iter().map(|scheduled| scheduled.number).collect()
    }

    /// Causes all faults at their times.
    pub(crate) async fn happen(&self, simulated: &Arc<SimulatedCluster>) {
        let begun = Instant::now();
        for ScheduledFault { at_ms, fault, .. } in &self.0 {
            sleep_until(begun + Duration::from_millis(*at_ms)).await;
            simulated.network.trace.note(format_args!("FAULT {fault:?}"));
            fault.happen(simulated).await;
        }
    }
}

/// Draws a fault that the climate allows, and the fault that ends it.
fn one(
    climate: &Climate,
    chance: &SharedRng,
    (node, proxy): (usize, usize),
) -> (Option<ClusterFault>, Option<ClusterFault>) {
    let ways = chance.pick(&[
        LinkDirections::There,
        LinkDirections::Back,
        LinkDirections::Both,
        LinkDirections::Both,
    ]);
    let wrong_by_ms = if climate.has_cluster_time {
        chance.pick(&[-20_000, -300, 20_000, 50_000])
    } else {
        chance.pick(&[-3_600_000, -70_000, -20_000, -300, 300, 20_000, 50_000, 70_000])
    };
    let standing = chance.pick(&[NodeCondition::Refusing, NodeCondition::Silent]);
    let (fault, end) = match chance.below(8) {
        0 if climate.cuts => (ClusterFault::Cut(proxy, node, ways), ClusterFault::Heal),
        1 if climate.cuts => (ClusterFault::CutNode(node, ways), ClusterFault::Heal),
        2 if climate.cuts => (ClusterFault::CutProxy(proxy, ways), ClusterFault::Heal),
        3 | 4 if climate.crashes => {
            (ClusterFault::Crash(node, standing), ClusterFault::Restart(node))
        }
        5 if climate.proxy_crashes => return (Some(ClusterFault::CrashProxy(proxy)), None),
        6 if climate.clocks => {
            (ClusterFault::SkewNode(node, wrong_by_ms), ClusterFault::SkewNode(node, 0))
        }
        7 if climate.clocks => {
            (ClusterFault::SkewProxy(proxy, wrong_by_ms), ClusterFault::SkewProxy(proxy, 0))
        }
        _ => {
            let storm = Weather { delay_ms: 300, long_per_mille: 300, ..climate.weather };
            (ClusterFault::Weather(storm), ClusterFault::Weather(climate.weather))
        }
    };
    (Some(fault), Some(end))
}

impl ClusterFault {
    async fn happen(self, simulated: &SimulatedCluster) {
        let (network, nodes) = (&simulated.network, &simulated.nodes);
        let cut = |proxy: usize, node: usize, ways: LinkDirections| {
            ways.all().iter().for_each(|way| network.cut(Caller::Proxy(proxy), node, *way));
        };
        match self {
            Self::Cut(proxy, node, ways) => cut(proxy, node, ways),
            Self::CutNode(node, ways) => {
                for place in 0..simulated.replicators.len() {
                    let worker = Caller::Worker(place);
                    ways.all().iter().for_each(|way| network.cut(worker, node, *way));
                }
                (0..simulated.proxies()).for_each(|proxy| cut(proxy, node, ways));
            }
            Self::CutProxy(proxy, ways) => {
                (0..nodes.len()).for_each(|node| cut(proxy, node, ways));
            }
            Self::Heal => network.heal(),
            Self::Crash(node, standing) => nodes[node].crash(standing).await,
            Self::Restart(node) => nodes[node].restart(),
            Self::Wipe(node) => nodes[node].wipe().await,
            Self::Flip(node, which) => nodes[node].flip(which),
            Self::CrashProxy(proxy) => simulated.replace_proxy(proxy),
            Self::SkewNode(node, by_ms) => nodes[node].clock.set_wrong_by_ms(by_ms),
            Self::SkewProxy(proxy, by_ms) => simulated.proxy(proxy).clock.set_wrong_by_ms(by_ms),
            Self::Weather(weather) => network.set_weather(weather),
        }
    }
}

/// Ends all faults. Wiped nodes stay without votes.
pub(crate) fn heal(simulated: &SimulatedCluster) {
    simulated.network.trace.note(format_args!("HEALED"));
    simulated.network.heal();
    simulated.network.set_weather(Weather { delay_ms: 2, ..Weather::default() });
    for node in simulated.nodes.iter().filter(|node| !simulated.has_left(node)) {
        node.restart();
        node.clock.set_wrong_by_ms(0);
    }
    for proxy in 0..simulated.proxies() {
        simulated.proxy(proxy).clock.set_wrong_by_ms(0);
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .try_for_each(|it| writeln!(f, "  {:>8} {:?} ({})", it.at_ms, it.fault, it.number))
    }
}
