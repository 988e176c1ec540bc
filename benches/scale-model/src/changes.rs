//! Changes of a ring by the real builder: bytes, hours, and peaks of fullness.
//!
//! The builder moves replicas as it would for an operator. Differences between its rings give the
//! copies; the walks of the workers give their hours. Three bounds are compared: the copies that
//! workers make beside their walks, the disks that receive, and the uplinks of racks.

use std::collections::BTreeMap;

use martlet_protocol::DeviceId;
use martlet_ring::{Builder, MovePace, RebalancePlan, Ring, Usage};
use serde::Serialize;

use crate::cluster::{Content, Placement, Policy, Rebalances, Shape, Slot, add_racks, rebalance};
use crate::constants::{Constants, Name};
use crate::error::Result;
use crate::pace::{Pace, ReplicaWork};
use crate::random::Random;
use crate::repair::{Copy, WalkTimes, Walks, givers};

/// Change of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Change {
    /// A tenth more racks.
    Grow,
    /// The weight of a rack becomes zero.
    DrainRack,
    /// A rack is gone, and removed from the ring.
    LoseRack,
    /// A node is gone.
    LoseNode,
    /// A device is gone.
    LoseDevice,
    /// A device is gone, and an empty one takes its place under its id: the ring stays.
    ReplaceDevice,
}

impl Change {
    /// All changes.
    pub(crate) const ALL: [Self; 6] = [
        Self::Grow,
        Self::DrainRack,
        Self::LoseRack,
        Self::LoseNode,
        Self::LoseDevice,
        Self::ReplaceDevice,
    ];

    /// Name for a table.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Grow => "add a tenth of the nodes",
            Self::DrainRack => "drain a rack",
            Self::LoseRack => "lose a rack",
            Self::LoseNode => "lose a node",
            Self::LoseDevice => "lose a device",
            Self::ReplaceDevice => "replace a lost device",
        }
    }

    /// Returns true if replicas are lost and have to be made again.
    pub(crate) fn is_loss(self) -> bool {
        !matches!(self, Self::Grow | Self::DrainRack)
    }

    /// Number of racks that the change adds.
    fn added_racks(self, shape: Shape) -> u32 {
        if self == Self::Grow { shape.racks.div_ceil(10) } else { 0 }
    }

    /// First devices of the cluster that the change drains or loses.
    fn leaving(self, shape: Shape) -> u32 {
        match self {
            Self::Grow => 0,
            Self::DrainRack | Self::LoseRack => shape.rack_devices(),
            Self::LoseNode => shape.devices_a_node,
            Self::LoseDevice | Self::ReplaceDevice => 1,
        }
    }

    fn apply(self, builder: &mut Builder, shape: Shape) -> Result<()> {
        if self == Self::ReplaceDevice {
            return Ok(());
        }
        add_racks(builder, shape, self.added_racks(shape))?;
        for device in (0..self.leaving(shape)).map(DeviceId) {
            if self == Self::DrainRack {
                builder.drain(device, 1)?;
            } else {
                builder.remove(device, true)?;
            }
        }
        Ok(())
    }
}

/// Cost of a change.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ChangeCost {
    pub(crate) change: Change,
    pub(crate) policy: &'static str,
    pub(crate) rebalances: Rebalances,
    /// Replicas on other devices than before.
    pub(crate) moved: u64,
    /// Bytes that arrive on devices.
    pub(crate) bytes: f64,
    /// Bytes that are read for them, over the network.
    pub(crate) bytes_read: f64,
    /// Hours until all copies are made, beside clients and without any.
    pub(crate) hours: f64,
    pub(crate) hours_alone: f64,
    /// Hours until half of the copies are made, beside clients.
    pub(crate) half_hours: f64,
    /// Hours that disks of receivers would take, if nothing else bounded them.
    pub(crate) disk_hours: f64,
    /// Hours that the busiest uplink of a rack would take.
    pub(crate) rack_hours: f64,
    /// Fullness of the fullest device while all has come and nothing has gone; none for registers.
    pub(crate) full_peak: Option<f64>,
    /// Hours of the end of each copy, beside clients; sorted.
    #[serde(skip)]
    pub(crate) ends: Vec<f64>,
}

/// Copies of a change, by old holders and by watchers.
#[derive(Clone, Copy)]
struct CopiesOfChange<'a> {
    change: Change,
    copies: &'a [Copy],
    helpers: &'a [Copy],
}

/// Hours of the ends of copies, and the share that helpers made.
struct Ends {
    ends: Vec<f64>,
    helped: f64,
}

