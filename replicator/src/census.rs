//! Census: an independent count of every device's contents, against the rings.
//!
//! A rebalance, drain or repair is reported as done only after a census. It shares no code with the
//! comparison in `replicate`. It reads each device in the order of keys and ids, and compares the
//! results.
//!
//! Clients go on meanwhile, so pages are read at different times. Apparent faults are checked again
//! before they count. Silent devices are listed, and the census states nothing about their
//! contents.

mod bodies;
mod extents;
mod registers;
mod streams;

use std::collections::BTreeSet;
use std::time::Duration;

use martlet_protocol::DeviceId;
use martlet_topology::Topology;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cluster::StepTopology;

/// Maximum number of findings that are reported individually.
const FINDINGS_MAX: usize = 100;
/// Maximum number of waits for a second check: more faults are not transient.
const WAITS_MAX: u32 = 20;

/// Options of a census.
#[derive(Clone, Copy, Debug)]
pub struct CensusOptions {
    /// Pause between two pages.
    pub pause: Duration,
    /// Wait before an apparent fault is checked again.
    pub second_look: Duration,
}

impl Default for CensusOptions {
    fn default() -> Self {
        Self { pause: Duration::from_millis(5), second_look: Duration::from_secs(1) }
    }
}

/// Counts of one kind of item.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KindCounts {
    /// Registers, or extents.
    pub things: u64,
    /// All copies of them, on any device.
    pub copies: u64,
    /// Copies that the rings require and that don't exist.
    pub missing: u64,
    /// Copies that are older than the newest, or differ from the rest.
    pub older: u64,
    /// Copies on devices for which the rings require none.
    pub stray: u64,
}

impl KindCounts {
    fn is_clean(&self) -> bool {
        self.missing + self.older + self.stray == 0
    }
}

/// Result of a census.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CensusReport {
    /// Partitions of all rings.
    pub partitions: u64,
    /// Entries in the index, tombstones included.
    pub registers: KindCounts,
    /// Extents of all storage policies, their copies or fragments.
    pub extents: KindCounts,
    /// Extents that entries need and that have too few fragments left, on all devices together.
    #[serde(default)]
    pub lost: u64,
    /// Hints: writes kept for primaries.
    pub hints: u64,
    /// Replicas that are moving between devices, according to the rings.
    pub moving: u64,
    /// Devices of the rings that did not answer.
    #[schemars(with = "Vec<u32>")]
    pub silent: Vec<DeviceId>,
    /// Devices of the index ring that answer and have no votes.
    #[schemars(with = "Vec<u32>")]
    pub without_votes: Vec<DeviceId>,
    /// The first faults, one line each.
    pub findings: Vec<String>,
    /// True if every item is where the rings require it, and nowhere else.
    pub clean: bool,
}

/// Progress of a census.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CensusProgress {
    /// Registers counted.
    pub registers: u64,
    /// Extents counted.
    pub extents: u64,
    /// Number of extent copies, as devices report them.
    pub extent_copies: u64,
    /// Extent copies counted. More than zero once all registers are counted.
    pub counted_copies: u64,
    /// Faults found.
    pub faults: u64,
}

/// A running census.
struct CensusRun<'a> {
    cluster: &'a StepTopology,
    options: CensusOptions,
    report: CensusReport,
    silent: BTreeSet<DeviceId>,
    /// Remaining waits for second checks.
    waits: u32,
    observe: &'a mut (dyn FnMut(&CensusProgress) + Send),
    progress: CensusProgress,
}

/// Counts everything once; `observe` receives the progress.
pub async fn census(
    topology: &Topology,
    options: CensusOptions,
    observe: &mut (dyn FnMut(&CensusProgress) + Send),
) -> CensusReport {
    let cluster = StepTopology::of(topology);
    let mut census = CensusRun {
        cluster: &cluster,
        options,
        report: CensusReport::default(),
        silent: BTreeSet::new(),
        waits: WAITS_MAX,
        observe,
        progress: CensusProgress::default(),
    };
    census.check_devices().await;
    census.count_registers().await;
    census.count_extents().await;
    census.end()
}

impl CensusRun<'_> {
    /// Records silent devices, votes, hints, and the rings' own figures.
    async fn check_devices(&mut self) {
        let cluster = self.cluster;
        for ring in cluster.rings() {
            self.report.partitions += 1 << ring.part_power();
            self.report.moving += ring.moves().len() as u64;
        }
        let statuses = cluster.statuses().await;
        let index = cluster.index_devices();
        let data = cluster.policies().flat_map(martlet_ring::Ring::devices).map(|device| device.id);
        for device in index.iter().copied().chain(data).collect::<BTreeSet<_>>() {
            let Some(status) = statuses.get(&device) else {
                self.silent.insert(device);
                continue;
            };
            self.report.hints += status.hints;
            self.progress.extent_copies += status.extents;
            if !status.voting && index.contains(&device) {
                self.report.without_votes.push(device);
            }
        }
        if self.report.hints > 0 {
            let hints = self.report.hints;
            self.found(|| format!("{hints} hints are not delivered"));
        }
    }

    fn found(&mut self, finding: impl FnOnce() -> String) {
        self.progress.faults += 1;
        if self.report.findings.len() < FINDINGS_MAX {
            self.report.findings.push(finding());
        }
    }

    /// Pauses after a page.
    async fn rest(&mut self) {
        self.progress.registers = self.report.registers.things;
        self.progress.extents = self.report.extents.things;
        self.progress.counted_copies = self.report.extents.copies;
        (self.observe)(&self.progress);
        tokio::time::sleep(self.options.pause).await;
    }

    /// Waits before a second check.
    async fn wait(&mut self) {
        if self.waits > 0 {
            self.waits -= 1;
            tokio::time::sleep(self.options.second_look).await;
        }
    }

    fn end(self) -> CensusReport {
        let mut report = self.report;
        report.silent = self.silent.into_iter().collect();
        report.clean = report.registers.is_clean()
            && report.extents.is_clean()
            && report.hints == 0
            && report.silent.is_empty()
            && report.without_votes.is_empty();
        report
    }
}

#[cfg(test)]
mod tests;
