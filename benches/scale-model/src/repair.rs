//! Times at which copies of partitions arrive: walks of workers over their nodes' devices, and the
//! copies that they make on their way.
//!
//! A worker of each node compares the sums of its devices in passes, visits what differs in the
//! order of devices and partitions, and copies what others lack when it comes to it. So a copy waits
//! for the pass of its giver, which the copies before it delay. A partition is whole when its last giver has passed:
//! each holder of a copy gives an equal share (`CopyTurn` in `replicate/plan.rs`), each of the `m`
//! watchers of a fragment too (`reconstruct/plan.rs`).

use crate::cluster::{Placement, Shape, Slot};
use crate::random::Random;

/// Copy of one replica of a partition, by several givers.
#[derive(Clone, Debug)]
pub(crate) struct Copy {
    pub(crate) partition: u32,
    /// Device that receives it; none if each copy has another one and none of them is busy.
    pub(crate) receiver: Option<u16>,
    pub(crate) givers: Vec<u16>,
}

/// Walks of all nodes, and the copies that they still have to make.
#[derive(Clone, Debug)]
pub(crate) struct Walks {
    shape: Shape,
    partitions: f64,
    /// Position of each node's walk at hour 0, as a share of the walk.
    phases: Vec<f64>,
    /// Hour at which each lane of each node has made the copies that it knows of.
    busy_until: Vec<f64>,
    times: WalkTimes,
}

/// Hours of a walk, and of work on one replica.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WalkTimes {
    /// Devices of a node that are walked at a time.
    pub(crate) lanes: u32,
    /// A pass of one node without copies.
    pub(crate) walk: f64,
    /// The visit of one replica by one giver.
    pub(crate) visit: f64,
    /// All copies of one replica by one worker.
    pub(crate) copy: f64,
    /// Intake of one replica by one device.
    pub(crate) ingest: f64,
}

/// Part of a copy by one giver.
struct Task {
    /// Walk over some devices of a node, one after the other.
    lane: usize,
    /// Hours of walking from the start to the partition.
    away: f64,
    copy: usize,
    hours: f64,
}

impl Walks {
    /// Creates walks at random positions.
    pub(crate) fn new(
        placement: &Placement,
        nodes: usize,
        times: WalkTimes,
        random: &mut Random,
    ) -> Self {
        let phases = (0..nodes).map(|_| random.unit()).collect();
        Self {
            shape: placement.shape,
            partitions: f64::from(placement.partitions()),
            phases,
            busy_until: vec![0.0; nodes * times.lanes as usize],
            times,
        }
    }

    /// Returns the hour at which each of the copies is complete. All become due at hour `start`.
    pub(crate) fn ends(&mut self, copies: &[Copy], start: f64) -> Vec<f64> {
        let mut tasks = self.tasks(copies, start);
        tasks.sort_by(|a, b| a.lane.cmp(&b.lane).then(a.away.total_cmp(&b.away)));
        let mut ends = vec![start; copies.len()];
        for tasks in tasks.chunk_by(|a, b| a.lane == b.lane) {
            let lane = tasks[0].lane;
            let mut busy = (self.busy_until[lane] - start).max(0.0);
            for task in tasks {
                busy += task.hours;
                ends[task.copy] = ends[task.copy].max(start + task.away + busy);
            }
            self.busy_until[lane] = start + busy;
        }
        self.receive(copies, start, &mut ends);
        ends
    }

    fn tasks(&self, copies: &[Copy], start: f64) -> Vec<Task> {
        let mut tasks = Vec::with_capacity(copies.len() * 2);
        let lanes = self.times.lanes;
        let devices = f64::from(self.shape.devices_a_node.div_ceil(lanes));
        for (at, copy) in copies.iter().enumerate() {
            for giver in &copy.givers {
                let node = self.shape.node_of(*giver);
                let disk = u32::from(*giver) % self.shape.devices_a_node;
                let lane = node * lanes as usize + (disk % lanes) as usize;
                let turn = f64::from(disk / lanes);
                let place = (turn + f64::from(copy.partition) / self.partitions) / devices;
                let now = self.phases[node] + start / self.times.walk;
                let away = (place - now).rem_euclid(1.0) * self.times.walk;
                let hours = self.times.visit + self.times.copy / copy.givers.len() as f64;
                tasks.push(Task { lane, away, copy: at, hours });
            }
        }
        tasks
    }

    /// Delays copies to devices that receive others before them.
    fn receive(&self, copies: &[Copy], start: f64, ends: &mut [f64]) {
        let mut order: Vec<usize> =
            (0..copies.len()).filter(|at| copies[*at].receiver.is_some()).collect();
        order.sort_by(|a, b| {
            copies[*a].receiver.cmp(&copies[*b].receiver).then(ends[*a].total_cmp(&ends[*b]))
        });
        for group in order.chunk_by(|a, b| copies[*a].receiver == copies[*b].receiver) {
            let mut taken = start;
            for at in group {
                taken = (taken + self.times.ingest).max(ends[*at]);
                ends[*at] = taken;
            }
        }
    }
}

