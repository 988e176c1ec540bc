//! A month of churn on one node: garbage that `reclaim` frees, and passes of the other workers.
//!
//! All nodes are alike, so one stands for all. Each worker is a task of its own and has a third of
//! the time beside clients. A worker keeps up while its pass is shorter than the time that its
//! purpose leaves.

use std::f64::consts::TAU;

use serde::Serialize;

use crate::cluster::Shape;
use crate::constants::{Constants, Name};
use crate::pace::Pace;

/// Hours of the simulation.
const MONTH_H: u32 = 30 * 24;
/// Hour at which a dataset is deleted, and the hours that this takes.
const PURGE_AT_H: u32 = 10 * 24;
const PURGE_HOURS: u32 = 6;
/// Hours of a pass of `sweep`, if two and a day of rest after each are to take 30 days.
const SWEEP_PASS_H: f64 = 14.0 * 24.0;
/// Day and night: clients write so much more and less than on average.
const SWING: f64 = 0.6;
/// Most primaries of the tombstones of a page of `collect`.
const PRIMARIES_OF_PAGE: f64 = 700.0;

/// Work of one worker, for a node.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct WorkerLoad {
    pub(crate) worker: &'static str,
    /// Formula of the pass.
    pub(crate) formula: &'static str,
    /// Hours of a pass over all devices of a node, beside clients.
    pub(crate) pass_h: f64,
    /// Hours that a pass may take.
    pub(crate) limit_h: f64,
    /// Purpose that sets the limit.
    pub(crate) limit: &'static str,
    /// Objects a device at which a pass takes as long as it may.
    pub(crate) objects_max: f64,
}

/// Hours of a pass, those that it may take, and the reason.
#[derive(Clone, Copy)]
struct Pass {
    hours: f64,
    limit_h: f64,
    reason: &'static str,
}

/// A month of garbage.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Month {
    /// Garbage of a node that waits, for each hour.
    #[serde(skip)]
    pub(crate) backlog: Vec<f64>,
    pub(crate) created: f64,
    pub(crate) reclaimed: f64,
    pub(crate) backlog_max: f64,
    pub(crate) backlog_end: f64,
    /// Hours after the deletion of the dataset until the backlog is below that of an hour.
    pub(crate) purge_drain_h: Option<f64>,
    /// Share of the worker's capacity that everyday churn takes.
    pub(crate) utilization: f64,
}

/// A node's devices and pace.
pub(crate) struct Node<'a> {
    pub(crate) constants: &'a Constants,
    pub(crate) shape: Shape,
    pub(crate) partitions_a_device: f64,
}

