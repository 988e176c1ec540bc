//! Simulation of failures and repairs, event by event, on the replica sets of a real ring.
//!
//! Devices, nodes and racks are lost at random with all they hold. A partition is lost when more of
//! its replicas are missing than it can spare. Two estimates come from one run:
//!
//! * **exposed**: the hours in which partitions are one replica away from their loss, times the
//!   rate at which one of their remaining replicas fails. It needs no loss to be seen.
//! * **counted**: partitions that were lost. It needs more failures than happen: with all rates
//!   times `acceleration`, losses happen `acceleration`^(spare + 1) times as often, as long as few
//!   replicas are missing at a time.
//!
//! Losses of racks are rare. They happen `rack_boost` times as often as they should, and each
//! period counts by the likelihood of its number of such losses: importance sampling.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::ops::Range;

use crate::cluster::{Placement, Slot};
use crate::constants::{Constants, Name};
use crate::estimate::Estimate;
use crate::random::Random;
use crate::repair::{Copy, Walks, givers};

/// Hours of a year.
pub(crate) const YEAR_H: f64 = 8766.0;
/// Hours of a period before its losses count, so that it doesn't begin with complete replicas.
const WARM_UP_H: f64 = 60.0 * 24.0;
/// First of the random sequences of years; others are for walks.
const FIRST_YEAR: u64 = 1000;

/// Failures in an hour, of one device, node or rack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FailureRates {
    pub(crate) device: f64,
    pub(crate) node: f64,
    pub(crate) rack: f64,
}

impl FailureRates {
    /// Returns the rates of the constants.
    pub(crate) fn of(constants: &Constants) -> Self {
        let hourly = |name| constants.get(name) / YEAR_H;
        Self {
            device: hourly(Name::DeviceFailures),
            node: hourly(Name::NodeFailures),
            rack: hourly(Name::RackFailures),
        }
    }

    /// Returns the rate at which one replica is lost.
    pub(crate) fn of_replica(self) -> f64 {
        self.device + self.node + self.rack
    }

    fn times(self, factor: f64) -> Self {
        Self { device: self.device * factor, node: self.node * factor, rack: self.rack * factor }
    }
}

/// Times of repairs.
#[derive(Clone, Debug)]
pub(crate) enum Repairs {
    /// Hours from each failure to its repair.
    #[cfg(test)]
    Fixed(f64),
    /// Walks of workers that copy extents, from `delay` hours after a failure on.
    Walks { delay: f64, walks: Walks },
    /// Registers of each device arrive one partition after the other, in `hours` for all.
    Sync { delay: f64, hours: f64 },
}

/// Setting of an experiment.
#[derive(Clone, Debug)]
pub(crate) struct Experiment<'a> {
    pub(crate) placement: &'a Placement,
    pub(crate) rates: FailureRates,
    pub(crate) repairs: Repairs,
    pub(crate) acceleration: f64,
    pub(crate) rack_boost: f64,
    pub(crate) seed: u64,
}

/// Results of an experiment.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// Lost partitions a year at the true rates, by exposed hours.
    pub(crate) exposed: Estimate,
    /// As above, by losses that were seen.
    pub(crate) counted: Estimate,
    /// Losses that were seen.
    pub(crate) losses: u64,
    /// Mean hours from the failure of a replica to its repair.
    pub(crate) repair_h: f64,
}

