//! Pace of workers: seconds of their steps, and rests beside clients (ADR 73). Pure functions of
//! the constants.

use crate::cluster::{Content, Placement, Policy, Shape};
use crate::constants::{Constants, Name};
use crate::repair::WalkTimes;

const SECONDS_AN_HOUR: f64 = 3600.0;
const SECONDS_A_DAY: f64 = 86_400.0;

/// Seconds of workers' steps.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    constants: Constants,
    /// True if clients are active: each step is followed by a rest.
    beside_clients: bool,
}

/// Bounds of a step, and the cost of one item.
struct Step {
    items_max: f64,
    bytes_max: f64,
    at_once: f64,
    item_seconds: f64,
    item_bytes: f64,
    /// Seconds of the device that is walked.
    disk_seconds: f64,
}

impl Pace {
    /// Returns the pace beside clients, or without any.
    pub(crate) fn new(constants: &Constants, beside_clients: bool) -> Self {
        Self { constants: constants.clone(), beside_clients }
    }

    fn get(&self, name: Name) -> f64 {
        self.constants.get(name)
    }

    /// Returns the pause after a step: a rest beside clients, and the usual pause at least.
    fn pause(&self, step: f64) -> f64 {
        let rest = (step * self.get(Name::RestTimes)).min(self.get(Name::RestMax));
        let rest = if self.beside_clients { rest } else { 0.0 };
        rest.max(self.get(Name::BusyPause))
    }

    /// Returns the share of time in which a worker of long steps works.
    pub(crate) fn share(&self) -> f64 {
        if self.beside_clients { 1.0 / (1.0 + self.get(Name::RestTimes)) } else { 1.0 }
    }

    fn page_seconds(&self) -> f64 {
        self.get(Name::PageSeconds) + self.get(Name::PageSeeks) * self.get(Name::SeekSeconds)
    }

    /// Returns the hours of visits of extents of one device, page by page, if nothing is to be
    /// copied.
    pub(crate) fn visit_hours(&self, extents: f64) -> f64 {
        let page = self.page_seconds();
        let pages = extents / self.get(Name::Page);
        pages * (page + self.pause(page)) / SECONDS_AN_HOUR
    }

    /// Returns the number of devices of a node that are walked at a time.
    fn lanes(&self, devices: f64) -> f64 {
        self.get(Name::Walkers).min(devices)
    }

    /// Returns the hours from one pass of a node to the next, if nothing is to be copied: each
    /// device compares its sums with those of `peers`, and visits the bins that differ because an
    /// extent is being written or deleted.
    pub(crate) fn pass_hours(&self, devices: f64, peers: f64) -> f64 {
        let extents = self.get(Name::Extents);
        let calls = peers / self.get(Name::PeersAtOnce) * self.get(Name::SumSeconds);
        let turns = devices / self.lanes(devices);
        let changes = 2.0 * extents * self.get(Name::ChurnDay) / SECONDS_A_DAY;
        let bins = (changes * self.get(Name::InFlightSeconds)).min(self.get(Name::Bins));
        let visited = bins * extents / self.get(Name::Bins);
        let compared = turns * (calls + self.pause(calls)) + self.get(Name::IdlePause);
        compared / SECONDS_AN_HOUR + turns * self.visit_hours(visited)
    }

    /// Returns the hours of a worker that copies extents of a mean length.
    pub(crate) fn copy_hours(&self, extents: f64, bytes_each: f64) -> f64 {
        let io = self.get(Name::SeekSeconds) + self.get(Name::SyncSeconds);
        let step = Step {
            items_max: self.get(Name::CopyStep),
            bytes_max: self.get(Name::CopyStepBytes),
            at_once: self.get(Name::CopyAtOnce),
            item_seconds: io + 2.0 * bytes_each / self.get(Name::DiskRate),
            item_bytes: bytes_each,
            disk_seconds: self.read_seconds(bytes_each),
        };
        self.hours(extents, &step)
    }

