//! The cluster of a run: nodes, proxies, and the links between them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use martlet_protocol::checkpoints::SetUpkeep;
use martlet_protocol::{Backend, DeviceId};
use martlet_proxy::{ObjectStore, StoreOptions};
use martlet_topology::{Cluster, Topology};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::chance::SharedRng;
use super::clock::SimulatedClock;
use super::link::Link;
use super::membership::SimulatedMember;
use super::network::{Caller, SimulatedNetwork};
use super::node::SimulatedNode;
use super::planted::Bug;
use super::rings::{Builders, SimulatedRings, device_of};

/// Size of a cluster.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    /// Nodes at the beginning.
    pub(crate) nodes: usize,
    /// Nodes that may join later.
    pub(crate) spares: usize,
    pub(crate) proxies: usize,
    pub(crate) replicators: usize,
    pub(crate) part_power: u8,
}

/// The nodes and proxies of a run.
pub(crate) struct SimulatedCluster {
    pub(crate) network: SimulatedNetwork,
    /// Nodes of the first rings, then nodes that may join.
    pub(crate) nodes: Vec<Arc<SimulatedNode>>,
    pub(crate) builders: Mutex<Builders>,
    /// Members of replicators; each survives the replicators in its place.
    pub(crate) replicators: Vec<Arc<SimulatedMember>>,
    /// Members of proxies; each survives the proxies in its place.
    pub(crate) gateways: Vec<Arc<SimulatedMember>>,
    proxies: Mutex<Vec<Arc<SimulatedProxy>>>,
    options: StoreOptions,
    /// True if workers look after checkpoint sets.
    has_sets: bool,
}

/// One run of a proxy.
pub(crate) struct SimulatedProxy {
    pub(crate) store: ObjectStore,
    pub(crate) clock: Arc<SimulatedClock>,
    alive: Arc<AtomicBool>,
    crashed: watch::Sender<bool>,
}

impl SimulatedProxy {
    /// Waits until the proxy crashes.
    pub(crate) async fn crashed(&self) {
        // The sender lives as long as the proxy.
        self.crashed.subscribe().wait_for(|crashed| *crashed).await.ok();
    }

    fn crash(&self) {
        self.alive.store(false, Ordering::Relaxed);
        self.crashed.send_replace(true);
    }
}

impl SimulatedCluster {
    pub(crate) fn new(
        network: SimulatedNetwork,
        size: Size,
        (options, has_sets): (StoreOptions, bool),
        (chance, bug): (&SharedRng, Bug),
    ) -> Self {
        let builders = Builders::new(size.nodes, size.part_power, chance.below(u64::MAX));
        let member = |name: String| {
            SimulatedMember::new(name, builders.rings(), network.trace.clone(), chance.fork())
        };
        let begun = network.trace.begun;
        let node = |number: usize| {
            let member = member(format!("n{}", number + 1));
            Arc::new(SimulatedNode::new(device_of(number), member, begun, bug))
        };
        let nodes = (0..size.nodes + size.spares).map(node).collect();
        let gateways = (0..size.proxies).map(|number| member(format!("proxy {number}")));
        let gateways = gateways.collect();
        let replicators =
            (0..size.replicators).map(|number| member(format!("replicator {number}")));
        let replicators = replicators.collect();
        let (builders, proxies) = (Mutex::new(builders), Mutex::default());
        let simulated =
            Self { network, nodes, builders, replicators, gateways, proxies, options, has_sets };
        let first = (0..size.proxies).map(|number| simulated.begin_proxy(number)).collect();
        *simulated.proxies.lock() = first;
        simulated
    }

    /// Returns the newest rings.
    pub(crate) fn rings(&self) -> SimulatedRings {
        self.builders.lock().rings()
    }

    /// Returns true if a node has left the rings.
    pub(crate) fn has_left(&self, node: &SimulatedNode) -> bool {
        let ring = self.rings().index;
        ring.device(node.device).is_none() && node.device.0 < ring.identity().next_id
    }

    /// Returns the node of a device.
    pub(crate) fn node_of(&self, device: DeviceId) -> &Arc<SimulatedNode> {
        self.nodes.iter().find(|node| node.device == device).expect("rings name known devices")
    }

    /// Returns a link of one caller to every node, by device.
    pub(crate) fn links(
        &self,
        (caller, member): (Caller, &Arc<SimulatedMember>),
        alive: &Arc<AtomicBool>,
    ) -> HashMap<DeviceId, Arc<dyn Backend>> {
        let others: Arc<[Arc<SimulatedNode>]> = self.nodes.clone().into();
        let link = |(number, node): (usize, &Arc<SimulatedNode>)| {
            let link: Arc<dyn Backend> = Arc::new(Link {
                network: self.network.clone(),
                caller,
                member: member.clone(),
                alive: alive.clone(),
                number,
                node: node.clone(),
                others: others.clone(),
            });
            (node.device, link)
        };
        self.nodes.iter().enumerate().map(link).collect()
    }

    /// Starts a proxy with a new writer id.
    fn begin_proxy(&self, number: usize) -> Arc<SimulatedProxy> {
        let (alive, member) = (Arc::new(AtomicBool::new(true)), &self.gateways[number]);
        let nodes = self.links((Caller::Proxy(number), member), &alive);
        let cluster = move |rings: &SimulatedRings| {
            let cluster =
                Cluster::new(rings.index.clone(), vec![rings.data.clone()], nodes.clone());
            cluster.expect("every device has a node")
        };
        let clock = Arc::new(SimulatedClock::new(self.network.trace.begun));
        let topology = Topology::with_term(cluster(&member.rings()), member.begin());
        let store = ObjectStore::new(topology.clone(), clock.clone(), self.options);
        member.follow(move |rings| topology.set_cluster(cluster(rings)));
        Arc::new(SimulatedProxy { store, clock, alive, crashed: watch::Sender::new(false) })
    }

    /// The object layer of a replicator, which looks after checkpoint sets; none in runs without.
    pub(crate) fn sets_upkeep(&self, topology: Topology) -> Option<Arc<dyn SetUpkeep>> {
        let clock = Arc::new(SimulatedClock::new(self.network.trace.begun));
        let store = || Arc::new(ObjectStore::new(topology, clock, self.options));
        self.has_sets.then(|| store() as Arc<dyn SetUpkeep>)
    }

    pub(crate) fn proxies(&self) -> usize {
        self.proxies.lock().len()
    }

    pub(crate) fn proxy(&self, number: usize) -> Arc<SimulatedProxy> {
        self.proxies.lock()[number].clone()
    }

    /// Crashes a proxy and starts another in its place.
    pub(crate) fn replace_proxy(&self, number: usize) {
        let next = self.begin_proxy(number);
        let before = std::mem::replace(&mut self.proxies.lock()[number], next);
        before.crash();
    }
}

impl Drop for SimulatedCluster {
    fn drop(&mut self) {
        // The callbacks of members hold links, which hold members: breaks the cycle.
        self.gateways.iter().chain(&self.replicators).for_each(|member| member.end());
    }
}
