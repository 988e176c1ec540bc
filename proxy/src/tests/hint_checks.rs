//! Checks for hints ask each node once, and devices with hints; no hint is missed (rules A1, M1).

use std::collections::HashMap;
use std::sync::Arc;

use futures::future::join_all;
use martlet_protocol::backend::{EntryWrite, WriteReply};
use martlet_protocol::entry::{Attributes, Entry, Value};
use martlet_protocol::register::WriteMode;
use martlet_protocol::testing::MemoryBackend;
use martlet_protocol::{
    Backend, BackendExt, Clock, DeviceId, ErrorKind, PolicyId, RegisterKey, Stamp, SystemClock,
    Term, UploadId, WriteId,
};
use martlet_ring::Ring;
use martlet_ring::fixtures::device;

use super::counted_node::CountedNode;
use super::harness::{body, create, pattern};
use super::multipart::naming;
use super::rewrite::fixture::RewriteFixture;
use crate::{
    Cluster, Error, NewUpload, ObjectStore, Result, Rewrite, RewriteOptions, StoreOptions,
    WrittenObject, WrittenPart,
};

/// Nodes of one device each.
pub(super) const NODES: usize = 12;

/// A store over nodes that count requests.
pub(super) struct CountedCluster {
    pub(super) nodes: Vec<Arc<CountedNode>>,
    memories: Vec<Arc<MemoryBackend>>,
    pub(super) store: ObjectStore,
}

impl CountedCluster {
    async fn new() -> Self {
        Self::at(Arc::new(SystemClock)).await
    }

    /// Makes a cluster with this clock, and a bucket `b`.
    pub(super) async fn at(clock: Arc<dyn Clock>) -> Self {
        let ids = 1..=u32::try_from(NODES).unwrap();
        let devices: Vec<_> = ids.clone().map(|id| device(id, format!("n{id}"), "disk")).collect();
        let ring = Arc::new(Ring::of_devices(PolicyId(0), 3, &devices).unwrap());
        let memory = |id| Arc::new(MemoryBackend::new(clock.clone(), [DeviceId(id)]));
        let memories: Vec<_> = ids.clone().map(memory).collect();
        let nodes: Vec<_> = memories.iter().cloned().map(CountedNode::over).collect();
        let by_device: HashMap<_, _> = ids
            .zip(&nodes)
            .map(|(id, node)| (DeviceId(id), node.clone() as Arc<dyn Backend>))
            .collect();
        let cluster = Cluster::new(ring.clone(), vec![ring], by_device).unwrap();
        let options = StoreOptions { part_bytes_min: 10, ..StoreOptions::default() };
        let store = ObjectStore::new(cluster, clock, options);
        create(&store, "b").await;
        Self { nodes, memories, store }
    }

    /// Makes an upload, and sends part 1.
    pub(super) async fn upload(&self) -> (UploadId, WrittenPart) {
        let uploads = self.store.uploads();
        let new = NewUpload { attributes: Attributes::default(), checksum: None };
        let upload = uploads.create("b", "key", new).await.unwrap().id;
        let sent = uploads.put_part("b", "key", upload, 1, body(pattern(1000, 1))).await;
        (upload, sent.unwrap())
    }

    /// Completes an upload with a part as number 2, which was never sent as this number.
    pub(super) async fn complete_with(
        &self,
        upload: UploadId,
        part: &WrittenPart,
    ) -> Result<WrittenObject> {
        self.store.uploads().complete("b", "key", upload, naming(&[(2, part)])).await
    }

    /// Returns the requests for states and the listings of hints since the last call.
    pub(super) fn take_counts(&self) -> (usize, usize) {
        let counts = self.nodes.iter().map(|node| node.take_counts());
        counts.fold((0, 0), |(states, listings), it| (states + it.0, listings + it.1))
    }
}

fn is_unavailable<T>(outcome: &Result<T>) -> bool {
    matches!(outcome, Err(Error::Backend(error)) if error.kind() == ErrorKind::Unavailable)
}

