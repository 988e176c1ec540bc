//! Random clusters with random histories: after each rebalance all guarantees of a ring are checked
//! by counting.

use std::collections::{BTreeMap, BTreeSet};

use martlet_protocol::{DeviceId, Partition};

use crate::builder::Builder;
use crate::builder::edit::NewDevice;
use crate::builder::rebalance::RebalanceContext;
use crate::device::Device;
use crate::figures::Figures;
use crate::ring::Ring;
use crate::testing::{TestRng, builder, new_device};

const HISTORIES: u64 = 300;
const EPOCHS: u32 = 10;
const HOUR_MS: u64 = 3_600_000;

/// A cluster with the state of its history.
struct HistoryCluster {
    builder: Builder,
    lots: TestRng,
    now_ms: u64,
    disks: u32,
    weights: &'static [f64],
}

impl HistoryCluster {
    fn found(seed: u64) -> Self {
        let mut lots = TestRng::new(seed);
        let power = u8::try_from(7 + lots.below(4)).unwrap();
        let mut builder = builder(power, lots.one_of(&[1.0, 2.0, 2.5, 3.0, 3.0, 3.0, 4.0]));
        builder.set_overload(lots.one_of(&[0.0, 0.0, 0.1, 10.0])).unwrap();
        builder.set_min_part_hours(1);
        let weights: &[f64] =
            lots.one_of(&[&[100.0][..], &[100.0], &[100.0, 200.0, 800.0], &[93.3, 100.0, 171.7]]);
        let mut cluster = Self { builder, lots, now_ms: HOUR_MS, disks: 0, weights };
        for region in 1..=cluster.lots.one_of(&[1, 1, 2]) {
            for zone in 1..=1 + cluster.lots.below(4) {
                for node in 1..=1 + cluster.lots.below(3) {
                    let disks = 1 + cluster.lots.below(6);
                    cluster.add(region, zone, node, disks);
                }
            }
        }
        cluster.add(1, 1, 1, 4);
        cluster
    }

    fn add(&mut self, region: u32, zone: u32, node: u32, count: u32) {
        for _ in 0..count {
            let weight = self.lots.one_of(self.weights);
            self.disks += 1;
            let new: NewDevice = new_device(region, zone, node, self.disks, weight);
            self.builder.add(new).unwrap();
        }
    }

    fn any_device(&mut self) -> Device {
        let devices: Vec<Device> = self.builder.devices().cloned().collect();
        let at = self.lots.below(u32::try_from(devices.len()).unwrap());
        devices[at as usize].clone()
    }

    fn has_devices_to_spare(&self) -> bool {
        let live = self.builder.devices().filter(|device| device.weight > 0.0).count();
        live > 8
    }

    /// Makes a random change. Returns its description and the removed devices.
    fn live(&mut self) -> (String, BTreeSet<DeviceId>) {
        let mut dead = BTreeSet::new();
        let what = match self.lots.below(10) {
            0 | 1 => {
                let device = self.any_device();
                let node: u32 = device.node.name[1..].parse().unwrap();
                self.add(device.region, device.zone, node, 2);
                format!("two devices for {device}'s node")
            }
            2 => {
                let device = self.any_device();
                self.add(device.region, device.zone, 7, 3);
                format!("a node for {device}'s zone")
            }
            3 => {
                self.add(1, 9, 1, 3);
                "a small new zone".to_owned()
            }
            4 | 5 if self.has_devices_to_spare() => {
                for _ in 0..=self.lots.below(3) {
                    let device = self.any_device();
                    self.builder.remove(device.id, true).unwrap();
                    dead.insert(device.id);
                }
                format!("{dead:?} died")
            }
            6 if self.has_devices_to_spare() => {
                let device = self.any_device();
                if device.weight > 0.0 {
                    self.builder.drain(device.id, 3).unwrap();
                }
                format!("{device} is drained")
            }
            7 => {
                let (device, weight) = (self.any_device(), self.lots.one_of(self.weights));
                self.builder.set_weight(device.id, weight).unwrap();
                format!("{device} gets weight {weight}")
            }
            8 if self.builder.settings().part_power < 10 => {
                self.builder.increase_part_power().unwrap();
                "twice as many partitions".to_owned()
            }
            _ => "nothing".to_owned(),
        };
        (what, dead)
    }
}

