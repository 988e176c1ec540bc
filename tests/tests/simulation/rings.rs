//! Rings of a run as the operator makes them: builders of the index ring and of the data ring, over
//! equal devices.
//!
//! The device of a node has the node's number in both rings for the whole run. Nodes join in the
//! order of their numbers, and a node that has left does not return.

use std::sync::Arc;

use martlet_protocol::{DeviceId, PolicyId};
use martlet_ring::{Builder, NewDevice, Node, RebalanceContext, Ring, RingSettings};

/// Number of copies of every entry and extent.
pub(crate) const REPLICAS: u32 = 3;

/// The index ring and the data ring.
#[derive(Clone)]
pub(crate) struct SimulatedRings {
    pub(crate) index: Arc<Ring>,
    pub(crate) data: Arc<Ring>,
}

/// A change of the rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Edit {
    /// A device joins.
    Add(usize),
    /// A device loses all its replicas, but stays in the ring.
    Drain(usize),
    /// A device leaves at once.
    Remove(usize),
    /// All moves are marked as done.
    Settle,
}

/// Builders of a run's rings.
pub(crate) struct Builders {
    index: Builder,
    data: Builder,
    /// Seed for ties, so that equal seeds give equal rings.
    seed: u64,
}

/// Id of a node's device.
pub(crate) fn device_of(node: usize) -> DeviceId {
    DeviceId(u32::try_from(node).expect("a handful of nodes"))
}

fn new_device(node: usize) -> NewDevice {
    let name = format!("n{}", node + 1);
    NewDevice {
        region: 1,
        zone: device_of(node).0 + 1,
        node: Node { address: format!("{name}:1"), name },
        name: "d".into(),
        weight: 1.0,
        meta: String::new(),
    }
}

impl Builders {
    /// Makes builders over so many nodes, and their first rings.
    pub(crate) fn new(nodes: usize, part_power: u8, seed: u64) -> Self {
        let settings = RingSettings {
            policy: PolicyId(0),
            policy_name: "default".to_owned(),
            redundancy: martlet_protocol::Redundancy::Replicated,
            part_power,
            replicas: f64::from(REPLICAS),
            min_part_hours: 1,
            overload: 0.0,
        };
        let builder = |lineage: u8| {
            let lineage = [lineage; 16];
            let mut builder = Builder::create(settings.clone(), lineage).expect("they are sound");
            for node in 0..nodes {
                builder.add(new_device(node)).expect("it is new");
            }
            builder
                .rebalance(RebalanceContext { now_ms: 0, seed })
                .expect("there are enough devices");
            builder
        };
        Self { index: builder(1), data: builder(2), seed }
    }

    /// Returns the newest rings.
    pub(crate) fn rings(&self) -> SimulatedRings {
        let ring = |builder: &Builder| Arc::new(builder.ring().expect("it was rebalanced"));
        SimulatedRings { index: ring(&self.index), data: ring(&self.data) }
    }

    /// Makes the next rings. A ring without a change stays as it is.
    pub(crate) fn edit(&mut self, edit: Edit, now_ms: u64) -> SimulatedRings {
        self.seed += 1;
        let occasion = RebalanceContext { now_ms, seed: self.seed };
        for builder in [&mut self.index, &mut self.data] {
            change(builder, edit, occasion).expect("plans hold what a builder takes");
        }
        self.rings()
    }

    /// Number of index replicas that are moving, by the builder's record.
    pub(crate) fn moving(&self) -> usize {
        self.index.moving()
    }
}

fn change(
    builder: &mut Builder,
    edit: Edit,
    occasion: RebalanceContext,
) -> martlet_ring::Result<()> {
    match edit {
        Edit::Add(node) => {
            let id = builder.add(new_device(node))?;
            assert_eq!(id, device_of(node), "nodes join in the order of their numbers");
        }
        Edit::Drain(node) => builder.set_weight(device_of(node), 0.0)?,
        Edit::Remove(node) => builder.remove(device_of(node), true)?,
        Edit::Settle => return builder.settle().map(drop),
    }
    builder.rebalance(occasion).map(drop)
}

#[test]
fn rings_are_the_same_for_a_seed_and_follow_one_another() {
    let history = |seed| {
        let mut builders = Builders::new(4, 3, seed);
        let mut all = vec![builders.rings()];
        for edit in [Edit::Add(4), Edit::Settle, Edit::Drain(0), Edit::Settle, Edit::Remove(0)] {
            all.push(builders.edit(edit, 1_800_000_000_000));
        }
        all
    };
    let (one, again) = (history(7), history(7));
    for (one, again) in one.iter().zip(&again) {
        assert_eq!(one.index.hash(), again.index.hash());
        assert_ne!(one.index.hash(), one.data.hash());
    }
    for pair in one.windows(2) {
        assert_eq!(pair[1].index.identity().parent, pair[0].index.hash());
    }
    let moving: Vec<_> = one.iter().map(|rings| !rings.index.moves().is_empty()).collect();
    assert_eq!(moving, [false, true, false, true, false, false]);
    assert!(one[5].index.device(device_of(0)).is_none());
}