    /// Returns the hours of a worker that rebuilds fragments of a mean length, each from `needed`
    /// others.
    pub(crate) fn rebuild_hours(&self, fragments: f64, bytes_each: f64, needed: u8) -> f64 {
        let io = self.get(Name::SeekSeconds) + self.get(Name::SyncSeconds);
        let traffic = bytes_each * (f64::from(needed) + 1.0);
        let step = Step {
            items_max: self.get(Name::RebuildStep),
            bytes_max: self.get(Name::RebuildStepBytes),
            at_once: self.get(Name::RebuildAtOnce),
            item_seconds: io + 2.0 * bytes_each / self.get(Name::DiskRate),
            item_bytes: traffic,
            disk_seconds: self.read_seconds(bytes_each),
        };
        self.hours(fragments, &step)
    }

    /// Returns the times of walks without copies: passes of a node, and visits of a replica.
    pub(crate) fn walk_times(&self, shape: Shape, placement: &Placement) -> WalkTimes {
        let replicas = placement.replicas_a_device();
        let peers = replicas * placement.policy.compared();
        let devices = f64::from(shape.devices_a_node);
        WalkTimes {
            lanes: self.lanes(devices) as u32,
            walk: self.pass_hours(devices, peers),
            visit: self.visit_hours(self.get(Name::Extents) / replicas),
            copy: 0.0,
            ingest: 0.0,
        }
    }

    fn read_seconds(&self, bytes: f64) -> f64 {
        self.get(Name::SeekSeconds) + bytes / self.get(Name::DiskRate)
    }

    /// Returns the hours of steps, each of which waits for its rounds, for the disk that is walked
    /// or for the network.
    fn hours(&self, items: f64, step: &Step) -> f64 {
        let together = step.items_max.min((step.bytes_max / step.item_bytes).ceil());
        let rounds = (together / step.at_once).ceil();
        let walkers = self.get(Name::Walkers);
        let network = together * step.item_bytes * walkers / self.get(Name::NodeRate);
        let disk = together * step.disk_seconds;
        let seconds = (rounds * step.item_seconds).max(disk).max(network);
        items / together * (seconds + self.pause(seconds)) / SECONDS_AN_HOUR
    }

    /// Returns the hours in which an empty device receives registers.
    pub(crate) fn sync_hours(&self, registers: f64) -> f64 {
        registers / self.get(Name::SyncRate) / self.share() / SECONDS_AN_HOUR
    }

    /// Returns the hours in which an empty device can take in bytes.
    pub(crate) fn ingest_hours(&self, bytes: f64) -> f64 {
        let rate = self.get(Name::DiskRate) * self.get(Name::IngestShare);
        bytes / rate / SECONDS_AN_HOUR
    }

    /// Returns the hours from a failure to the beginning of its repair.
    pub(crate) fn delay_hours(&self) -> f64 {
        let notice = self.get(Name::SuspectSeconds) + self.get(Name::SilenceSeconds);
        self.get(Name::OperatorHours) + notice / SECONDS_AN_HOUR
    }
}

/// Contents of one replica of a partition, and the work of a repair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplicaWork {
    pub(crate) bytes: f64,
    /// Hours of the worker that makes all of it again.
    pub(crate) repair_hours: f64,
    /// Hours of the worker that copies all of it from another device, in a ring change.
    pub(crate) move_hours: f64,
}

impl ReplicaWork {
    /// Returns the work of one replica of a policy.
    pub(crate) fn of(constants: &Constants, pace: &Pace, placement: &Placement) -> Self {
        let Policy { content, .. } = placement.policy;
        let replicas = placement.replicas_a_device();
        if content == Content::Registers {
            let items = constants.get(Name::Registers) / replicas;
            let hours = pace.sync_hours(items);
            let bytes = items * constants.get(Name::RegisterBytes);
            return Self { bytes, repair_hours: hours, move_hours: hours };
        }
        let items = constants.get(Name::Extents) / replicas;
        let bytes = constants.get(Name::DeviceBytes) * constants.get(Name::Fill) / replicas;
        let move_hours = pace.copy_hours(items, bytes / items);
        let repair_hours = if placement.policy.is_coded() {
            pace.rebuild_hours(items, bytes / items, placement.policy.needed())
        } else {
            move_hours
        };
        Self { bytes, repair_hours, move_hours }
    }
}

#[cfg(test)]
mod tests {
    use super::Pace;
    use crate::constants::{Constants, Name};