impl Node<'_> {
    fn get(&self, name: Name) -> f64 {
        self.constants.get(name)
    }

    /// Extents of the node.
    fn extents(&self) -> f64 {
        self.get(Name::Extents) * f64::from(self.shape.devices_a_node)
    }

    fn registers(&self) -> f64 {
        self.get(Name::Registers) * f64::from(self.shape.devices_a_node)
    }

    /// Returns the passes of all workers.
    pub(crate) fn loads(&self) -> Vec<WorkerLoad> {
        self.extent_loads().into_iter().chain(self.index_loads()).collect()
    }

    /// Returns the hours of so many items beside clients.
    fn hours(&self, items: f64, rate: f64) -> f64 {
        items / rate / Pace::new(self.constants, true).share() / 3600.0
    }

    fn load(&self, worker: &'static str, formula: &'static str, pass: Pass) -> WorkerLoad {
        let Pass { hours: pass_h, limit_h, reason: limit } = pass;
        let objects_max = self.get(Name::Extents) * limit_h / pass_h;
        WorkerLoad { worker, formula, pass_h, limit_h, limit, objects_max }
    }

    fn extent_loads(&self) -> [WorkerLoad; 4] {
        let extents = self.extents();
        let limit_h = self.get(Name::ReclaimAgeHours);
        let compare = |worker, compared, reason| {
            let hours = self.pass_hours(compared, self.get(Name::Extents));
            let pass = Pass { hours, limit_h, reason };
            let load = self.load(worker, "peers × call + bins that differ × (step + rest)", pass);
            WorkerLoad { objects_max: self.objects_max(compared, limit_h), ..load }
        };
        let churn = extents * self.get(Name::ChurnDay);
        let reclaim = Pass {
            hours: self.hours(churn, self.get(Name::ReclaimRate)),
            limit_h: 24.0,
            reason: "a day's garbage within a day",
        };
        let sweep = Pass {
            hours: self.hours(extents, self.get(Name::SweepRate)),
            limit_h: SWEEP_PASS_H,
            reason: "two passes, and a day of rest after each, within 30 days",
        };
        [
            self.load("reclaim", "c / rate", reclaim),
            self.load("sweep", "e / rate", sweep),
            compare("replicate-data", 2.0, "a returning device is whole within the reclaim age"),
            compare("reconstruct", 3.0, "a lost fragment is rebuilt within the reclaim age"),
        ]
    }

    /// Returns the hours of a pass that compares each replica with some others.
    fn pass_hours(&self, compared: f64, extents: f64) -> f64 {
        let constants = self.constants.with(Name::Extents, extents);
        let peers = self.partitions_a_device * compared;
        Pace::new(&constants, true).pass_hours(f64::from(self.shape.devices_a_node), peers)
    }

    /// Returns the extents a device at which a comparing pass takes `limit_h`: visits grow with the
    /// square of the extents.
    fn objects_max(&self, compared: f64, limit_h: f64) -> f64 {
        let (mut low, mut high) = (1.0, 1e15);
        for _ in 0..200 {
            let middle = f64::sqrt(low * high);
            let fits = self.pass_hours(compared, middle) <= limit_h;
            (low, high) = if fits { (middle, high) } else { (low, middle) };
        }
        low
    }

    fn index_loads(&self) -> [WorkerLoad; 4] {
        let registers = self.registers();
        let age = self.get(Name::ReclaimAgeHours);
        // Tombstones that grow old between two passes. For each page, every device gets one question, every
        // node two requests for its state, and each primary of a tombstone of the page four calls.
        let deletes = registers / 3.0 * self.get(Name::ChurnDay) * age / 16.0 / 24.0;
        let devices = f64::from(self.shape.devices());
        let of_page =
            devices + 2.0 * f64::from(self.shape.nodes()) + 4.0 * PRIMARIES_OF_PAGE.min(devices);
        let calls = deletes / self.get(Name::CollectPage) * of_page;
        let collect = Pass {
            hours: self.hours(calls, 1.0 / self.get(Name::CallSeconds)),
            limit_h: age / 16.0,
            reason: "a sixteenth of the reclaim age between passes",
        };
        let peers = 2.0;
        let sums = self.partitions_a_device * f64::from(self.shape.devices_a_node) * peers;
        let replicate = Pass {
            hours: self.hours(sums, 1.0 / self.get(Name::SumSeconds)),
            limit_h: 24.0,
            reason: "once a day",
        };
        let sync = Pass {
            hours: Pace::new(self.constants, true).sync_hours(self.get(Name::Registers)),
            limit_h: age,
            reason: "an empty device votes within the reclaim age",
        };
        let listed = registers / 3.0 * self.get(Name::RuledShare) / 1000.0;
        let expire = Pass {
            hours: self.hours(listed, 1.0 / self.get(Name::ListSeconds)),
            limit_h: 24.0,
            reason: "once a day",
        };
        [
            self.load("collect", "c / 512 × (devices + 2 nodes + 2,800) × call", collect),
            self.load("replicate-index", "partitions × peers × call", replicate),
            self.load("sync", "r / rate, of one device", sync),
            self.load("expire", "listed / 1,000 × CPU of a LIST", expire),
        ]
    }

    /// Bytes a second that `audit` reads from each device.
    pub(crate) fn audit_rate(&self) -> f64 {
        let bytes = self.get(Name::DeviceBytes) * self.get(Name::Fill);
        bytes / (self.get(Name::AuditDays) * 86_400.0)
    }

    /// Simulates the garbage of a month, hour by hour.
    pub(crate) fn month(&self) -> Month {
        let pace = Pace::new(self.constants, true);
        let capacity = self.get(Name::ReclaimRate) * pace.share() * 3600.0;
        let usual = self.extents() * self.get(Name::ChurnDay) / 24.0;
        let purge = self.extents() * self.get(Name::PurgeShare) / f64::from(PURGE_HOURS);
        let mut month = Month {
            backlog: Vec::new(),
            created: 0.0,
            reclaimed: 0.0,
            backlog_max: 0.0,
            backlog_end: 0.0,
            purge_drain_h: None,
            utilization: usual / capacity,
        };
        let mut backlog = 0.0f64;
        for hour in 0..MONTH_H {
            let day = f64::from(hour % 24) / 24.0;
            let mut garbage = usual * (1.0 + SWING * (TAU * day).sin());
            let purged = PURGE_AT_H..PURGE_AT_H + PURGE_HOURS;
            garbage += if purged.contains(&hour) { purge } else { 0.0 };
            let freed = capacity.min(backlog + garbage);
            backlog += garbage - freed;
            month.created += garbage;
            month.reclaimed += freed;
            month.backlog_max = month.backlog_max.max(backlog);
            month.backlog.push(backlog);
            let is_over = hour >= purged.end && backlog <= usual;
            if is_over && month.purge_drain_h.is_none() {
                month.purge_drain_h = Some(f64::from(hour + 1 - PURGE_AT_H));
            }
        }
        month.backlog_end = backlog;
        month
    }
}