fn replicas(ring: &Ring, partition: Partition) -> Vec<DeviceId> {
    ring.primaries(partition).collect()
}

/// Checks that no device holds two replicas of a partition, and no removed device holds any.
fn check_whole(ring: &Ring) {
    for partition in ring.partitions() {
        let holders = replicas(ring, partition);
        let distinct: BTreeSet<&DeviceId> = holders.iter().collect();
        assert_eq!(distinct.len(), holders.len(), "{partition:?} is on {holders:?}");
        assert!(holders.iter().all(|id| ring.device(*id).is_some()));
    }
}

/// Checks that at most one replica of each partition moved, and none if one was lost or is still
/// moving; and that every moved replica lists its previous holder.
fn check_moves(old: &Ring, new: &Ring, dead: &BTreeSet<DeviceId>) {
    let shift = new.part_power() - old.part_power();
    let mut named = BTreeMap::new();
    for step in new.moves() {
        named.insert((step.partition, usize::from(step.replica)), step.previous);
    }
    for partition in new.partitions() {
        let was = Partition(partition.0 >> shift);
        let (before, after) = (replicas(old, was), replicas(new, partition));
        let changed: Vec<usize> =
            (0..before.len()).filter(|at| before[*at] != after[*at]).collect();
        let lost = before.iter().filter(|id| dead.contains(id)).count();
        let departed = changed.iter().filter(|at| !dead.contains(&before[**at])).count();
        assert!(departed <= 1, "{partition:?}: {before:?} became {after:?}");
        assert!(lost == 0 || departed == 0, "{partition:?}: {before:?} became {after:?}");
        let was_moving = (0..before.len()).any(|at| old.previous(was, at).is_some());
        assert!(!was_moving || departed == 0, "{partition:?} moved twice");
        for at in 0..before.len() {
            let expected = match (old.previous(was, at), changed.contains(&at)) {
                (Some(earlier), _) if earlier != after[at] => Some(earlier),
                (_, true) => Some(before[at]),
                (_, false) => None,
            };
            assert_eq!(named.remove(&(partition, at)), expected, "{partition:?} replica {at}");
        }
    }
    assert!(named.is_empty(), "moves that didn't happen: {named:?}");
}

/// Computes each device's share independently: by weight, but at most one replica of every
/// partition.
fn shares(ring: &Ring) -> BTreeMap<DeviceId, f64> {
    let (mut capped, mut rest) = (BTreeSet::new(), ring.replicas_exact());
    loop {
        let free = ring.devices().iter().filter(|device| !capped.contains(&device.id));
        let weight: f64 = free.clone().map(|device| device.weight).sum();
        let full = free.clone().find(|device| device.weight / weight * rest > 1.0);
        let Some(full) = full else {
            let part = |device: &Device| {
                if capped.contains(&device.id) { 1.0 } else { device.weight / weight * rest }
            };
            return ring.devices().iter().map(|device| (device.id, part(device))).collect();
        };
        capped.insert(full.id);
        rest -= 1.0;
    }
}

/// Checks that each device holds its share, when nothing is left to do and overload is zero.
fn check_balance(ring: &Ring) {
    let mut held: BTreeMap<DeviceId, u32> = BTreeMap::new();
    for id in ring.partitions().flat_map(|partition| ring.primaries(partition)) {
        *held.entry(id).or_default() += 1;
    }
    let parts = f64::from(1u32 << ring.part_power());
    for (id, share) in shares(ring) {
        let (has, share) = (f64::from(held.get(&id).copied().unwrap_or(0)), share * parts);
        // Whole replicas are divided among regions, zones, nodes, devices: each level may round
        // once.
        let slack = (share * 0.01).max(2.0);
        assert!((has - share).abs() <= slack, "{id} holds {has} and should hold {share}");
    }
}