impl WalkTimes {
    /// Returns the times of a policy's walks, with so many hours for the copies of a replica.
    fn of(setting: &Setting<'_>, pace: &Pace, copy: f64) -> Self {
        let Setting { constants, shape, placement, .. } = setting;
        let bytes = ReplicaWork::of(constants, pace, placement).bytes;
        Self { copy, ingest: pace.ingest_hours(bytes), ..pace.walk_times(*shape, placement) }
    }
}

/// Rings and constants of one policy.
pub(crate) struct Setting<'a> {
    pub(crate) constants: &'a Constants,
    pub(crate) shape: Shape,
    pub(crate) policy: Policy,
    pub(crate) builder: &'a Builder,
    pub(crate) placement: &'a Placement,
    pub(crate) seed: u64,
}

impl Setting<'_> {
    /// Computes the cost of a change.
    pub(crate) fn cost(&self, change: Change) -> Result<ChangeCost> {
        let mut builder = self.builder.clone();
        let before = builder.ring()?;
        change.apply(&mut builder, self.shape)?;
        let rebalances = rebalance(&mut builder, self.seed)?;
        let after = builder.ring()?;
        let copies = self.copies(change, &before, &after, false);
        let helpers = self.copies(change, &before, &after, true);
        let beside = Pace::new(self.constants, true);
        let alone = Pace::new(self.constants, false);
        let work = ReplicaWork::of(self.constants, &beside, self.placement);
        let both = CopiesOfChange { change, copies: &copies, helpers: &helpers };
        let Ends { mut ends, helped } = self.ends(both, &beside);
        ends.sort_by(f64::total_cmp);
        let alone_ends = self.ends(both, &alone).ends;
        let plan = self.plan(&before, &after);
        let peak = plan.devices.iter().filter_map(|it| it.peak).fold(0.0, f64::max);
        let moved = copies.len() as u64;
        let all = if self.policy.is_coded() { f64::from(self.policy.needed()) } else { 1.0 };
        let needed = if change.is_loss() { all } else { 1.0 + (all - 1.0) * helped };
        Ok(ChangeCost {
            change,
            policy: self.policy.name,
            rebalances,
            moved,
            bytes: moved as f64 * work.bytes,
            bytes_read: moved as f64 * work.bytes * needed,
            hours: ends.last().copied().unwrap_or(0.0),
            hours_alone: alone_ends.into_iter().fold(0.0, f64::max),
            half_hours: ends.get(ends.len() / 2).copied().unwrap_or(0.0),
            disk_hours: disk_hours(&copies, &beside, &work),
            rack_hours: self.rack_hours(&copies, work.bytes, needed),
            full_peak: (self.policy.content == Content::Extents).then_some(peak),
            ends,
        })
    }

    /// Returns the copies that a new ring needs: from the old holders, or with `helped` from the
    /// watchers of all fragments.
    fn copies(&self, change: Change, before: &Ring, after: &Ring, helped: bool) -> Vec<Copy> {
        let lost = if change.is_loss() { change.leaving(self.shape) } else { 0 };
        if change == Change::ReplaceDevice {
            return self.replaced(0);
        }
        let mut copies = Vec::new();
        for partition in after.partitions() {
            let old: Vec<u16> = before.primaries(partition).map(|it| it.0 as u16).collect();
            let new: Vec<u16> = after.primaries(partition).map(|it| it.0 as u16).collect();
            for (replica, to) in new.iter().enumerate().filter(|(at, to)| old[*at] != **to) {
                let is_there = |it: &&u16| u32::from(**it) >= lost;
                let givers: Vec<u16> = if !self.policy.is_coded() {
                    old.iter().filter(is_there).filter(|it| new.contains(it)).copied().collect()
                } else if is_there(&&old[replica]) && !helped {
                    vec![old[replica]]
                } else {
                    let spare = usize::from(self.policy.spare);
                    let before = |steps: usize| old[(replica + old.len() - steps) % old.len()];
                    (1..=spare).map(before).filter(|it| is_there(&it)).collect()
                };
                let copy = Copy { partition: partition.0, receiver: Some(*to), givers };
                copies.push(copy);
            }
        }
        copies
    }

    /// Returns the copies that an empty device needs in the place of a lost one.
    fn replaced(&self, device: u16) -> Vec<Copy> {
        let copy = |slot: &Slot| Copy {
            partition: slot.partition,
            receiver: Some(device),
            givers: givers(self.placement, *slot, 1 << slot.replica),
        };
        self.placement.slots(usize::from(device)).iter().map(copy).collect()
    }

    /// Returns the ends of all copies. A moving fragment comes from its giver or from a helper,
    /// whichever is earlier: they don't relieve each other here.
    fn ends(&self, of: CopiesOfChange<'_>, pace: &Pace) -> Ends {
        let CopiesOfChange { change, copies, helpers } = of;
        let delay = if change.is_loss() { pace.delay_hours() } else { 0.0 };
        let work = ReplicaWork::of(self.constants, pace, self.placement);
        if self.policy.content == Content::Registers {
            let ends = sync_ends(copies, delay, work.move_hours, self.constants, self.shape);
            return Ends { ends, helped: 0.0 };
        }
        let hours = if change.is_loss() { work.repair_hours } else { work.move_hours };
        let mut ends = self.walk_ends(change, copies, delay, WalkTimes::of(self, pace, hours));
        if change.is_loss() || !self.policy.is_coded() {
            return Ends { ends, helped: 0.0 };
        }
        let alone = self.constants.get(Name::GivesAloneHours);
        let times = WalkTimes::of(self, pace, work.repair_hours);
        let others = self.walk_ends(change, helpers, delay + alone, times);
        let mut helped = 0;
        for (end, other) in ends.iter_mut().zip(others) {
            helped += u32::from(other < *end);
            *end = end.min(other);
        }
        let helped = f64::from(helped) / copies.len().max(1) as f64;
        Ends { ends, helped }
    }

    fn walk_ends(&self, change: Change, copies: &[Copy], delay: f64, times: WalkTimes) -> Vec<f64> {
        let racks = self.shape.racks + change.added_racks(self.shape);
        let nodes = (racks * self.shape.nodes_a_rack) as usize;
        let mut random = Random::of_sequence(self.seed, 1);
        Walks::new(self.placement, nodes, times, &mut random).ends(copies, delay)
    }

    fn usage(&self, ring: &Ring) -> BTreeMap<DeviceId, Usage> {
        let capacity = self.constants.get(Name::DeviceBytes);
        let average = capacity * self.constants.get(Name::Fill);
        let each = average / self.placement.replicas_a_device();
        let mut counts: BTreeMap<DeviceId, u64> =
            ring.devices().iter().map(|it| (it.id, 0)).collect();
        for id in ring.partitions().flat_map(|it| ring.primaries(it)) {
            *counts.entry(id).or_default() += 1;
        }
        let usage =
            |count: u64| Usage { used: (count as f64 * each) as u64, capacity: capacity as u64 };
        counts.into_iter().map(|(id, count)| (id, usage(count))).collect()
    }

    fn plan(&self, before: &Ring, after: &Ring) -> RebalancePlan {
        let mut usage = self.usage(before);
        let capacity = self.constants.get(Name::DeviceBytes) as u64;
        for device in after.devices() {
            usage.entry(device.id).or_insert(Usage { used: 0, capacity });
        }
        let rate = self.constants.get(Name::DiskRate) * self.constants.get(Name::IngestShare);
        let pace = MovePace { bytes_per_second: rate as u64, high_water: 0.9 };
        RebalancePlan::new(before, after, &usage, pace)
    }

    /// Returns the hours of the rack that sends or receives most. Givers read `needed` replicas for
    /// each that they send, all but their own from other racks.
    fn rack_hours(&self, copies: &[Copy], bytes: f64, needed: f64) -> f64 {
        let mut flows: BTreeMap<(usize, bool), f64> = BTreeMap::new();
        for copy in copies {
            let to = copy.receiver.map(|it| self.shape.rack_of(it));
            for giver in &copy.givers {
                let from = self.shape.rack_of(*giver);
                let share = bytes / copy.givers.len() as f64;
                *flows.entry((from, true)).or_default() += share * needed;
                *flows.entry((from, false)).or_default() += share * (needed - 1.0);
                *flows.entry((to.unwrap_or(from), false)).or_default() += share;
            }
        }
        let busiest = flows.into_values().fold(0.0, f64::max);
        busiest / self.constants.get(Name::RackRate) / 3600.0
    }
}

