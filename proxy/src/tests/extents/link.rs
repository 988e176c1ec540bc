//! Links that change bytes between node and proxy: a client receives the written bytes, or a reply
//! that breaks off.
//!
//! Fault model: a link flips a bit of each extent that a node sends over it. All other bytes arrive
//! unchanged.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use martlet_protocol::http::{
    Announcement, ClientOptions, ClusterKey, HttpBackend, ServeOptions, ServerOptions, guarded,
    router, serve,
};
use martlet_protocol::testing::MemoryBackend;
use martlet_protocol::{Backend, DeviceId, SystemClock};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::fixture::ring;
use crate::tests::harness::{body, create, get, put};
use crate::{Cluster, ObjectStore, ReadConditions, Selection, StoreOptions, WriteConditions};

/// Bytes by which a link recognizes an extent.
const RUN: [u8; 64] = [b'x'; 64];

fn key() -> ClusterKey {
    "5a".repeat(32).parse().unwrap()
}

/// Serves a node on loopback.
async fn node(memory: Arc<MemoryBackend>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = router(memory, ServerOptions::default());
    let app = guarded(app, key(), Arc::new(SystemClock), Arc::new(|| Announcement::new(&[])));
    tokio::spawn(serve(listener, app, ServeOptions::default(), std::future::pending()));
    address
}

/// Starts a relay to a node that flips a bit of extents on their way back.
async fn flipping(node: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let far = TcpStream::connect(node).await.unwrap();
            tokio::spawn(relay(near, far));
        }
    });
    address
}

/// Relays bytes both ways until either side ends.
async fn relay(near: TcpStream, far: TcpStream) {
    let (mut from_near, mut to_near) = near.into_split();
    let (mut from_far, mut to_far) = far.into_split();
    let there = tokio::io::copy(&mut from_near, &mut to_far);
    let back = async {
        let mut bytes = vec![0; 256 * 1024];
        while let Ok(length @ 1..) = from_far.read(&mut bytes).await {
            let piece = &mut bytes[..length];
            if let Some(at) = piece.windows(RUN.len()).rposition(|run| run == RUN) {
                piece[at] ^= 1;
            }
            if to_near.write_all(piece).await.is_err() {
                break;
            }
        }
    };
    tokio::select! {
        _ = there => {}
        () = back => {}
    }
}

/// A store of three replicas on three nodes, `flipped` of them behind links that flip bits, with a
/// bucket `b`.
async fn store(flipped: usize) -> ObjectStore {
    let devices = || (1..=3).map(DeviceId);
    let node = node(Arc::new(MemoryBackend::new(Arc::new(SystemClock), devices()))).await;
    let mut nodes: HashMap<_, Arc<dyn Backend>> = HashMap::new();
    for (at, device) in devices().enumerate() {
        let address = if at < flipped { flipping(node).await } else { node };
        let options = ClientOptions::default();
        let backend = HttpBackend::new(address.to_string(), key(), options, Arc::new(|_| ()));
        nodes.insert(device, Arc::new(backend));
    }
    let ring = ring(3, 1);
    let cluster = Cluster::new(ring.clone(), vec![ring], nodes).unwrap();
    let store = ObjectStore::new(cluster, Arc::new(SystemClock), StoreOptions::default());
    create(&store, "b").await;
    store
}

fn runs(length: usize) -> Bytes {
    vec![RUN[0]; length].into()
}

#[tokio::test]
async fn a_read_succeeds_from_the_one_node_with_a_clean_link() {
    let store = store(2).await;
    let bytes = runs(3_000_000);
    put(&store, "key", body(bytes.clone()), WriteConditions::default()).await.unwrap();
    for _ in 0..10 {
        assert!(get(&store, "key", Selection::Whole).await.unwrap() == bytes, "bytes were flipped");
    }
}

#[tokio::test]
async fn where_no_link_is_right_an_answer_breaks_off_before_the_first_flipped_byte() {
    let store = store(3).await;
    put(&store, "key", body(runs(3_000_000)), WriteConditions::default()).await.unwrap();
    let read = store.get("b", "key", Selection::Whole, &ReadConditions::default()).await;
    let Ok(read) = read else { return };
    let (mut body, mut failed) = (read.body.unwrap(), false);
    while let Some(piece) = body.next().await {
        match piece {
            Ok(piece) => assert!(piece.iter().all(|byte| *byte == RUN[0]), "a flipped byte"),
            Err(_) => failed = true,
        }
    }
    assert!(failed, "an answer without its end looks like a whole one");
}
