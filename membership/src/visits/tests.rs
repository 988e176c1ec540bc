//! Rounds over nodes that answer, are silent, come and go, and over clocks that leave a doubt.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::time::Duration;

use martlet_protocol::{ManualClock, SystemClock};
use tokio::sync::mpsc;

use super::super::clock::ClockReading;
use super::super::nodes::{MemberRole, PeerCredentials, PeerNodes, ReplyHistory};
use super::*;

const NOON_MS: u64 = 1_700_000_000_000;
const SEED: Uuid = Uuid([7; 16]);

/// Proxy and its nodes `n0`, `n1`, …, of which the first ones may be silent.
struct World {
    ticks: Arc<ManualClock>,
    clock: Arc<ClusterClock>,
    clients: PeerNodes,
    nodes: Vec<Arc<PeerNode>>,
    silent: Cell<usize>,
    order: VisitOrder,
}

impl World {
    fn new(nodes: usize) -> Self {
        let ticks = Arc::new(ManualClock::at(1000));
        let clock = Arc::new(ClusterClock::new(ticks.clone(), Arc::new(SystemClock), false));
        let (sender, _) = mpsc::unbounded_channel();
        let credentials = PeerCredentials { key: "0f".repeat(32).parse().unwrap(), tls: None };
        let clients = PeerNodes::new(MemberRole::Proxy, credentials, clock.clone(), sender);
        let (silent, order) = (Cell::new(0), VisitOrder::new(SEED));
        let mut world = Self { ticks, clock, clients, nodes: Vec::new(), silent, order };
        for _ in 0..nodes {
            world.add();
        }
        world
    }

    /// Makes a world in which a round visited all nodes, and their clocks are known.
    async fn settled(nodes: usize) -> Self {
        let world = Self::new(nodes);
        assert_eq!(world.round().await.len(), nodes);
        world.settle();
        world
    }

    /// Adds a node, and returns its name.
    fn add(&mut self) -> String {
        let name = format!("n{}", self.nodes.len());
        let backend = Arc::new(self.clients.push_client("127.0.0.1:1"));
        let history = Arc::new(ReplyHistory::default());
        self.nodes.push(Arc::new(PeerNode { name: name.clone(), backend, history }));
        name
    }

    /// Learns from each node that it is noon.
    fn settle(&self) {
        let names: Vec<&str> = self.nodes.iter().map(|node| node.name.as_str()).collect();
        for name in &names {
            self.observe(name, NOON_MS);
        }
        assert!(self.clock.settle(&names));
    }

    /// Receives a node's cluster time.
    fn observe(&self, node: &str, cluster_ms: u64) {
        let reading = ClockReading { own_ms: NOON_MS, cluster_ms: Some(cluster_ms) };
        self.clock.observe(node, reading, Duration::ZERO);
    }

    fn answers(&self, node: &PeerNode) -> bool {
        node.name[1..].parse::<usize>().unwrap() >= self.silent.get()
    }

    /// Takes a round. Returns the names of the nodes that it queried.
    async fn round(&self) -> BTreeSet<String> {
        let queried = RefCell::new(Vec::new());
        let query = |node: Arc<PeerNode>| {
            queried.borrow_mut().push(node.name.clone());
            node.history.note_answer(self.answers(&node));
            async {}
        };
        let returned = self.order.visit(&self.nodes, &self.clock, query).await;
        let queried = queried.into_inner();
        let names: BTreeSet<String> = queried.iter().cloned().collect();
        let returned: BTreeSet<String> = returned.iter().map(|node| node.name.clone()).collect();
        assert_eq!(names.len(), queried.len(), "a round queries a node once");
        assert_eq!(names, returned);
        names
    }
}

#[tokio::test]
async fn up_to_64_nodes_are_all_visited_in_each_round() {
    for nodes in [0, 1, VISITS_MAX] {
        let world = World::settled(nodes).await;
        for _ in 0..3 {
            assert_eq!(world.round().await.len(), nodes);
        }
        world.silent.set(nodes);
        assert_eq!(world.round().await.len(), nodes);
    }
    let world = World::settled(VISITS_MAX + 1).await;
    assert_eq!(world.round().await.len(), VISITS_MAX);
}

#[tokio::test]
async fn a_turn_visits_each_of_a_thousand_nodes_by_64_in_a_round() {
    let world = World::settled(1000).await;
    let mut turn = BTreeSet::new();
    for round in 1..=15 {
        let slice = world.round().await;
        assert_eq!(slice.len(), VISITS_MAX);
        turn.extend(slice);
        assert_eq!(turn.len(), round * VISITS_MAX, "no node is visited twice in a turn");
    }
    turn.extend(world.round().await);
    assert_eq!(turn.len(), 1000);
}

