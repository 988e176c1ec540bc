//! The ring as used by servers: immutable and shared, with fast lookups.

use std::sync::OnceLock;

use martlet_protocol::tree::Span;
use martlet_protocol::{DeviceId, Partition, PolicyId, Redundancy};

use crate::device::Device;
use crate::error::{Error, Result};
use crate::handoff::HandoffOrder;
use crate::table::{DEVICES_MAX, Table};

/// Hash of a ring file; a ring contains its parent's hash (rule P3).
pub type RingHash = [u8; 32];

/// Sixteen random bytes shared by all rings of one builder.
pub type Lineage = [u8; 16];

/// A replica being moved: until the move is settled, both holders count (rule P2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Move {
    /// Partition of the replica.
    pub partition: Partition,
    /// Replica number.
    pub replica: u8,
    /// Previous holder; possibly no longer in the ring.
    pub previous: DeviceId,
    /// Change that started the move.
    pub change: u64,
}

/// Identity of a ring: its epoch, policy and predecessors.
#[derive(Clone, Debug, PartialEq)]
pub struct RingIdentity {
    /// Number of the ring; rises by one with every ring that is written.
    pub epoch: u64,
    /// Id of the storage policy that the ring places.
    pub policy: PolicyId,
    /// Name of the storage policy.
    pub policy_name: String,
    /// Copies or fragments; replica i holds fragment i.
    pub redundancy: Redundancy,
    /// Number of the last change; rises by one with every ring whose replicas differ from its
    /// parent's (rule P2).
    pub change: u64,
    /// Lineage: a ring may only replace rings of this lineage.
    pub lineage: Lineage,
    /// Hash of the parent ring; zeros for the first ring.
    pub parent: RingHash,
    /// Weight of a device with 128 virtual nodes in the order of handoffs.
    pub handoff_unit: f64,
    /// Id of the next new device; all lower ids were used.
    pub next_id: u32,
}

/// Assignment of partitions to primaries, with the order of handoffs.
///
/// Immutable: share a ring in an `Arc`, and swap the `Arc` when a newer ring arrives.
#[derive(Debug)]
pub struct Ring {
    pub(crate) identity: RingIdentity,
    pub(crate) devices: Vec<Device>,
    pub(crate) table: Table,
    pub(crate) moves: Vec<Move>,
    /// Last change whose moves are open; none without moves.
    pub(crate) last_open: Option<u64>,
    ids: Vec<DeviceId>,
    hash: OnceLock<RingHash>,
    handoffs: OnceLock<HandoffOrder>,
}

impl Ring {
    /// Creates a ring from parts that must match: devices in the order of ids, slots of existing
    /// devices, moves in the order of partitions.
    pub(crate) fn from_parts(
        identity: RingIdentity,
        devices: Vec<Device>,
        table: Table,
        moves: Vec<Move>,
    ) -> Result<Self> {
        if devices.is_empty() || devices.len() > DEVICES_MAX {
            let message = format!("a ring has 1 to {DEVICES_MAX} devices, not {}", devices.len());
            return Err(Error::invalid(message));
        }
        if !devices.is_sorted_by(|a, b| a.id < b.id) {
            return Err(Error::corrupt("the ring's devices are not sorted by id"));
        }
        let unknown = |slot: &u16| usize::from(*slot) >= devices.len();
        if let Some((partition, _)) = table.rows().find(|(_, row)| row.iter().any(unknown)) {
            let message = format!("partition {partition} has a replica on no known device");
            return Err(Error::corrupt(message));
        }
        if !moves.is_sorted_by(|a, b| (a.partition, a.replica) < (b.partition, b.replica)) {
            return Err(Error::corrupt("the ring's moves are not sorted"));
        }
        let is_elsewhere = |step: &Move| {
            let Partition(partition) = step.partition;
            partition >= table.parts() || usize::from(step.replica) >= table.replicas_of(partition)
        };
        if moves.iter().any(is_elsewhere) {
            return Err(Error::corrupt("the ring moves a replica that doesn't exist"));
        }
        check_redundancy(identity.redundancy, table.replicas_exact())?;
        let ids = devices.iter().map(|device| device.id).collect();
        let last_open = moves.iter().map(|step| step.change).max();
        let (hash, handoffs) = (OnceLock::new(), OnceLock::new());
        Ok(Self { identity, devices, table, moves, last_open, ids, hash, handoffs })
    }