impl Experiment<'_> {
    /// Simulates independent years; `progress` is called after each.
    pub(crate) fn run(&self, years: u32, mut progress: impl FnMut()) -> Outcome {
        let spare = u32::from(self.placement.policy.spare);
        let scale = 1.0 / self.acceleration.powi(spare as i32 + 1);
        let (mut exposed, mut counted) = (Vec::new(), Vec::new());
        let mut sums = Sums::default();
        let mut state = State::new(self.placement);
        for year in 0..years {
            let result = self.year(&mut state, u64::from(year));
            exposed.push(result.exposed * scale * result.weight);
            counted.push(result.lost as f64 * scale * result.weight);
            sums.lost += result.lost;
            sums.repairs += result.repairs * result.weight;
            sums.repair_h += result.repair_h * result.weight;
            progress();
        }
        Outcome {
            exposed: Estimate::of_samples(&exposed),
            counted: Estimate::of_samples(&counted),
            losses: sums.lost,
            repair_h: sums.repair_h / sums.repairs.max(f64::MIN_POSITIVE),
        }
    }

    fn year(&self, state: &mut State<'_>, year: u64) -> Year {
        state.clear();
        let mut random = Random::of_sequence(self.seed, FIRST_YEAR + year);
        let mut repairs = self.repairs.clone();
        let true_rates = self.rates.times(self.acceleration);
        let rates = FailureRates { rack: true_rates.rack * self.rack_boost, ..true_rates };
        let shape = self.placement.shape;
        let counts = [shape.devices(), shape.nodes(), shape.racks].map(f64::from);
        let totals = [rates.device * counts[0], rates.node * counts[1], rates.rack * counts[2]];
        let total: f64 = totals.iter().sum();
        let end = WARM_UP_H + YEAR_H;
        let mut racks = 0;
        let mut now = random.exponential(total);
        while now < end {
            state.advance(now);
            let draw = random.unit() * total;
            let devices = if draw <= totals[0] {
                draw_devices(&mut random, shape.devices(), 1)
            } else if draw <= totals[0] + totals[1] {
                draw_devices(&mut random, shape.nodes(), shape.devices_a_node)
            } else {
                racks += 1;
                draw_devices(&mut random, shape.racks, shape.rack_devices())
            };
            let fresh = state.fail(devices);
            repairs.schedule(state, &fresh, now);
            now += random.exponential(total);
        }
        state.advance(end);
        let alive = f64::from(self.placement.policy.needed());
        let expected = true_rates.rack * counts[2] * end;
        state.result(
            alive * true_rates.of_replica(),
            racks,
            RackWeights { boost: self.rack_boost, expected },
        )
    }
}

/// Parameters of the likelihood of a number of lost racks.
#[derive(Clone, Copy)]
struct RackWeights {
    boost: f64,
    expected: f64,
}

fn draw_devices(random: &mut Random, of: u32, devices_each: u32) -> Range<usize> {
    let first = random.below(of) as usize * devices_each as usize;
    first..first + devices_each as usize
}

#[derive(Default)]
struct Sums {
    lost: u64,
    repairs: f64,
    repair_h: f64,
}

/// Result of a simulated year.
struct Year {
    exposed: f64,
    lost: u64,
    repairs: f64,
    repair_h: f64,
    weight: f64,
}

/// End of a repair.
#[derive(Clone, Copy, Debug, PartialEq)]
struct RepairEnd {
    at: f64,
    slot: Slot,
    serial: u32,
}

impl Eq for RepairEnd {}

impl Ord for RepairEnd {
    fn cmp(&self, other: &Self) -> Ordering {
        self.at.total_cmp(&other.at).then(self.slot.cmp(&other.slot))
    }
}

impl PartialOrd for RepairEnd {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Missing replicas, and repairs that are under way.
struct State<'a> {
    placement: &'a Placement,
    /// For each partition, a bit for each missing replica.
    missing: Vec<u16>,
    /// For each partition, the number of its losses: repairs of lost partitions are void.
    serials: Vec<u32>,
    ends: BinaryHeap<Reverse<RepairEnd>>,
    now: f64,
    /// Partitions that one more failure would lose.
    critical: u64,
    critical_h: f64,
    lost: u64,
    repairs: u64,
    repair_h: f64,
}

impl<'a> State<'a> {
    fn new(placement: &'a Placement) -> Self {
        let partitions = placement.partitions() as usize;
        Self {
            placement,
            missing: vec![0; partitions],
            serials: vec![0; partitions],
            ends: BinaryHeap::new(),
            now: 0.0,
            critical: 0,
            critical_h: 0.0,
            lost: 0,
            repairs: 0,
            repair_h: 0.0,
        }
    }

