//! Cost of anti-entropy between two devices with equal content: a million entries on two storage
//! nodes, which communicate over loopback by the network protocol. Run with `--ignored --nocapture`
//! and read the printed figures.
//!
//! `MARTLET_ENTRIES` and `MARTLET_BUCKETS` set the number of entries and buckets. In a network
//! namespace of its own (`unshare -n`, `ip link set lo up`) all loopback bytes are from these
//! nodes.
#![allow(clippy::unwrap_used, reason = "all of this runs within tests")]

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use martlet_protocol::backend::{CallKind, EntryWrite, WriteReply};
use martlet_protocol::entry::{Attributes, Body, ETag, Object, Value};
use martlet_protocol::http::{
    Announcement, ClientOptions, ClusterKey, HttpBackend, ServeOptions, ServerOptions, guarded,
    router, serve,
};
use martlet_protocol::register::WriteMode;
use martlet_protocol::testing::{Call, Fault, FaultyBackend};
use martlet_protocol::{
    Backend, BackendExt, BucketId, Clock, DeviceId, Entry, PolicyId, RegisterKey, Stamp,
    SystemClock, Term, WriteId,
};
use martlet_replicator::{
    CensusOptions, DeviceScope, ReplicateRegisters, StepProgress, census, run_once,
};
use martlet_ring::{Device, Node, Ring};
use martlet_storage_node::{DeviceConfig, NodeOptions, StorageNode};
use martlet_topology::{Cluster, Topology};
use parking_lot::Mutex;

const DEVICES: [DeviceId; 2] = [DeviceId(0), DeviceId(1)];
const SHARDS: u16 = 16;

fn asked(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().unwrap())
}

/// CPU seconds of this process so far, user and system.
fn cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: u32 = fields[11].parse::<u32>().unwrap() + fields[12].parse::<u32>().unwrap();
    f64::from(ticks) / 100.0
}

/// Bytes received over loopback.
fn loopback_bytes() -> u64 {
    let table = std::fs::read_to_string("/proc/self/net/dev").unwrap();
    let line = table.lines().find(|line| line.trim_start().starts_with("lo:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn cluster_key() -> ClusterKey {
    "5a".repeat(32).parse().unwrap()
}

fn open(folder: &Path, device: DeviceId) -> Arc<StorageNode> {
    let config = DeviceConfig::new(device, folder.join(device.to_string()));
    Arc::new(StorageNode::open(vec![config], NodeOptions::default()).unwrap())
}

/// Serves a node on loopback.
async fn listen(node: Arc<StorageNode>) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let app = router(node, ServerOptions::default());
    let app = guarded(app, cluster_key(), clock, Arc::new(|| Announcement::new(&[])));
    tokio::spawn(serve(listener, app, ServeOptions::default(), std::future::pending()));
    address
}

/// Number of calls by operation.
type CallCounts = Arc<Mutex<HashMap<CallKind, u64>>>;

fn client(address: SocketAddr, calls: &CallCounts) -> Arc<dyn Backend> {
    let options = ClientOptions::default();
    let client = HttpBackend::new(address.to_string(), cluster_key(), options, Arc::new(|_| ()));
    let calls = calls.clone();
    let count = move |call: &Call<'_>| {
        *calls.lock().entry(call.op).or_default() += 1;
        Fault::None
    };
    Arc::new(FaultyBackend::new(Arc::new(client), count))
}

fn cluster(nodes: HashMap<DeviceId, Arc<dyn Backend>>) -> Topology {
    let device = |id: DeviceId| Device {
        id,
        region: 1,
        zone: 1,
        node: Node { name: format!("n{id}"), address: String::new() },
        name: "d".into(),
        weight: 1.0,
        meta: String::new(),
    };
    let ring = Arc::new(Ring::of_devices(PolicyId(0), 2, &DEVICES.map(device)).unwrap());
    Cluster::new(ring.clone(), vec![ring], nodes).unwrap().into()
}