#[test]
fn a_node_that_stays_waits_a_turn_at_most_while_others_come_and_go() {
    const STAY: usize = 200;
    let order = VisitOrder::new(SEED);
    let all: Vec<String> = (0..STAY + 10).map(|at| format!("n{at}")).collect();
    let mut visited = [0; STAY];
    for round in 1..=100 {
        let is_there = |at: usize| at < STAY || (at + round).is_multiple_of(2);
        let there = all.iter().enumerate().filter(|(at, _)| is_there(*at));
        let names: Vec<&str> = there.map(|(_, name)| name.as_str()).collect();
        let slice = order.next_slice(&names);
        assert_eq!(slice.len(), VISITS_MAX);
        for (name, visited) in all.iter().zip(&mut visited) {
            if slice.contains(name.as_str()) {
                *visited = round;
            }
            let turn = all.len().div_ceil(VISITS_MAX);
            assert!(round - *visited < turn, "{name} in round {round}");
        }
    }
}

#[test]
fn processes_visit_in_orders_of_their_own() {
    let all: Vec<String> = (0..1000).map(|at| format!("n{at}")).collect();
    let names: Vec<&str> = all.iter().map(String::as_str).collect();
    let first = VisitOrder::new(SEED).next_slice(&names);
    assert_eq!(first, VisitOrder::new(SEED).next_slice(&names));
    let other = VisitOrder::new(Uuid([8; 16])).next_slice(&names);
    assert!(first.intersection(&other).count() < VISITS_MAX / 2);
}

#[tokio::test]
async fn a_new_node_is_visited_at_once() {
    let mut world = World::settled(200).await;
    let added: Vec<String> = (0..20).map(|_| world.add()).collect();
    let visited = world.round().await;
    assert!(added.iter().all(|name| visited.contains(name)));
    assert!(visited.len() <= VISITS_MAX + added.len());
    assert_eq!(world.round().await.len(), VISITS_MAX, "then it takes its turn");
}

#[tokio::test]
async fn c1_all_nodes_are_visited_until_a_majority_of_clocks_is_known() {
    let world = World::new(200);
    for _ in 0..3 {
        assert_eq!(world.round().await.len(), 200);
    }
    world.settle();
    assert_eq!(world.round().await.len(), VISITS_MAX);
}

/// A paused process jumps to the time of a majority of all nodes: it needs their readings at once.
#[tokio::test]
async fn c1_all_nodes_are_visited_while_a_nodes_cluster_time_leads_far() {
    let world = World::settled(200).await;
    world.observe("n7", NOON_MS + 29_000);
    assert_eq!(world.round().await.len(), VISITS_MAX);
    world.observe("n7", NOON_MS + 31_000);
    assert_eq!(world.round().await.len(), 200);
    world.ticks.advance_ms(31_000);
    assert_eq!(world.round().await.len(), VISITS_MAX, "the reading is old");
}

/// The leading reading comes with a reply of this very round.
#[tokio::test]
async fn c1_a_round_that_finds_a_later_time_visits_all_other_nodes_too() {
    let world = World::settled(200).await;
    let queried = Cell::new(0);
    let query = |node: Arc<PeerNode>| {
        queried.set(queried.get() + 1);
        node.history.note_answer(true);
        world.observe(&node.name, NOON_MS + 3_600_000);
        async {}
    };
    let visited = world.order.visit(&world.nodes, &world.clock, query).await;
    assert_eq!((visited.len(), queried.get()), (200, 200));
    let names: Vec<&str> = world.nodes.iter().map(|node| node.name.as_str()).collect();
    world.clock.settle(&names);
    assert_eq!(world.round().await.len(), VISITS_MAX, "it took the time of most nodes");
}

#[tokio::test]
async fn all_nodes_are_visited_while_at_most_half_of_them_answer() {
    let world = World::settled(200).await;
    world.silent.set(20);
    for _ in 0..4 {
        assert_eq!(world.round().await.len(), VISITS_MAX);
    }
    world.silent.set(200);
    assert_eq!(world.round().await.len(), 200, "a slice that is silent suffices");
    world.silent.set(100);
    for _ in 0..4 {
        assert_eq!(world.round().await.len(), 200);
    }
    world.silent.set(200);
    assert_eq!(world.round().await.len(), 200);
    world.silent.set(0);
    assert_eq!(world.round().await.len(), 200, "a slice that answers does not suffice");
    assert_eq!(world.round().await.len(), VISITS_MAX);
}