    fn close(left: f64, right: f64) {
        assert!((left / right - 1.0).abs() < 1e-9, "{left} is not {right}");
    }

    /// Constants of workers that walk one device of a node at a time.
    fn one_at_a_time() -> Constants {
        Constants::default().with(Name::Walkers, 1.0)
    }

    #[test]
    fn a_pass_compares_sums_and_visits_what_is_in_flight() {
        let constants = one_at_a_time().with(Name::ChurnDay, 1e-12);
        let pace = Pace::new(&constants, true);
        // 400 calls in four streams, and their rest, for each of three devices.
        close(pace.pass_hours(3.0, 400.0) * 3600.0, 3.0 * 3.0 * 0.2 + 30.0);
        // With one bin, any change has everything visited.
        let whole = one_at_a_time().with(Name::Bins, 1.0);
        let whole = Pace::new(&whole, true).pass_hours(3.0, 400.0);
        close(whole, pace.pass_hours(3.0, 400.0) + pace.visit_hours(3e8));
        let together = Pace::new(&one_at_a_time().with(Name::Walkers, 12.0), true);
        let single = Pace::new(&one_at_a_time(), true);
        let ratio = single.pass_hours(3.0, 400.0) / together.pass_hours(3.0, 400.0);
        assert!((1.2..3.0).contains(&ratio), "{ratio}");
        let more = one_at_a_time().with(Name::ChurnDay, 0.01);
        assert!(Pace::new(&more, true).pass_hours(3.0, 400.0) < whole / 100.0);
    }

    #[test]
    fn a_worker_has_a_third_of_the_time_beside_clients() {
        let constants = one_at_a_time();
        let (beside, alone) = (Pace::new(&constants, true), Pace::new(&constants, false));
        close(beside.visit_hours(500.0) * 3600.0, 3.0 * 0.0323);
        close(alone.visit_hours(500.0) * 3600.0, 0.0323 + 0.02);
        // 64 reads of 15 kB by one disk take longer than 16 rounds of four copies.
        let step = 64.0 * (0.012 + 15_000.0 / 150e6);
        close(beside.copy_hours(64.0, 15_000.0) * 3600.0, 3.0 * step);
        close(alone.copy_hours(64.0, 15_000.0) * 3600.0, step + 0.02);
    }

    #[test]
    fn copies_wait_for_synced_writes_where_those_are_slow() {
        let constants = one_at_a_time().with(Name::SyncSeconds, 0.1);
        let pace = Pace::new(&constants, true);
        let step = 16.0 * (0.112 + 2.0 * 15_000.0 / 150e6);
        close(pace.copy_hours(64.0, 15_000.0) * 3600.0, step + 2.0);
        // Others don't speed a device up, and share the network with it.
        let walkers = Pace::new(&constants.with(Name::Walkers, 4.0), true);
        close(walkers.copy_hours(64.0, 15_000.0) * 3600.0, step + 2.0);
        let many = Pace::new(&constants.with(Name::Walkers, 1e5), true);
        close(many.copy_hours(64.0, 15_000.0) * 3600.0, 64.0 * 15_000.0 * 1e5 / 2.5e9 + 2.0);
    }

    #[test]
    fn long_steps_rest_for_two_seconds_and_large_extents_fill_a_step_early() {
        let constants = one_at_a_time().with(Name::SeekSeconds, 1.0);
        let pace = Pace::new(&constants, true);
        // Half of 32 MiB each: two copies in one round, of one disk.
        let bytes = 16.0 * 1024.0 * 1024.0;
        let step = 2.0 * (1.0 + bytes / 150e6);
        close(pace.copy_hours(2.0, bytes) * 3600.0, step + 2.0);
    }

    #[test]
    fn a_rebuild_counts_what_it_reads() {
        let pace = Pace::new(&one_at_a_time(), false);
        // 64 MiB hold two stripes of 5 × 8 MiB: one round.
        let bytes = 8.0 * 1024.0 * 1024.0;
        let seconds = 0.036 + 2.0 * bytes / 150e6;
        close(pace.rebuild_hours(2.0, bytes, 4) * 3600.0, seconds + 0.02);
    }
}
