//! Checks after recovery: all keys are readable, the replicas of a register agree, and reads return
//! their common state.
//!
//! Replicas must agree on the write id. The order of the entry may differ: each time some replicas
//! settle the entry, its order rises there. A tombstone and a missing entry count as equal.

use martlet_protocol::Term;
use martlet_protocol::backend::Want;
use martlet_protocol::entry::Value as Held;
use martlet_protocol::{BackendExt, Clock, DeviceId, Level, RegisterKey, WriteId};
use martlet_tests::checkers::{Response, Value};

use super::census;
use super::client::{BUCKET, SimulatedClient, value_of};
use super::clock::SimulatedClock;
use super::cluster::SimulatedCluster;
use super::network::{Caller, LinkDirection};
use super::workers;

/// Milliseconds in which workers must have handled everything that has reached its age.
const ROUND_MS: u64 = 120_000;

/// Reads all keys with each node cut off once, which settles all open writes; then checks.
pub(crate) async fn check(client: &SimulatedClient) -> Result<(), String> {
    let client = last(client);
    let simulated = &client.simulated;
    for node in 0..simulated.nodes.len() {
        leave_out(&client, node);
        for key in client.record.keys() {
            client.get(key).await;
        }
        simulated.network.heal();
    }
    read_all(&client).await
}

/// A strict client with a number of its own, for reads after all other clients.
fn last(client: &SimulatedClient) -> SimulatedClient {
    SimulatedClient { level: Some(Level::Strict), number: 1000, ..client.clone() }
}

/// Reads all keys and compares the results with the replicas.
pub(crate) async fn read_all(client: &SimulatedClient) -> Result<(), String> {
    let client = last(client);
    client.list_from("", None, 1000).await;
    for key in client.record.keys() {
        let read = read(&client, &key).await?;
        agree(&client, &key, read).await?;
    }
    client.check_versions().await
}

/// Checks that all data is exactly where the rings place it, and that deletes older than the
/// reclaim age have left no tombstones. The simulation's [`census`] and the census for operators
/// must agree.
pub(crate) async fn count(simulated: &SimulatedCluster, age_ms: u64) -> Result<(), String> {
    let mut wrong = census::complaints(simulated);
    let counted = workers::census(simulated).await;
    if counted.clean != wrong.is_empty() {
        wrong.push(format!("the census says otherwise: {counted:?}"));
    }
    let now_ms = SimulatedClock::new(simulated.network.trace.begun).now_ms();
    wrong.extend(census::tombstones(simulated, now_ms - age_ms - ROUND_MS));
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) }
}

fn leave_out(client: &SimulatedClient, node: usize) {
    for proxy in 0..client.simulated.proxies() {
        client.simulated.network.cut(Caller::Proxy(proxy), node, LinkDirection::There);
    }
}

/// Reads a key after recovery, when every read must have an answer.
async fn read(client: &SimulatedClient, key: &str) -> Result<Option<Value>, String> {
    let found = client.get(key.to_owned()).await;
    let history = client.record.history();
    let last = history.operations.last().expect("the read was noted");
    match last.outcome {
        Response::Read(_) => Ok(found),
        _ => Err(format!("{key:?} can't be read when everything is right again: {last}")),
    }
}

type ObservedValue = Option<(WriteId, Value)>;

/// Checks that all replicas of a register agree with each other and with the read.
async fn agree(client: &SimulatedClient, key: &str, read: Option<Value>) -> Result<(), String> {
    let bucket = client.simulated.proxy(0).store.bucket(BUCKET).await;
    let bucket = bucket.map_err(|error| format!("the bucket is gone: {error}"))?;
    let register = RegisterKey::object(bucket.id, bucket.index_shards, key);
    let ring = client.simulated.rings().index;
    let mut all: Vec<(DeviceId, ObservedValue)> = Vec::new();
    for device in ring.primaries(ring.partition(register.placement())) {
        let node = client.simulated.node_of(device);
        let view = node.memory().read(device, &register, Want::Entry, Term::ANY).await;
        let entry = view.expect("it has a vote").entry;
        let live = entry.and_then(|entry| Some((entry.write_id, value(&entry.value)?)));
        all.push((device, live));
    }
    let differ = all.windows(2).any(|pair| pair[0].1 != pair[1].1);
    if differ {
        return Err(format!("replicas of {key:?} differ at last: {all:?}"));
    }
    let held = all.iter().find_map(|(_, seen)| *seen).map(|(_, value)| value);
    if held != read {
        return Err(format!("{key:?} is read as {read:?} and held as {held:?}"));
    }
    Ok(())
}

fn value(held: &Held) -> Option<Value> {
    match held {
        Held::Object(object) => value_of(object),
        _ => None,
    }
}
