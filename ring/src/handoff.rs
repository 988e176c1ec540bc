//! Order of handoffs: the devices that stand in for a partition's primaries.
//!
//! Devices have virtual nodes on a consistent-hash ring, in proportion to their weights, and each
//! partition has its own order of devices there. From this order, the first device of each unused
//! region is taken, until all regions are used; then of unused zones, then of unused nodes, then
//! the rest. Devices of weight zero come last: they should receive no writes, but a search for a
//! lost copy should include them.
//!
//! The order is part of the format, because it determines the location of copies on handoffs. So
//! the hash has fixed keys and little-endian input, independent of the standard library and the
//! machine. Golden tests fix its values.

use std::hash::{Hash, Hasher};

use consistent_hash::{Candidates, Node, RingHash, StaticHashRing};
use martlet_protocol::{DeviceId, Partition};

use crate::device::Device;

/// Virtual nodes of a device whose weight is the ring's handoff unit.
const VIRTUAL_NODES: f64 = 128.0;
/// Most virtual nodes of one device: bounds the memory that a wrong weight can take.
const VIRTUAL_NODES_MAX: f64 = 16_384.0;

/// Consistent-hash ring of a cluster's devices, with each device's domains.
#[derive(Debug)]
pub(crate) struct HandoffOrder {
    circle: StaticHashRing<'static, DeviceId, u16, FixedHash>,
    domains: Vec<[u16; 3]>,
    /// For each tier, the domains that have weight.
    weighty: [Vec<bool>; 3],
    domain_counts: [usize; 3],
    weightless: Vec<u16>,
}

impl HandoffOrder {
    /// Creates the order of `devices`; a device of weight `unit` gets 128 virtual nodes.
    pub(crate) fn new(devices: &[Device], unit: f64) -> Self {
        let (domains, weighty) = domains_of(devices);
        let domain_counts = [0, 1, 2].map(|tier| weighty[tier].iter().filter(|w| **w).count());
        let slots = || (0u16..).zip(devices);
        let nodes = slots().filter(|(_, device)| device.weight > 0.0).map(|(slot, device)| {
            let quantity = virtual_nodes(device.weight, unit);
            Node { key: device.id, value: slot, quantity }
        });
        let circle = StaticHashRing::new(FixedHash, nodes);
        let weightless = slots().filter(|(_, d)| d.weight <= 0.0).map(|(slot, _)| slot).collect();
        Self { circle, domains, weighty, domain_counts, weightless }
    }

    /// Returns the handoffs of a partition with these primaries, as slots, best first.
    pub(crate) fn handoffs<'a>(&'a self, partition: Partition, primaries: &[u16]) -> Handoffs<'a> {
        let mut handoffs = Handoffs {
            order: self,
            candidates: self.circle.calc_candidates(&partition),
            passed_over: Vec::new(),
            rescan: 0,
            tier: 0,
            used: [Vec::new(), Vec::new(), Vec::new()],
            taken: primaries.to_vec(),
            weightless: self.weightless.iter(),
        };
        for &slot in primaries {
            handoffs.mark(slot);
        }
        handoffs
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to a small positive range just before"
)]
fn virtual_nodes(weight: f64, unit: f64) -> usize {
    (VIRTUAL_NODES * weight / unit).round().clamp(1.0, VIRTUAL_NODES_MAX) as usize
}

/// Numbers the regions, zones and nodes. Returns three numbers for each device, and for each number
/// true if the domain has weight.
fn domains_of(devices: &[Device]) -> (Vec<[u16; 3]>, [Vec<bool>; 3]) {
    let mut domains = vec![[0; 3]; devices.len()];
    let mut weighty = [Vec::new(), Vec::new(), Vec::new()];
    for tier in 0..3 {
        let path = |device: &'_ Device| {
            let (region, zone) = device.zone_path();
            match tier {
                0 => (region, 0, String::new()),
                1 => (region, zone, String::new()),
                _ => (region, zone, device.node.name.clone()),
            }
        };
        let mut known: Vec<_> = devices.iter().map(path).collect();
        known.sort_unstable();
        known.dedup();
        weighty[tier] = vec![false; known.len()];
        for (domain, device) in domains.iter_mut().zip(devices) {
            let at = known.partition_point(|other| *other < path(device));
            domain[tier] = u16::try_from(at).expect("no more domains than devices");
            weighty[tier][at] |= device.weight > 0.0;
        }
    }
    (domains, weighty)
}