    /// Returns the partition of a placement hash: its top bits.
    #[inline]
    pub fn partition(&self, placement: u64) -> Partition {
        let top = (placement >> 1) >> (63 - u32::from(self.table.part_power()));
        #[expect(clippy::cast_possible_truncation, reason = "at most 24 bits are left")]
        Partition(top as u32)
    }

    /// Returns the range of placements in a partition.
    ///
    /// # Panics
    /// If the partition isn't in this ring.
    pub fn span(&self, partition: Partition) -> Span {
        assert!(partition.0 < self.table.parts(), "the ring has no {partition:?}");
        let below = u64::MAX >> self.table.part_power();
        let first = u64::from(partition.0) * below.wrapping_add(1);
        Span { first, last: first + below }
    }

    /// Returns the devices of a partition's replicas, in the order of the replicas.
    ///
    /// # Panics
    /// If the partition isn't in this ring.
    #[inline]
    pub fn primaries(
        &self,
        partition: Partition,
    ) -> impl ExactSizeIterator<Item = DeviceId> + Clone + '_ {
        self.table.row(partition.0).iter().map(|slot| self.ids[usize::from(*slot)])
    }

    /// Returns all other devices in the order of handoffs: devices of unused regions first, then of
    /// unused zones, then of unused nodes; devices of weight zero last.
    ///
    /// # Panics
    /// If the partition isn't in this ring.
    pub fn handoffs(&self, partition: Partition) -> impl Iterator<Item = DeviceId> + '_ {
        let order = self
            .handoffs
            .get_or_init(|| HandoffOrder::new(&self.devices, self.identity.handoff_unit));
        order
            .handoffs(partition, self.table.row(partition.0))
            .map(|slot| self.ids[usize::from(slot)])
    }

    /// Returns the previous holder of a moving replica; none if it isn't moving. The device may no
    /// longer be in the ring.
    pub fn previous(&self, partition: Partition, replica: usize) -> Option<DeviceId> {
        let key = (partition, u8::try_from(replica).ok()?);
        let at = self.moves.binary_search_by_key(&key, |m| (m.partition, m.replica)).ok()?;
        Some(self.moves[at].previous)
    }

    /// Moving replicas, in the order of partitions.
    pub fn moves(&self) -> &[Move] {
        &self.moves
    }

    /// Moving replicas of a partition.
    pub(crate) fn moves_of(&self, partition: Partition) -> impl Iterator<Item = &Move> {
        let begin = self.moves.partition_point(|step| step.partition < partition);
        self.moves[begin..].iter().take_while(move |step| step.partition == partition)
    }

    /// Returns a device by its id.
    pub fn device(&self, id: DeviceId) -> Option<&Device> {
        self.ids.binary_search(&id).ok().map(|at| &self.devices[at])
    }

    /// All devices, in the order of ids.
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// Most replicas of a partition.
    pub fn replicas(&self) -> usize {
        self.table.width()
    }

    /// Average replicas of a partition; fractional if so configured.
    pub fn replicas_exact(&self) -> f64 {
        self.table.replicas_exact()
    }

    /// Epoch of the ring; rises by one with every ring that is written.
    pub fn epoch(&self) -> u64 {
        self.identity.epoch
    }

    /// Identity of the ring.
    pub fn identity(&self) -> &RingIdentity {
        &self.identity
    }

    /// Number of the last change; rises by one with every ring whose replicas differ from its
    /// parent's (rule P2).
    pub fn change(&self) -> u64 {
        self.identity.change
    }

    /// Returns the ring's hash, computed by `compute` if no call did before.
    pub(crate) fn hash_or_compute(&self, compute: impl FnOnce() -> RingHash) -> RingHash {
        *self.hash.get_or_init(compute)
    }

    /// Stores the hash that the ring was loaded with.
    pub(crate) fn remember_hash(&self, hash: RingHash) {
        // A decoded ring has no hash yet.
        let _ = self.hash.set(hash);
    }

    /// The ring has 2^`part_power` partitions.
    pub fn part_power(&self) -> u8 {
        self.table.part_power()
    }

    /// Returns the partition of this ring that contains a partition of a later ring with at least
    /// as many partitions.
    pub(crate) fn partition_of_child(&self, later: &Self, partition: Partition) -> Partition {
        Partition(partition.0 >> (later.part_power() - self.part_power()))
    }

    /// All partitions.
    pub fn partitions(&self) -> impl Iterator<Item = Partition> + use<> {
        (0..self.table.parts()).map(Partition)
    }
}

