//! An index that grows by a node: rings before, during and after the change, and the steps of the
//! devices from phase to phase.

use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use martlet_protocol::backend::{EntryWrite, PromiseReply, RegisterView, Want, WriteReply};
use martlet_protocol::register::WriteMode;
use martlet_protocol::stamp::StampSource;
use martlet_protocol::testing::seeded_ids::SeededIds;
use martlet_protocol::{
    BackendExt, Clock, DeviceId, Entry, Partition, Phase, PolicyId, RegisterKey, Stamp,
    SystemClock, Term, limits,
};
use martlet_ring::{Builder, Move, NewDevice, Node, RebalanceContext, Ring, RingSettings, Sets};

use super::nodes::{Nodes, Proxy};
use crate::Cluster;

/// Number of the ring change in every test here.
pub(super) const CHANGE: u64 = 2;

/// A growing index.
pub(super) struct Growing {
    /// Nodes with the ring that moves replicas to the last node.
    pub(super) nodes: Arc<Nodes>,
    pub(super) before: Arc<Ring>,
    pub(super) settled: Arc<Ring>,
    stamps: StampSource,
    _repeats: SeededIds,
}

/// Devices of a key's register, and their parts in the move.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cast {
    /// Devices that hold the register before and after.
    pub(super) stay: [DeviceId; 2],
    pub(super) leaves: DeviceId,
    pub(super) joins: DeviceId,
}

fn add(builder: &mut Builder, node: u32) {
    let device = NewDevice {
        region: 1,
        zone: 1,
        node: Node { name: format!("n{node}"), address: format!("10.0.0.{node}:1") },
        name: "disk".into(),
        weight: 1.0,
        meta: String::new(),
    };
    builder.add(device).unwrap();
}

fn rebalanced(builder: &mut Builder) -> Arc<Ring> {
    builder.rebalance(RebalanceContext { now_ms: 1_000_000, seed: 7 }).unwrap();
    Arc::new(builder.ring().unwrap())
}

impl Growing {
    /// Makes an index on `count` nodes, and one more node to which replicas move. The devices have
    /// the term of the change's old phase.
    pub(super) fn from(count: u32) -> Self {
        let settings = RingSettings {
            policy: PolicyId(0),
            policy_name: "default".into(),
            redundancy: martlet_protocol::Redundancy::Replicated,
            part_power: 6,
            replicas: 3.0,
            min_part_hours: 0,
            overload: 0.0,
        };
        let mut builder = Builder::create(settings, [7; 16]).unwrap();
        (0..count).for_each(|node| add(&mut builder, node));
        let before = rebalanced(&mut builder);
        add(&mut builder, count);
        let moving = rebalanced(&mut builder);
        builder.settle().unwrap();
        let settled = Arc::new(builder.ring().unwrap());
        assert_eq!((moving.change(), settled.change()), (CHANGE, CHANGE));
        let stamps = StampSource::new(Arc::new(SystemClock));
        // Bucket ids decide which keys move, so they come from a seed.
        let repeats = SeededIds::new(7);
        let nodes = Arc::new(Nodes::on(moving));
        let growing = Self { nodes, before, settled, stamps, _repeats: repeats };
        growing.raise(&growing.devices(), Phase::Old);
        growing
    }

    pub(super) fn devices(&self) -> Vec<DeviceId> {
        self.nodes.ring.devices().iter().map(|device| device.id).collect()
    }

    /// Raises the term of devices to a phase.
    pub(super) fn raise(&self, devices: &[DeviceId], phase: Phase) {
        for device in devices {
            raise(&self.nodes, *device, phase);
        }
    }

    /// A proxy with a given ring.
    pub(super) fn proxy_by(&self, ring: &Arc<Ring>) -> Proxy {
        let proxy = self.nodes.proxy();
        self.give(&proxy, ring);
        proxy
    }

    /// Gives a proxy another ring; its connections to nodes stay.
    pub(super) fn give(&self, proxy: &Proxy, ring: &Arc<Ring>) {
        let cluster = proxy.store.topology().cluster();
        let node = |device: DeviceId| (device, cluster.node(device).unwrap().clone());
        let nodes = self.devices().into_iter().map(node).collect();
        let cluster = Cluster::new(ring.clone(), vec![ring.clone()], nodes).unwrap();
        proxy.store.topology().set_cluster(cluster);
    }