/// Handoffs of one partition: every device that isn't a primary, once, best first.
pub(crate) struct Handoffs<'a> {
    order: &'a HandoffOrder,
    candidates: Candidates<'a, DeviceId, u16>,
    /// Candidates skipped in earlier passes, in order.
    passed_over: Vec<u16>,
    /// Number of entries of `passed_over` that this pass has checked.
    rescan: usize,
    /// Pass: 0 to 2 take only devices of unused regions, zones, nodes; 3 takes any.
    tier: usize,
    used: [Vec<u16>; 3],
    taken: Vec<u16>,
    weightless: std::slice::Iter<'a, u16>,
}

impl Handoffs<'_> {
    /// Marks the region, zone and node of a device as used. Domains without weight aren't counted:
    /// they don't occur on the hash ring, and would end a pass early.
    fn mark(&mut self, slot: u16) {
        let domains = self.order.domains[usize::from(slot)];
        for (tier, domain) in domains.into_iter().enumerate() {
            let used = &mut self.used[tier];
            if self.order.weighty[tier][usize::from(domain)] && !used.contains(&domain) {
                used.push(domain);
            }
        }
    }

    /// Returns the next candidate that this pass accepts.
    fn next_of_pass(&mut self) -> Option<u16> {
        while self.rescan < self.passed_over.len() {
            let slot = self.passed_over[self.rescan];
            if is_fresh(self.order, &self.used, self.tier, slot) {
                self.passed_over.remove(self.rescan);
                return Some(slot);
            }
            self.rescan += 1;
        }
        for node in self.candidates.by_ref() {
            let slot = node.value;
            if self.taken.contains(&slot) {
                continue;
            }
            if is_fresh(self.order, &self.used, self.tier, slot) {
                return Some(slot);
            }
            self.passed_over.push(slot);
            self.rescan = self.passed_over.len();
        }
        None
    }
}

/// True if the device's region, zone or node (by `tier`) is unused.
fn is_fresh(order: &HandoffOrder, used: &[Vec<u16>; 3], tier: usize, slot: u16) -> bool {
    tier == 3 || !used[tier].contains(&order.domains[usize::from(slot)][tier])
}

impl Iterator for Handoffs<'_> {
    type Item = u16;

    fn next(&mut self) -> Option<u16> {
        while self.tier <= 3 {
            let exhausted =
                self.tier < 3 && self.used[self.tier].len() >= self.order.domain_counts[self.tier];
            if !exhausted && let Some(slot) = self.next_of_pass() {
                self.mark(slot);
                return Some(slot);
            }
            self.tier += 1;
            self.rescan = 0;
        }
        self.weightless.by_ref().copied().find(|slot| !self.taken.contains(slot))
    }
}

/// BLAKE3 with a fixed key over little-endian bytes.
#[derive(Clone, Copy, Debug)]
struct FixedHash;

const KEY: &[u8; 32] = b"martlet ring handoff order, v1..";

impl RingHash for FixedHash {
    fn hash_item<T: Hash>(&self, item: &T) -> u64 {
        let mut hasher = LittleEndian(blake3::Hasher::new_keyed(KEY));
        item.hash(&mut hasher);
        hasher.finish()
    }

    fn hash_vnode<K: Hash>(&self, node_key: &K, vnode_seq: usize) -> u64 {
        let mut hasher = LittleEndian(blake3::Hasher::new_keyed(KEY));
        node_key.hash(&mut hasher);
        hasher.write_u64(vnode_seq as u64);
        hasher.finish()
    }
}

/// Hasher with machine-independent byte order.
struct LittleEndian(blake3::Hasher);

impl Hasher for LittleEndian {
    fn finish(&self) -> u64 {
        let mut first = [0; 8];
        first.copy_from_slice(&self.0.finalize().as_bytes()[..8]);
        u64::from_le_bytes(first)
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn write_u32(&mut self, number: u32) {
        self.write(&number.to_le_bytes());
    }

    fn write_u64(&mut self, number: u64) {
        self.write(&number.to_le_bytes());
    }
}