/// Returns the hours of the device that receives most.
fn disk_hours(copies: &[Copy], pace: &Pace, work: &ReplicaWork) -> f64 {
    let mut counts: BTreeMap<u16, u32> = BTreeMap::new();
    for device in copies.iter().filter_map(|copy| copy.receiver) {
        *counts.entry(device).or_default() += 1;
    }
    let most = counts.into_values().max().unwrap_or(0);
    pace.ingest_hours(f64::from(most) * work.bytes)
}

/// Returns the ends of copies of registers: devices receive side by side, as many of each node as
/// `sync` serves at a time.
fn sync_ends(
    copies: &[Copy],
    delay: f64,
    hours: f64,
    constants: &Constants,
    shape: Shape,
) -> Vec<f64> {
    let sessions = constants.get(Name::SyncSessions);
    let turns = (f64::from(shape.devices_a_node) / sessions).max(1.0);
    let mut taken: BTreeMap<u16, f64> = BTreeMap::new();
    let end = |copy: &Copy| {
        let taken = taken.entry(copy.receiver.unwrap_or_default()).or_insert(delay);
        *taken += hours * turns;
        *taken
    };
    copies.iter().map(end).collect()
}

#[cfg(test)]
mod tests {
    use super::{Change, Setting};
    use crate::cluster::{Placement, Policy, Shape, build};
    use crate::constants::{Constants, Name};