/// Returns the devices that make a lost replica again: holders of copies, or watchers of the
/// fragment. `missing` has a bit for each lost replica of the partition.
pub(crate) fn givers(placement: &Placement, slot: Slot, missing: u16) -> Vec<u16> {
    let row = placement.row(slot.partition);
    let width = row.len();
    let is_there = |replica: &usize| missing & (1 << replica) == 0;
    if !placement.policy.is_coded() {
        return (0..width).filter(is_there).map(|replica| row[replica]).collect();
    }
    let before = |steps: usize| (usize::from(slot.replica) + width - steps) % width;
    let watchers = usize::from(placement.policy.spare);
    let watching: Vec<u16> =
        (1..=watchers).map(before).filter(is_there).map(|replica| row[replica]).collect();
    if !watching.is_empty() {
        return watching;
    }
    (1..width).map(before).find(is_there).map(|replica| row[replica]).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::{Copy, WalkTimes, Walks, givers};
    use crate::cluster::{Placement, Policy, Shape, Slot, build};
    use crate::random::Random;

    const SHAPE: Shape = Shape { racks: 6, nodes_a_rack: 1, devices_a_node: 2 };

    fn placement(policy: usize) -> Placement {
        let ring = build(SHAPE, Policy::ALL[policy], 1).unwrap().ring().unwrap();
        Placement::new(SHAPE, Policy::ALL[policy], &ring).unwrap()
    }

    fn walks(times: WalkTimes) -> Walks {
        let mut walks = Walks::new(&placement(0), 6, times, &mut Random::new(1));
        walks.phases = vec![0.0; 6];
        walks
    }

    fn copy(partition: u32, receiver: Option<u16>, givers: &[u16]) -> Copy {
        Copy { partition, receiver, givers: givers.to_vec() }
    }

    fn whole(hours: &[f64]) -> Vec<i64> {
        hours.iter().map(|it| it.round() as i64).collect()
    }

    #[test]
    fn a_copy_waits_for_the_walk_and_for_copies_before_it() {
        let mut walks =
            walks(WalkTimes { lanes: 1, walk: 100.0, visit: 0.0, copy: 4.0, ingest: 0.0 });
        let half = walks.partitions as u32 / 2;
        // Partition 0 of a node's second device is half a walk away, the middle of it 75 hours.
        let copies = [copy(half, None, &[1]), copy(0, None, &[1])];
        assert_eq!(whole(&walks.ends(&copies, 0.0)), [75 + 8, 50 + 4]);
        // The walk went on for 10 hours, and 8 hours of copies go to hour 8.
        assert_eq!(whole(&walks.ends(&[copy(0, None, &[1])], 10.0)), [10 + 40 + 4]);
        // Two givers have half of it each; the later one decides.
        assert_eq!(whole(&walks.ends(&[copy(0, None, &[2, 5])], 0.0)), [50 + 2]);
    }

    #[test]
    fn devices_of_a_node_give_beside_each_other() {
        let times = WalkTimes { lanes: 2, walk: 100.0, visit: 1.0, copy: 4.0, ingest: 0.0 };
        let mut walks = walks(times);
        let copies = [copy(0, None, &[0]), copy(0, None, &[1]), copy(0, None, &[1])];
        // Two of one device wait for each other. Each visits what it gives.
        assert_eq!(whole(&walks.ends(&copies, 0.0)), [5, 5, 10]);
    }

    #[test]
    fn a_device_takes_in_one_replica_after_the_other() {
        let mut walks =
            walks(WalkTimes { lanes: 1, walk: 100.0, visit: 0.0, copy: 0.0, ingest: 30.0 });
        let copies = [
            copy(0, Some(9), &[1]),
            copy(0, Some(9), &[3]),
            copy(0, Some(8), &[5]),
            copy(0, None, &[5]),
        ];
        assert_eq!(whole(&walks.ends(&copies, 0.0)), [50, 80, 50, 50]);
    }

    #[test]
    fn copies_come_from_all_holders_and_fragments_from_watchers() {
        let copies = placement(0);
        let row = copies.row(5).to_vec();
        let slot = Slot { partition: 5, replica: 1 };
        assert_eq!(givers(&copies, slot, 0b010), [row[0], row[2]]);
        assert_eq!(givers(&copies, slot, 0b011), [row[2]]);
        let coded = placement(1);
        let row = coded.row(5).to_vec();
        assert_eq!(givers(&coded, slot, 0b00_0010), [row[0], row[5]]);
        assert_eq!(givers(&coded, slot, 0b00_0011), [row[5]]);
        assert_eq!(givers(&coded, slot, 0b10_0011), [row[4]]);
    }
}
