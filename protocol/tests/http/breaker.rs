//! Tests of the circuit breaker: calls to an unreachable node fail at once, and recover with the
//! node.

use martlet_protocol::Term;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use martlet_protocol::backend::Want;
use martlet_protocol::http::{ClientOptions, ServerOptions, router};
use martlet_protocol::{Backend, BackendExt, DeviceId, ErrorKind};
use tokio::net::TcpListener;

use crate::world::{
    DEVICE, TestNode, client, guard, head, impostor, memory, patience, register, soon,
};

#[tokio::test]
async fn a_refused_connection_fails_at_once_and_heals() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let client = client(address, ClientOptions::default());
    let began = Instant::now();
    for _ in 0..1000 {
        let error = client.read(DEVICE, &register(), Want::Entry, Term::ANY).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.had_no_effect(), "{error}");
    }
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    let _node = TestNode::serve(address, guard(router(memory(), ServerOptions::default()))).await;
    soon("the node is found again", async || client.devices().await.is_ok()).await;
    client.devices().await.expect("and stays found");
}

#[tokio::test]
async fn a_silent_node_gets_single_probes() {
    let requests = Arc::new(AtomicUsize::new(0));
    let count = requests.clone();
    let address = impostor(move |mut stream| {
        let count = count.clone();
        async move {
            head(&mut stream).await;
            count.fetch_add(1, Ordering::SeqCst);
            std::future::pending::<()>().await;
        }
    })
    .await;
    let client = client(address, patience(Duration::from_millis(50)));
    let began = Instant::now();
    let mut failed = 0;
    while began.elapsed() < Duration::from_millis(1500) {
        let calls = (0..10).map(|_| client.devices());
        let errors = futures::future::join_all(calls).await;
        failed += errors.iter().filter(|one| one.is_err()).count();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let requests = requests.load(Ordering::SeqCst);
    assert!(failed > 100, "{failed} calls were made and failed");
    assert!((11..=14).contains(&requests), "{requests} requests: ten at first, then probes");
}

#[tokio::test]
async fn errors_that_the_node_answers_open_nothing() {
    let node = TestNode::start(memory()).await;
    let client = node.client();
    for _ in 0..100 {
        let error =
            client.read(DeviceId(9), &register(), Want::Entry, Term::ANY).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
    }
    client.devices().await.unwrap();
}

#[tokio::test]
async fn callers_that_give_up_soon_open_nothing() {
    let address = impostor(|mut stream| async move {
        head(&mut stream).await;
        std::future::pending::<()>().await;
    })
    .await;
    let client = client(address, ClientOptions::default());
    for _ in 0..20 {
        let call = tokio::time::timeout(Duration::from_millis(10), client.devices());
        assert!(call.await.is_err(), "it waits for its own deadline, not for the breaker's");
    }
}