#[tokio::test(start_paused = true)]
async fn a_refused_complete_asks_each_node_once() {
    let cluster = CountedCluster::new().await;
    let (upload, part) = cluster.upload().await;
    cluster.take_counts();
    for _ in 0..3 {
        let refused = cluster.complete_with(upload, &part).await;
        assert!(matches!(refused, Err(Error::InvalidPart(2))), "{refused:?}");
        assert_eq!(cluster.take_counts(), (NODES, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn refused_completes_at_a_time_share_the_replies_of_nodes() {
    let cluster = CountedCluster::new().await;
    let mut uploads = Vec::new();
    for _ in 0..20 {
        uploads.push(cluster.upload().await);
    }
    cluster.take_counts();
    let complete = |(upload, part)| cluster.complete_with(upload, part);
    let refused = join_all(uploads.iter().map(|(upload, part)| complete((*upload, part)))).await;
    assert!(refused.iter().all(|it| matches!(it, Err(Error::InvalidPart(2)))), "{refused:?}");
    let (states, listings) = cluster.take_counts();
    assert!(states < 10 * NODES, "{states} requests of 20 completes");
    assert_eq!(listings, 0);
}

/// Replies from before a hint show nothing about the part in it.
#[tokio::test(start_paused = true)]
async fn m1_a_part_that_became_a_hint_since_the_last_check_is_waited_for() {
    let cluster = CountedCluster::new().await;
    let (upload, part) = cluster.upload().await;
    let refused = cluster.complete_with(upload, &part).await;
    assert!(matches!(refused, Err(Error::InvalidPart(2))), "{refused:?}");
    let bucket = cluster.store.bucket("b").await.unwrap();
    let beside = RegisterKey::upload(bucket.id, bucket.index_shards, "key", upload);
    let write_id = WriteId::random();
    let hint = EntryWrite {
        key: RegisterKey::part(&beside, upload, 2, write_id),
        entry: Entry {
            order: Stamp::at_ms(SystemClock.now_ms()),
            write_id,
            value: Value::Tombstone,
        },
        inline: None,
        mode: WriteMode::Settled,
        generation: bucket.generation,
        commit_by_ms: u64::MAX,
        keep_body: false,
        term: Term::ANY,
    };
    let keeper = DeviceId(5);
    let kept = cluster.memories[4].keep_hint(keeper, hint).await.unwrap();
    assert_eq!(kept, WriteReply::Stored);
    cluster.take_counts();
    let refused = cluster.complete_with(upload, &part).await;
    assert!(is_unavailable(&refused), "{refused:?}");
    assert_eq!(cluster.take_counts(), (NODES, 1), "the keeper alone is asked about the part");
}

#[tokio::test(start_paused = true)]
async fn m1_a_complete_does_not_know_what_a_silent_node_keeps() {
    let cluster = CountedCluster::new().await;
    let (upload, part) = cluster.upload().await;
    for silent in [0, NODES - 1] {
        cluster.nodes[silent].set_silent(true);
        let unknown = cluster.complete_with(upload, &part).await;
        assert!(is_unavailable(&unknown), "{unknown:?}");
        cluster.nodes[silent].set_silent(false);
        let refused = cluster.complete_with(upload, &part).await;
        assert!(matches!(refused, Err(Error::InvalidPart(2))), "{refused:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_rewrite_lists_hints_of_no_device_that_has_none() {
    const OBJECTS: usize = 20;
    let fixture = RewriteFixture::new().await;
    for at in 0..OBJECTS {
        fixture.put(&format!("key {at}"), &pattern(20_000, 1)).await;
    }
    fixture.turn_to_second().await;
    let node = CountedNode::over(fixture.memory.clone());
    let rewrite = Rewrite::new("b", RewriteOptions::default());
    fixture.store_on(&(node.clone() as Arc<dyn Backend>)).rewrite(&rewrite).await.unwrap();
    assert_eq!(rewrite.progress().moved, OBJECTS as u64);
    let (states, listings) = node.take_counts();
    assert!((1..OBJECTS).contains(&states), "{states} requests for {OBJECTS} objects");
    assert_eq!(listings, 0);
}
