//! The rings of a run as their operator makes them: a builder for the ring of the index and one for
//! the ring of the data, over the same devices.
//!
//! The device of a node has the number of the node, in both rings and for ever: nodes join in the
//! order of their numbers, and one that has left does not come back.

use std::sync::Arc;

use martlet_protocol::{DeviceId, PolicyId};
use martlet_ring::{Builder, NewDevice, Node, Occasion, Ring, Settings};

/// Copies of every entry and extent.
pub(crate) const REPLICAS: u32 = 3;

/// The ring of the index and the one of the data.
#[derive(Clone)]
pub(crate) struct Rings {
    pub(crate) index: Arc<Ring>,
    pub(crate) data: Arc<Ring>,
}

/// What an operator does to a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Edit {
    /// A device joins.
    Add(usize),
    /// All that a device holds goes elsewhere; it stays in the ring.
    Drain(usize),
    /// A device leaves at once.
    Remove(usize),
    /// What has moved is said to have arrived.
    Settle,
}

/// What makes the rings of a run.
pub(crate) struct Builders {
    index: Builder,
    data: Builder,
    /// What breaks ties: the same draws for the same seed.
    seed: u64,
}

/// The id of a node's device.
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
    /// Builders with so many nodes, which have made their first ring.
    pub(crate) fn new(nodes: usize, part_power: u8, seed: u64) -> Self {
        let settings = Settings {
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
            builder.rebalance(Occasion { now_ms: 0, seed }).expect("there are enough devices");
            builder
        };
        Self { index: builder(1), data: builder(2), seed }
    }

    /// The rings as they were last made.
    pub(crate) fn rings(&self) -> Rings {
        let ring = |builder: &Builder| Arc::new(builder.ring().expect("it was rebalanced"));
        Rings { index: ring(&self.index), data: ring(&self.data) }
    }

    /// Makes the next rings. A ring in which nothing changes stays as it is.
    pub(crate) fn edit(&mut self, edit: Edit, now_ms: u64) -> Rings {
        self.seed += 1;
        let occasion = Occasion { now_ms, seed: self.seed };
        for builder in [&mut self.index, &mut self.data] {
            change(builder, edit, occasion).expect("plans hold what a builder takes");
        }
        self.rings()
    }

    /// Replicas of the index that are on their way, by their builder.
    pub(crate) fn moving(&self) -> usize {
        self.index.moving()
    }
}

fn change(builder: &mut Builder, edit: Edit, occasion: Occasion) -> martlet_ring::Result<()> {
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