fn entry(n: u64, buckets: u64) -> EntryWrite {
    let mut bucket = [0; 16];
    bucket[..8].copy_from_slice(&(n % buckets + 1).to_be_bytes());
    let object = Object {
        size: 0,
        etag: ETag::Md5([7; 16]),
        modified_ms: 1,
        attributes: Attributes::default(),
        checksums: Vec::new(),
        upload: None,
        body: Body::Empty,
        version: None,
    };
    let value = Value::Object(Box::new(object));
    let order = Stamp::at_ms(SystemClock.now_ms());
    EntryWrite {
        key: RegisterKey::object(BucketId(bucket), SHARDS, &format!("photos/2026/{n:09}.jpg")),
        entry: Entry { order, write_id: WriteId::random(), value },
        inline: None,
        mode: WriteMode::Repair,
        generation: 1,
        commit_by_ms: u64::MAX,
        keep_body: false,
        term: Term::ANY,
    }
}

async fn fill(nodes: &[Arc<StorageNode>; 2], entries: u64, buckets: u64) {
    let writes = futures::stream::iter(0..entries).map(|n| {
        let write = entry(n, buckets);
        async move {
            for (device, node) in DEVICES.into_iter().zip(nodes) {
                let reply = node.write(device, write.clone()).await.unwrap();
                assert_eq!(reply, WriteReply::Stored);
            }
        }
    });
    writes.buffer_unordered(512).for_each(|()| async {}).await;
}

struct Figures {
    wall: Duration,
    cpu: f64,
    bytes: u64,
}

async fn measured<T>(
    what: &str,
    calls: &CallCounts,
    work: impl Future<Output = T>,
) -> (T, Figures) {
    calls.lock().clear();
    let (begun, cpu_before, bytes_before) = (Instant::now(), cpu(), loopback_bytes());
    let outcome = work.await;
    let figures = Figures {
        wall: begun.elapsed(),
        cpu: cpu() - cpu_before,
        bytes: loopback_bytes() - bytes_before,
    };
    let mut calls: Vec<(String, u64)> =
        calls.lock().iter().map(|(op, count)| (format!("{op:?}"), *count)).collect();
    calls.sort();
    let Figures { wall, cpu, bytes } = figures;
    println!("{what}: {wall:.2?}, CPU {cpu:.2} s, {bytes} bytes on loopback, calls {calls:?}");
    (outcome, figures)
}

async fn pass(cluster: &Topology) -> StepProgress {
    let clock = Arc::new(SystemClock);
    let mut worker = ReplicateRegisters::new(cluster.clone(), clock, DeviceScope::All);
    run_once(&mut worker).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures for some minutes"]
async fn two_devices_that_hold_the_same() {
    let (entries, buckets) = (asked("MARTLET_ENTRIES", 1_000_000), asked("MARTLET_BUCKETS", 16));
    let folder = tempfile::tempdir().unwrap();
    let nodes = DEVICES.map(|device| open(folder.path(), device));
    let begun = Instant::now();
    fill(&nodes, entries, buckets).await;
    println!("{entries} entries in {buckets} buckets of {SHARDS} shards: {:.1?}", begun.elapsed());
    let calls = CallCounts::default();
    let mut clients = HashMap::new();
    for (device, node) in DEVICES.into_iter().zip(&nodes) {
        clients.insert(device, client(listen(node.clone()).await, &calls));
    }
    let cluster = cluster(clients);
    for run in 1..=3 {
        let what = format!("pass {run} over what is the same");
        let (progress, figures) = measured(&what, &calls, pass(&cluster)).await;
        assert_eq!((progress.repaired, progress.backlog), (0, 0));
        assert!(figures.bytes < 10 << 20, "converged devices told each other their entries");
    }
    // A hundred writes that one of the two nodes missed.
    for n in entries..entries + 100 {
        nodes[1].write(DEVICES[1], entry(n, buckets)).await.unwrap();
    }
    let (progress, _) = measured("a hundred that one missed", &calls, pass(&cluster)).await;
    assert_eq!((progress.repaired, progress.backlog), (100, 0));
    let options = CensusOptions { pause: Duration::ZERO, ..CensusOptions::default() };
    let (report, _) = measured("census", &calls, census(&cluster, options, &mut |_| ())).await;
    assert!(report.clean, "{report:?}");
    assert_eq!(
        (report.registers.things, report.registers.copies),
        (entries + 100, 2 * entries + 200)
    );
}