/// Checks that a ring of fragments has one replica for each fragment.
pub(crate) fn check_redundancy(redundancy: Redundancy, replicas: f64) -> Result<()> {
    let Some(fragments) = redundancy.fragments() else { return Ok(()) };
    if replicas.to_bits() == f64::from(fragments).to_bits() {
        return Ok(());
    }
    let message = format!(
        "a ring of the erasure code {redundancy} needs {fragments} replicas, one for each \
         fragment, not {replicas}"
    );
    Err(Error::invalid(message))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use martlet_protocol::{Partition, PolicyId, Redundancy};

    use crate::testing::{builder, device, new_device};
    use crate::{RebalanceContext, Ring};

    fn ring(part_power: u8) -> Ring {
        let mut builder = builder(part_power, 1.0);
        builder.add(new_device(1, 1, 1, 0, 100.0)).unwrap();
        builder.rebalance(RebalanceContext::default()).unwrap();
        builder.ring().unwrap()
    }

    #[test]
    fn spans_follow_one_another_and_hold_what_stands_in_their_partition() {
        for part_power in [1, 4, 9] {
            let ring = ring(part_power);
            let mut next = Some(0);
            for partition in ring.partitions() {
                let span = ring.span(partition);
                assert_eq!(Some(span.first), next);
                assert_eq!(ring.partition(span.first), partition);
                assert_eq!(ring.partition(span.last), partition);
                next = span.last.checked_add(1);
            }
            assert_eq!(next, None, "the last span ends at the end");
        }
    }

    #[test]
    #[should_panic(expected = "no Partition")]
    fn a_partition_of_another_ring_has_no_span() {
        ring(4).span(Partition(16));
    }

    #[test]
    fn a_dealt_ring_of_a_code_has_a_device_for_each_fragment() {
        let devices = [1, 2, 3, 4, 5, 6, 7].map(|id| device(id, 1, 1, "a"));
        let code = Redundancy::erasure(4, 2).unwrap();
        let ring = Ring::of_code(PolicyId(3), "ec", code, &devices).unwrap();
        let identity = ring.identity();
        assert_eq!((identity.policy, identity.policy_name.as_str()), (PolicyId(3), "ec"));
        assert_eq!((identity.redundancy, ring.replicas()), (code, 6));
        for partition in ring.partitions() {
            let homes: BTreeSet<_> = ring.primaries(partition).collect();
            assert_eq!((homes.len(), ring.handoffs(partition).count()), (6, 1));
        }
        assert_eq!(Ring::decode(&ring.encode()).unwrap().identity(), identity);
        for (code, devices, words) in [
            (code, &devices[..5], "4+2 needs 6 devices, one for each fragment, and there are 5"),
            (Redundancy::Replicated, &devices[..], "is not an erasure code"),
        ] {
            let refusal = Ring::of_code(PolicyId(3), "ec", code, devices).unwrap_err().to_string();
            assert!(refusal.contains(words), "{refusal}");
        }
    }
}