    /// Completes all replicas.
    fn clear(&mut self) {
        self.missing.fill(0);
        self.serials.fill(0);
        self.ends.clear();
        (self.now, self.critical, self.critical_h) = (0.0, 0, 0.0);
        (self.lost, self.repairs, self.repair_h) = (0, 0, 0.0);
    }

    fn is_critical(&self, partition: u32) -> bool {
        self.missing[partition as usize].count_ones() == u32::from(self.placement.policy.spare)
    }

    /// Lets repairs end up to an hour.
    fn advance(&mut self, until: f64) {
        while let Some(Reverse(end)) = self.ends.peek().copied() {
            if end.at > until {
                break;
            }
            self.ends.pop();
            self.pass(end.at);
            let partition = end.slot.partition;
            if self.serials[partition as usize] != end.serial {
                continue;
            }
            self.critical -= u64::from(self.is_critical(partition));
            self.missing[partition as usize] &= !(1 << end.slot.replica);
            self.critical += u64::from(self.is_critical(partition));
        }
        self.pass(until);
    }

    fn pass(&mut self, until: f64) {
        let counted = until.max(WARM_UP_H) - self.now.max(WARM_UP_H);
        self.critical_h += self.critical as f64 * counted;
        self.now = until;
    }

    /// Loses devices. Returns replicas that have to be repaired.
    fn fail(&mut self, devices: Range<usize>) -> Vec<Slot> {
        let placement = self.placement;
        let mut fresh = Vec::new();
        for slot in devices.flat_map(|device| placement.slots(device)) {
            let (partition, bit) = (slot.partition as usize, 1 << slot.replica);
            if self.missing[partition] & bit != 0 {
                continue;
            }
            if self.is_critical(slot.partition) {
                self.critical -= 1;
                self.lost += u64::from(self.now >= WARM_UP_H);
                // A lost partition counts once, and goes on empty.
                self.missing[partition] = 0;
                self.serials[partition] += 1;
                continue;
            }
            self.missing[partition] |= bit;
            self.critical += u64::from(self.is_critical(slot.partition));
            fresh.push(*slot);
        }
        fresh.retain(|slot| self.missing[slot.partition as usize] & (1 << slot.replica) != 0);
        fresh
    }

    fn push(&mut self, slot: Slot, at: f64) {
        self.repairs += 1;
        self.repair_h += at - self.now;
        let serial = self.serials[slot.partition as usize];
        self.ends.push(Reverse(RepairEnd { at, slot, serial }));
    }

    fn result(&self, failures: f64, racks: u32, weights: RackWeights) -> Year {
        // Ratio of two Poisson probabilities of this number of losses.
        let RackWeights { boost, expected } = weights;
        let weight = boost.powi(-(racks as i32)) * (expected * (boost - 1.0)).exp();
        Year {
            exposed: self.critical_h * failures,
            lost: self.lost,
            repairs: self.repairs as f64,
            repair_h: self.repair_h,
            weight,
        }
    }
}

impl Repairs {
    fn schedule(&mut self, state: &mut State<'_>, fresh: &[Slot], now: f64) {
        match self {
            #[cfg(test)]
            Self::Fixed(hours) => {
                for slot in fresh {
                    state.push(*slot, now + *hours);
                }
            }
            Self::Walks { delay, walks } => {
                let copy = |slot: &Slot| Copy {
                    partition: slot.partition,
                    receiver: None,
                    givers: givers(state.placement, *slot, state.missing[slot.partition as usize]),
                };
                let copies: Vec<Copy> = fresh.iter().map(copy).collect();
                let ends = walks.ends(&copies, now + *delay);
                for (slot, end) in fresh.iter().zip(ends) {
                    state.push(*slot, end);
                }
            }
            Self::Sync { delay, hours } => {
                let all = f64::from(state.placement.partitions());
                for slot in fresh {
                    let share = f64::from(slot.partition + 1) / all;
                    state.push(*slot, now + *delay + share * *hours);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
