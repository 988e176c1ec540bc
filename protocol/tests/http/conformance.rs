//! Conformance of the HTTP backend with the backend trait.

use martlet_protocol::Term;
use std::sync::Arc;

use axum::routing::{get, put};
use bytes::Bytes;
use martlet_protocol::backend::{ListRequest, ListStart, Want};
use martlet_protocol::http::{ClientOptions, router};
use martlet_protocol::testing::{Fault, FaultyBackend, conformance};
use martlet_protocol::{
    Backend, BackendExt, BucketId, Error, ErrorKind, ExtentId, RegisterKey, RegisterKind, Shard,
    SystemClock,
};

use crate::world::{
    DEVICE, TestNode, client, guard, key, listener, memory, register, stream, tag, write,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_suite_passes_over_http() {
    let node = TestNode::start(memory()).await;
    conformance::all(&node.client(), DEVICE).await;
    node.stop().await;
}

#[tokio::test]
async fn every_kind_of_error_comes_across() {
    for kind in [
        ErrorKind::NotFound,
        ErrorKind::Conflict,
        ErrorKind::Unavailable,
        ErrorKind::Full,
        ErrorKind::Corrupt,
        ErrorKind::Invalid,
        ErrorKind::Internal,
    ] {
        let faulty = FaultyBackend::new(memory(), move |_| Fault::Refuse(kind));
        let node = TestNode::start(Arc::new(faulty)).await;
        let client = node.client();
        let bytes = || stream(vec![Ok(Bytes::from_static(b"abc"))]);
        let errors: [Error; 3] = [
            client.read(DEVICE, &register(), Want::Entry, Term::ANY).await.unwrap_err(),
            client.write_extent(DEVICE, crate::world::extent(Some(3)), bytes()).await.unwrap_err(),
            client.read_extent(DEVICE, ExtentId::random(), 0..3).await.err().unwrap(),
        ];
        for (error, op) in errors.into_iter().zip(["Read", "WriteExtent", "ReadExtent"]) {
            assert_eq!((error.kind(), error.to_string()), (kind, format!("{op} was refused")));
            assert!(!error.had_no_effect(), "the node looked at it");
        }
    }
}

#[tokio::test]
async fn replies_carry_the_state_of_their_node() {
    let node = TestNode::start(memory()).await;
    let (client, reports) = listener(&node);
    client.devices().await.unwrap();
    client
        .read(martlet_protocol::DeviceId(9), &register(), Want::Entry, Term::ANY)
        .await
        .unwrap_err();
    let reports = reports.lock();
    assert_eq!(reports.len(), 2, "errors tell of their node too");
    for one in reports.iter() {
        assert!(one.now_ms.abs_diff(martlet_protocol::Clock::now_ms(&SystemClock)) < 60_000);
        assert!(one.round_trip.as_secs() < 5 && !one.round_trip.is_zero());
        assert_eq!(one.rings.iter().collect::<Vec<_>>(), [tag()]);
    }
}

#[tokio::test]
async fn routes_of_the_binary_are_under_the_same_guard() {
    let app = router(memory(), martlet_protocol::http::ServerOptions::default())
        .route("/v1/rings/{name}", get(|| async { Bytes::from(vec![7; 3000]) }))
        .route("/v1/echo", put(|body: Bytes| async { body }).post(|body: Bytes| async { body }));
    let node = TestNode::serve("127.0.0.1:0".parse().unwrap(), guard(app)).await;
    let client = node.client();
    assert_eq!(client.get("/v1/rings/index").await.unwrap(), vec![7; 3000]);
    assert_eq!(client.put("/v1/echo", Bytes::from_static(b"x")).await.unwrap(), "x");
    assert_eq!(client.post("/v1/echo", Bytes::new()).await.unwrap(), "");
    assert_eq!(
        crate::world::raw(node.address, b"GET /v1/rings/index HTTP/1.1\r\n\r\n").await,
        Some(401)
    );
    let options = ClientOptions { reply_bytes_max: 2999, ..ClientOptions::default() };
    let small = crate::world::client(node.address, options);
    assert_eq!(small.get("/v1/rings/index").await.unwrap_err().kind(), ErrorKind::Internal);
    assert_eq!(client.get("/v1/none").await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(client.get("no path").await.unwrap_err().kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn long_lists_of_ids_and_wide_pages_are_taken() {
    let node = TestNode::start(memory()).await;
    let client = node.client();
    let ids: Vec<_> = (0..10_000).map(|_| ExtentId::random()).collect();
    client.delete_extents(DEVICE, &ids).await.unwrap();
    let mut request = ListRequest {
        bucket: BucketId::random(),
        shards: (0..4096).map(Shard).collect(),
        kind: RegisterKind::Object,
        prefix: Bytes::new(),
        start: ListStart::First,
        limit: usize::MAX,
        fold: None,
        term: Term::ANY,
    };
    assert!(client.list(DEVICE, &request).await.unwrap().entries.is_empty());
    request.shards.push(Shard(0));
    assert_eq!(client.list(DEVICE, &request).await.unwrap_err().kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn a_page_is_bounded_for_every_requested_limit() {
    let memory = memory();
    let bucket = BucketId::random();
    for n in 0..1500 {
        let key = RegisterKey::object(bucket, 4, &n.to_string());
        memory.write(DEVICE, write(&key)).await.unwrap();
    }
    let node = TestNode::start(memory).await;
    let client = node.client();
    let first = client.registers(DEVICE, None, usize::MAX).await.unwrap();
    assert!((1000..1500).contains(&first.len()), "{}", first.len());
    let last = first.last().map(|(key, _)| key);
    let rest = client.registers(DEVICE, last, usize::MAX).await.unwrap();
    assert_eq!(first.len() + rest.len(), 1500);
}

#[tokio::test]
async fn a_restarted_node_is_called_over_a_new_connection() {
    let memory = memory();
    let node = TestNode::start(memory.clone()).await;
    let address = node.address;
    let client = client(address, ClientOptions::default());
    client.write(DEVICE, write(&register())).await.unwrap();
    for _ in 0..3 {
        client.devices().await.unwrap();
    }
    node.stop().await;
    let backend = router(memory, martlet_protocol::http::ServerOptions::default());
    let _node = TestNode::serve(address, guard(backend)).await;
    client.write(DEVICE, write(&register())).await.unwrap();
    assert!(format!("{client:?} {:?}", key()).contains(&address.to_string()));
}
