//! The cluster of a run: nodes, the proxies before them, and who is reached how.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use martlet_protocol::{Backend, DeviceId, PolicyId};
use martlet_proxy::{Cluster, ObjectStore, StoreOptions};
use martlet_ring::{Device, Node as RingNode, Ring};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::clock::SimulatedClock;
use super::link::Link;
use super::network::{Caller, Network};
use super::node::Node;
use super::planted::Bug;

/// Copies of every entry and extent.
pub(crate) const REPLICAS: usize = 3;

/// Nodes and proxies.
pub(crate) struct Simulated {
    pub(crate) network: Network,
    pub(crate) nodes: Vec<Arc<Node>>,
    pub(crate) ring: Arc<Ring>,
    proxies: Mutex<Vec<Arc<Proxy>>>,
    options: StoreOptions,
}

/// One life of a proxy.
pub(crate) struct Proxy {
    pub(crate) store: ObjectStore,
    pub(crate) clock: Arc<SimulatedClock>,
    alive: Arc<AtomicBool>,
    crashed: watch::Sender<bool>,
}

impl Proxy {
    /// Waits until it crashes.
    pub(crate) async fn crashed(&self) {
        // The sender lives as long as the proxy does.
        self.crashed.subscribe().wait_for(|crashed| *crashed).await.ok();
    }

    fn crash(&self) {
        self.alive.store(false, Ordering::Relaxed);
        self.crashed.send_replace(true);
    }
}

fn ring(devices: u32) -> Arc<Ring> {
    let device = |number: u32| Device {
        id: DeviceId(number),
        region: 1,
        zone: number,
        node: RingNode { name: format!("n{number}"), address: String::new() },
        name: "d".into(),
        weight: 1.0,
        meta: String::new(),
    };
    let devices: Vec<_> = (1..=devices).map(device).collect();
    Arc::new(Ring::of_devices(PolicyId(0), REPLICAS, &devices).expect("there are enough devices"))
}

impl Simulated {
    pub(crate) fn new(
        network: Network,
        (nodes, proxies): (u32, usize),
        options: StoreOptions,
        bug: Bug,
    ) -> Self {
        let devices = (1..=nodes).map(DeviceId);
        let begun = network.trace.begun;
        let all = devices.map(|device| Arc::new(Node::new(device, begun, bug))).collect();
        let simulated =
            Self { network, nodes: all, ring: ring(nodes), proxies: Mutex::default(), options };
        let first = (0..proxies).map(|number| simulated.begin_proxy(number)).collect();
        *simulated.proxies.lock() = first;
        simulated
    }

    /// Every node as one caller reaches it, by its device.
    pub(crate) fn links(
        &self,
        caller: Caller,
        alive: &Arc<AtomicBool>,
    ) -> HashMap<DeviceId, Arc<dyn Backend>> {
        let link = |(number, node): (usize, &Arc<Node>)| {
            let link: Arc<dyn Backend> = Arc::new(Link {
                network: self.network.clone(),
                caller,
                alive: alive.clone(),
                number,
                node: node.clone(),
                first: self.nodes[0].clone(),
            });
            (node.device, link)
        };
        self.nodes.iter().enumerate().map(link).collect()
    }

    /// A proxy that begins, with a writer id of its own.
    fn begin_proxy(&self, number: usize) -> Arc<Proxy> {
        let alive = Arc::new(AtomicBool::new(true));
        let nodes = self.links(Caller::Proxy(number), &alive);
        let cluster = Cluster::new(self.ring.clone(), vec![self.ring.clone()], nodes);
        let clock = Arc::new(SimulatedClock::new(self.network.trace.begun));
        let cluster = cluster.expect("every device has a node");
        let store = ObjectStore::new(cluster, clock.clone(), self.options);
        Arc::new(Proxy { store, clock, alive, crashed: watch::Sender::new(false) })
    }

    pub(crate) fn proxies(&self) -> usize {
        self.proxies.lock().len()
    }

    pub(crate) fn proxy(&self, number: usize) -> Arc<Proxy> {
        self.proxies.lock()[number].clone()
    }

    /// Ends a proxy, whatever it is doing, and begins another in its place.
    pub(crate) fn replace_proxy(&self, number: usize) {
        let next = self.begin_proxy(number);
        let before = std::mem::replace(&mut self.proxies.lock()[number], next);
        before.crash();
    }
}