#[cfg(test)]
mod tests {
    use super::Node;
    use crate::cluster::Shape;
    use crate::constants::{Constants, Name};

    const SHAPE: Shape = Shape { racks: 4, nodes_a_rack: 1, devices_a_node: 12 };

    fn node(constants: &Constants) -> Node<'_> {
        Node { constants, shape: SHAPE, partitions_a_device: 262.0 }
    }

    #[test]
    fn garbage_is_reclaimed_or_waits() {
        for churn in [0.001, 0.01, 0.2] {
            let constants = Constants::default().with(Name::ChurnDay, churn);
            let month = node(&constants).month();
            let kept = month.created - month.reclaimed;
            assert!((kept - month.backlog_end).abs() < 1e-6 * month.created);
            // 30 days of churn and the dataset; day and night cancel each other.
            let expected = 12e8 * (30.0 * churn + 0.1);
            assert!((month.created / expected - 1.0).abs() < 1e-9, "{}", month.created);
        }
    }

    #[test]
    fn more_churn_than_a_third_of_the_rate_is_never_reclaimed() {
        // 2,000/s beside clients are 57.6 million a day: 4.8 % of 1.2 × 10⁹.
        let constants = Constants::default();
        let slow = constants.with(Name::ChurnDay, 0.03);
        let fast = constants.with(Name::ChurnDay, 0.06);
        assert!(node(&slow).month().purge_drain_h.is_some());
        let month = node(&fast).month();
        assert!(month.utilization > 1.0 && month.purge_drain_h.is_none());
        let grows = month.backlog.windows(24).step_by(24).all(|day| day[23] > day[0]);
        assert!(grows || month.backlog_end > 12e8 * 0.3, "{}", month.backlog_end);
    }

    #[test]
    fn a_pass_at_the_largest_number_of_objects_takes_as_long_as_it_may() {
        let constants = Constants::default();
        for load in node(&constants).loads() {
            let most = constants
                .with(Name::Extents, load.objects_max)
                .with(Name::Registers, load.objects_max);
            let again = node(&most).loads();
            let again = again.iter().find(|it| it.worker == load.worker).unwrap();
            // The sums of partitions don't grow with objects.
            let is_flat = load.worker == "replicate-index";
            let ratio = again.pass_h / again.limit_h;
            assert!(is_flat || (ratio - 1.0).abs() < 1e-6, "{}: {ratio}", load.worker);
        }
    }
}
