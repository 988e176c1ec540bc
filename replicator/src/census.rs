//! Census: an independent count of what every device holds, against the rings.
//!
//! "Done", of a rebalance, a drain or a repair, is said only after one. It shares no code with the
//! comparison that `replicate` makes: it reads what is there, device by device, in the order of keys
//! and ids, and holds what it finds side by side.
//!
//! Clients go on meanwhile, so pages are of different moments. Whatever looks wrong is asked about
//! again before it counts. Silent devices are named, and nothing is said about what they hold.

mod bodies;
mod extents;
mod registers;
mod streams;

use std::collections::BTreeSet;
use std::time::Duration;

use martlet_protocol::DeviceId;
use serde::{Deserialize, Serialize};

use crate::cluster::Cluster;

/// Findings that are told one by one.
const FINDINGS_MAX: usize = 100;
/// Second looks that are waited for: where more than this is wrong, it is no passing matter.
const WAITS_MAX: u32 = 20;

/// How a census is taken.
#[derive(Clone, Copy, Debug)]
pub struct CensusOptions {
    /// Between two pages.
    pub pause: Duration,
    /// Before what looks wrong is asked about again.
    pub second_look: Duration,
}

impl Default for CensusOptions {
    fn default() -> Self {
        Self { pause: Duration::from_millis(5), second_look: Duration::from_secs(1) }
    }
}

/// What was counted of one kind of thing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Registers, or extents.
    pub things: u64,
    /// Their copies, wherever they are.
    pub copies: u64,
    /// Copies that the rings ask for and that aren't there.
    pub missing: u64,
    /// Copies that are behind the newest, or other than the rest.
    pub older: u64,
    /// Copies where the rings ask for none.
    pub stray: u64,
}

impl Tally {
    fn is_clean(&self) -> bool {
        self.missing + self.older + self.stray == 0
    }
}

/// What a census found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CensusReport {
    /// Partitions of all rings.
    pub partitions: u64,
    /// Entries in the index, tombstones included.
    pub registers: Tally,
    /// Extents of all storage policies, their copies or fragments.
    pub extents: Tally,
    /// Extents that entries want and that fewer fragments are left of than it takes, wherever they
    /// are.
    #[serde(default)]
    pub lost: u64,
    /// Writes that are kept for primaries.
    pub hints: u64,
    /// Replicas that are moving from one device to another, as far as the rings say.
    pub moving: u64,
    /// Devices of the rings that did not answer.
    pub silent: Vec<DeviceId>,
    /// Devices of the index ring that answer and have no votes.
    pub without_votes: Vec<DeviceId>,
    /// The first of the faults that were found, each in a line.
    pub findings: Vec<String>,
    /// Whether everything is where the rings say, and nothing anywhere else.
    pub clean: bool,
}

/// How far a census has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CensusProgress {
    /// Registers counted.
    pub registers: u64,
    /// Extents counted.
    pub extents: u64,
    /// Extents there are, copies counted once each, as devices say.
    pub extent_copies: u64,
    /// Faults found.
    pub faults: u64,
}

/// A census on its way.
struct Census<'a> {
    cluster: &'a Cluster,
    options: CensusOptions,
    report: CensusReport,
    silent: BTreeSet<DeviceId>,
    /// Second looks that may still be waited for.
    waits: u32,
    tell: &'a mut (dyn FnMut(&CensusProgress) + Send),
    progress: CensusProgress,
}

/// Counts everything once; `tell` hears how far it has come.
pub async fn census(
    cluster: &Cluster,
    options: CensusOptions,
    tell: &mut (dyn FnMut(&CensusProgress) + Send),
) -> CensusReport {
    let mut census = Census {
        cluster,
        options,
        report: CensusReport::default(),
        silent: BTreeSet::new(),
        waits: WAITS_MAX,
        tell,
        progress: CensusProgress::default(),
    };
    census.look_at_devices().await;
    census.count_registers().await;
    census.count_extents().await;
    census.end()
}

impl Census<'_> {
    /// Who answers, who votes, who keeps hints; and what the rings say of themselves.
    async fn look_at_devices(&mut self) {
        let cluster = self.cluster;
        let rings = [&cluster.index].into_iter().chain(cluster.data.values());
        for ring in rings {
            self.report.partitions += 1 << ring.part_power();
            self.report.moving += ring.moves().len() as u64;
        }
        let statuses = cluster.statuses().await;
        let index = cluster.index_devices();
        let data = cluster.data.values().flat_map(|ring| ring.devices()).map(|device| device.id);
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
            self.found(|| format!("{hints} writes are still kept for primaries"));
        }
    }

    fn found(&mut self, finding: impl FnOnce() -> String) {
        self.progress.faults += 1;
        if self.report.findings.len() < FINDINGS_MAX {
            self.report.findings.push(finding());
        }
    }

    /// After a page.
    async fn rest(&mut self) {
        self.progress.registers = self.report.registers.things;
        self.progress.extents = self.report.extents.things;
        (self.tell)(&self.progress);
        tokio::time::sleep(self.options.pause).await;
    }

    /// Before a second look.
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