    const SHAPE: Shape = Shape { racks: 10, nodes_a_rack: 2, devices_a_node: 3 };

    fn check(policy: Policy, check: impl Fn(&Setting<'_>)) {
        let constants = Constants::default();
        let builder = build(SHAPE, policy, 1).unwrap();
        let placement = Placement::new(SHAPE, policy, &builder.ring().unwrap()).unwrap();
        let (constants, builder, placement) = (&constants, &builder, &placement);
        check(&Setting { constants, shape: SHAPE, policy, builder, placement, seed: 1 });
    }

    #[test]
    fn bytes_are_conserved() {
        for policy in [Policy::ALL[0], Policy::ALL[1]] {
            check(policy, |setting| {
                let all = f64::from(SHAPE.devices()) * 16e12 * 0.7;
                for (change, share) in [
                    (Change::Grow, 1.0 / 11.0),
                    (Change::DrainRack, 0.1),
                    (Change::LoseRack, 0.1),
                    (Change::LoseNode, 0.05),
                    (Change::LoseDevice, 1.0 / 60.0),
                    (Change::ReplaceDevice, 1.0 / 60.0),
                ] {
                    let cost = setting.cost(change).unwrap();
                    // All that moves is what the devices that leave held, or what those that
                    // come receive.
                    let moved = cost.bytes / all / share;
                    assert!((moved - 1.0).abs() < 0.02, "{change:?} moves {moved} of it");
                    let before = setting.builder.ring().unwrap();
                    let used: f64 = setting.usage(&before).values().map(|it| it.used as f64).sum();
                    assert!((used / all - 1.0).abs() < 1e-6);
                }
            });
        }
    }

    #[test]
    fn a_plan_gives_each_byte_to_a_device_that_another_lost() {
        check(Policy::ALL[0], |setting| {
            let mut builder = setting.builder.clone();
            let before = builder.ring().unwrap();
            Change::DrainRack.apply(&mut builder, SHAPE).unwrap();
            super::rebalance(&mut builder, 1).unwrap();
            let after = builder.ring().unwrap();
            let plan = setting.plan(&before, &after);
            let bytes_in: u64 = plan.devices.iter().map(|it| it.bytes_in).sum();
            let bytes_out: u64 = plan.devices.iter().map(|it| it.bytes_out).sum();
            assert!(bytes_in.abs_diff(bytes_out) < 1000, "{bytes_in} in, {bytes_out} out");
            let copies = setting.copies(Change::DrainRack, &before, &after, false);
            assert_eq!(copies.len() as u64, plan.replicas);
        });
    }

    #[test]
    fn a_change_takes_less_without_clients() {
        check(Policy::ALL[0], |setting| {
            for change in Change::ALL {
                let cost = setting.cost(change).unwrap();
                assert!(cost.hours > 0.0 && cost.hours_alone < cost.hours, "{cost:?}");
                assert!(cost.half_hours <= cost.hours && cost.ends.len() as u64 == cost.moved);
                assert!(cost.full_peak.unwrap() >= 0.7, "{cost:?}");
            }
        });
    }

    #[test]
    fn a_repair_of_fragments_reads_the_needed_ones() {
        check(Policy::ALL[1], |setting| {
            let lost = setting.cost(Change::LoseDevice).unwrap();
            assert!((lost.bytes_read / lost.bytes - 4.0).abs() < 1e-9);
            // A move reads one fragment, unless watchers help.
            let drained = setting.cost(Change::DrainRack).unwrap();
            let ratio = drained.bytes_read / drained.bytes;
            assert!((1.0..=4.0).contains(&ratio), "{ratio}");
            let alone = setting.constants.with(Name::GivesAloneHours, 1e9);
            let alone = Setting { constants: &alone, ..*setting };
            let given = alone.cost(Change::DrainRack).unwrap();
            assert!((given.bytes_read / given.bytes - 1.0).abs() < 1e-9);
            assert!(drained.hours < given.hours, "{} of {}", drained.hours, given.hours);
        });
        assert!(Constants::default().get(Name::Fill) < 1.0);
    }
}