/// Rebalances until the reported number of rebalances is done, and checks that number.
fn settle_down(cluster: &mut HistoryCluster, mut to_go: u32, seed: u64) {
    while to_go > 0 {
        cluster.builder.settle().unwrap();
        let before = cluster.builder.ring();
        let report =
            cluster.builder.rebalance(RebalanceContext { now_ms: cluster.now_ms, seed }).unwrap();
        let after = cluster.builder.ring().unwrap();
        if let Ok(before) = before {
            check_moves(&before, &after, &BTreeSet::new());
        }
        assert!(report.rebalances_to_go < to_go, "{report:?}, {to_go} before");
        to_go = report.rebalances_to_go;
    }
    cluster.builder.settle().unwrap();
    let (epoch, was) = (cluster.builder.epoch(), cluster.builder.ring().unwrap());
    let idle = RebalanceContext { now_ms: cluster.now_ms, seed: seed + 1 };
    let report = cluster.builder.rebalance(idle).unwrap();
    assert_eq!((report.moved, report.placed, report.epoch), (0, 0, epoch), "nothing changed");
    assert_eq!(was.hash(), cluster.builder.ring().unwrap().hash());
}

/// True if each zone and node has devices for its replicas at the greatest possible distance.
fn has_room(ring: &Ring) -> bool {
    let live: Vec<&Device> = ring.devices().iter().filter(|device| device.weight > 0.0).collect();
    has_room_below(&live, ring.replicas(), 0)
}

fn has_room_below(devices: &[&Device], most: usize, level: usize) -> bool {
    let mut domains: BTreeMap<(u32, String), Vec<&Device>> = BTreeMap::new();
    for device in devices {
        let key = match level {
            0 => (device.region, String::new()),
            1 => (device.zone, String::new()),
            _ => (0, device.node.name.clone()),
        };
        domains.entry(key).or_default().push(device);
    }
    let each = most.div_ceil(domains.len());
    let fits = |domain: &Vec<&Device>| {
        domain.len() >= each && (level == 2 || has_room_below(domain, each, level + 1))
    };
    domains.values().all(fits)
}

fn check_at_rest(cluster: &HistoryCluster) {
    let (ring, settings) = (cluster.builder.ring().unwrap(), cluster.builder.settings());
    if settings.overload == 0.0 {
        check_balance(&ring);
    }
    let figures = Figures::of_ring(&ring);
    if settings.overload >= cluster.builder.required_overload() && has_room(&ring) {
        assert!(figures.dispersion == 0.0, "{:?}", figures.crowded);
    }
}

/// Runs one cluster from its creation to its last epoch.
fn history(seed: u64) {
    let mut cluster = HistoryCluster::found(seed);
    let first = cluster.builder.rebalance(RebalanceContext { now_ms: HOUR_MS, seed }).unwrap();
    settle_down(&mut cluster, first.rebalances_to_go, seed);
    check_at_rest(&cluster);
    let (mut too_soon, mut old) = (false, cluster.builder.ring().unwrap());
    for _ in 0..EPOCHS {
        let (what, dead) = cluster.live();
        // Not twice in a row: half an hour and half an hour are an hour.
        too_soon = !too_soon && cluster.lots.below(3) == 0;
        println!(
            "seed {seed}, epoch {}: {what}{}",
            old.epoch(),
            if too_soon { ", soon" } else { "" }
        );
        cluster.now_ms += if too_soon { HOUR_MS / 2 } else { 2 * HOUR_MS };
        let occasion = RebalanceContext { now_ms: cluster.now_ms, seed };
        let Ok(report) = cluster.builder.rebalance(occasion) else {
            assert!(too_soon && dead.is_empty(), "refused without need");
            continue;
        };
        let new = cluster.builder.ring().unwrap();
        check_whole(&new);
        check_moves(&old, &new, &dead);
        old.check_successor(&new, |_| false).unwrap();
        if cluster.lots.below(2) == 0 {
            settle_down(&mut cluster, report.rebalances_to_go, seed);
            check_at_rest(&cluster);
        }
        old = cluster.builder.ring().unwrap();
    }
}

#[test]
fn rings_keep_their_promises_through_random_histories() {
    for seed in 0..HISTORIES {
        history(seed);
    }
}