    /// Returns a key of the bucket `b` whose register moves, with the devices of the move.
    pub(super) async fn moving_key(&self, proxy: &Proxy) -> (String, RegisterKey, Cast) {
        let ring = &self.nodes.ring;
        for at in 0..1000 {
            let key = format!("key {at}");
            let register = proxy.register(&key).await;
            let partition = ring.partition(register.placement());
            let step = ring.moves().iter().find(|step| step.partition == partition);
            let Some(Move { replica, previous, .. }) = step else { continue };
            let primaries: Vec<_> = ring.primaries(partition).collect();
            let joins = primaries[usize::from(*replica)];
            let stay: Vec<_> = primaries.into_iter().filter(|id| *id != joins).collect();
            let cast = Cast { stay: [stay[0], stay[1]], leaves: *previous, joins };
            return (key, register, cast);
        }
        panic!("no key moves");
    }

    /// Does a replicator's work between the phases: copies everything that a quorum of the old set
    /// holds to new holders, fences included, then sets a floor above all earlier promises.
    pub(super) async fn join(&self) {
        for step in self.nodes.ring.moves() {
            let place = &self.sets(step.partition, Phase::Joint);
            let to = self.nodes.ring.primaries(step.partition).nth(step.replica.into()).unwrap();
            let target = self.nodes.memory(to);
            for from in place.set(0) {
                let source = self.nodes.memory(from);
                for fence in source.fences(from).await.unwrap() {
                    target.fence(to, fence).await.unwrap();
                }
                for (key, _) in source.registers(from) {
                    if self.nodes.ring.partition(key.placement()) == step.partition {
                        while !self.copy(&key, from, to).await {
                            self.agree_again(&key, place).await;
                        }
                    }
                }
            }
        }
        let floor = Stamp::at_ms(SystemClock.now_ms() + limits::CLOCK_SKEW_MS_MAX);
        for Move { partition, replica, .. } in self.nodes.ring.moves() {
            let to = self.nodes.ring.primaries(*partition).nth((*replica).into()).unwrap();
            self.nodes.memory(to).raise_floor(to, floor).await.unwrap();
        }
    }

    pub(super) fn sets(&self, partition: Partition, phase: Phase) -> Sets {
        self.nodes.ring.sets(partition, Term::of(CHANGE, phase))
    }

    /// Copies a register. Returns true if the target holds the entry or a newer one afterwards; a
    /// higher promise prevents the copy.
    async fn copy(&self, key: &RegisterKey, from: DeviceId, to: DeviceId) -> bool {
        let source = self.nodes.memory(from);
        let view = source.read(from, key, Want::EntryAndInline, Term::ANY).await.unwrap();
        let Some(entry) = view.entry else { return true };
        let order = entry.order;
        let write = repair(key, entry, view.inline);
        let reply = self.nodes.memory(to).write(to, write).await.unwrap();
        reply == WriteReply::Stored || reply == WriteReply::Superseded || {
            let held = self.nodes.held(to, key);
            held.is_some_and(|held| held >= order)
        }
    }

    /// Runs an identity round: a quorum of each set accepts its present entry again at a new
    /// ballot.
    async fn agree_again(&self, key: &RegisterKey, sets: &Sets) {
        let term = Term::of(CHANGE, Phase::Joint);
        let ballot = self.stamps.issue();
        let (mut views, mut promised) = (Vec::new(), Vec::new());
        for device in sets.members() {
            let reply = self.nodes.memory(device).promise(device, key, ballot, term).await;
            match reply.unwrap() {
                PromiseReply::Promised(view) => {
                    promised.push(device);
                    views.push(view);
                }
                PromiseReply::Behind(floor) => drop(self.stamps.issue_above(floor)),
            }
        }
        let best = views.into_iter().max_by_key(|view| view.entry.as_ref().map(|e| e.order));
        let Some(RegisterView { entry: Some(mut entry), inline, .. }) = best else { return };
        if !sets.has_quorum(|device| promised.contains(&device)) {
            return;
        }
        entry.order = ballot;
        let write = EntryWrite { mode: WriteMode::Accept, term, ..repair(key, entry, inline) };
        for device in sets.members() {
            self.nodes.memory(device).write(device, write.clone()).await.unwrap();
        }
    }
}

fn repair(key: &RegisterKey, entry: Entry, inline: Option<Bytes>) -> EntryWrite {
    EntryWrite {
        key: key.clone(),
        entry,
        inline,
        mode: WriteMode::Repair,
        generation: u64::MAX,
        commit_by_ms: u64::MAX,
        keep_body: true,
        term: Term::ANY,
    }
}

/// Raises the term of a device to a phase.
pub(super) fn raise(nodes: &Nodes, device: DeviceId, phase: Phase) {
    let term = Term::of(CHANGE, phase);
    let reply = nodes.memory(device).raise_term(device, term).now_or_never();
    reply.expect("a device in memory answers at once").unwrap();
}
