//! Tests of pressure: the duration of client requests is measured, and reported to background work
//! only.

use std::sync::Arc;
use std::time::Duration;

use martlet_protocol::backend::{CallKind, Want};
use martlet_protocol::http::ClientOptions;
use martlet_protocol::testing::{Call, Fault, FaultyBackend};
use martlet_protocol::{BackendExt, Term};

use crate::world::{DEVICE, TestNode, listener, listener_with, memory, register};

/// A node with slow reads and slower sums.
async fn slow() -> TestNode {
    let choose = |call: &Call<'_>| match call.op {
        CallKind::Read => Fault::Delay(Duration::from_millis(60)),
        CallKind::Sums => Fault::Delay(Duration::from_millis(400)),
        _ => Fault::None,
    };
    TestNode::start(Arc::new(FaultyBackend::new(memory(), choose))).await
}

#[tokio::test]
async fn background_work_receives_the_wait_of_clients_and_adds_none() {
    let node = slow().await;
    let (clients, told_clients) = listener(&node);
    let options = ClientOptions { is_background: true, ..ClientOptions::default() };
    let (workers, told_workers) = listener_with(&node, options);
    let clients_wait_of_last = || told_workers.lock().last().unwrap().clients_wait.unwrap();
    workers.sums(DEVICE, &[martlet_protocol::tree::Span::ALL]).await.unwrap();
    assert_eq!(clients_wait_of_last(), Duration::ZERO, "no client waits, and work doesn't count");
    let key = register();
    let reads = (0..64).map(|_| clients.read(DEVICE, &key, Want::Entry, Term::ANY));
    for read in futures::future::join_all(reads).await {
        read.unwrap();
    }
    workers.hints(DEVICE, None, 1).await.unwrap();
    assert!(clients_wait_of_last() > Duration::from_millis(40), "{:?}", clients_wait_of_last());
    assert!(told_clients.lock().iter().all(|report| report.clients_wait.is_none()));
    // The average expires after one second without client requests.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    workers.hints(DEVICE, None, 1).await.unwrap();
    assert_eq!(clients_wait_of_last(), Duration::ZERO);
}
