//! Tests of refusals: unauthenticated requests, and requests beyond limits.

use martlet_protocol::Term;
use std::sync::Arc;
use std::time::Duration;

use martlet_protocol::backend::{CallKind, Want};
use martlet_protocol::http::{ClientOptions, HttpBackend, ServerOptions};
use martlet_protocol::testing::{Fault, FaultyBackend};
use martlet_protocol::{Backend, BackendExt, Clock, ErrorKind, ManualClock, SystemClock};
use parking_lot::Mutex;
use tokio::io::AsyncReadExt;

use crate::world::{
    DEVICE, TestNode, client, head, impostor, memory, patience, raw, register, soon, write,
};

/// Records a signed request of a client: head and body.
async fn recorded() -> (String, Vec<u8>) {
    let record = Arc::new(Mutex::new(None));
    let keep = record.clone();
    let address = impostor(move |mut stream| {
        let keep = keep.clone();
        async move {
            let mut bytes = head(&mut stream).await;
            let at = bytes.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
            let text = String::from_utf8(bytes[..at].to_vec()).unwrap();
            let length = text.lines().find_map(|line| line.strip_prefix("content-length: "));
            let length: usize = length.unwrap().parse().unwrap();
            let mut body = bytes.split_off(at);
            let have = body.len();
            body.resize(length, 0);
            stream.read_exact(&mut body[have..]).await.unwrap();
            *keep.lock() = Some((text, body));
        }
    })
    .await;
    let _ = client(address, ClientOptions::default()).write(DEVICE, write(&register())).await;
    let taken = record.lock().take();
    taken.expect("the request was recorded")
}

fn joined(head: &str, body: &[u8]) -> Vec<u8> {
    [head.as_bytes(), body].concat()
}

#[tokio::test]
async fn only_the_very_request_that_was_signed_is_let_through() {
    let node = TestNode::start(memory()).await;
    let (head, body) = recorded().await;
    assert_eq!(raw(node.address, &joined(&head, &body)).await, Some(200));

    let line = |name: &str| head.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    let date = line("x-martlet-date: ");
    let now_ms: u64 = date.split(' ').nth(1).unwrap().parse().unwrap();
    let old = format!("x-martlet-date: {}", now_ms - 16 * 60 * 1000);
    let cases = [
        ("method", head.replacen("POST", "PUT", 1), 403),
        ("path", head.replacen("/v1/d/3/write", "/v1/d/3/keep-hint", 1), 403),
        ("query", head.replacen("/v1/d/3/write", "/v1/d/3/write?a", 1), 403),
        ("date", head.replacen(&date, &format!("{date}0"), 1), 403),
        ("an old date", head.replacen(&date, &old, 1), 403),
        ("no date", head.replacen(&format!("{date}\r\n"), "", 1), 401),
        ("deadline", head.replacen(&line("x-martlet-deadline: "), "x-martlet-deadline: 1", 1), 403),
        ("another header", head.replacen("host: ", "x-martlet-extra: 1\r\nhost: ", 1), 403),
        ("no digest", head.replacen(&format!("{}\r\n", line("x-martlet-digest: ")), "", 1), 403),
        (
            "a streamed body",
            head.replacen(&line("x-martlet-digest: "), "x-martlet-digest: streamed", 1),
            403,
        ),
        (
            "signature",
            head.replacen(&line("x-martlet-signature: "), "x-martlet-signature: 00", 1),
            403,
        ),
        (
            "no signature",
            head.replacen(&format!("{}\r\n", line("x-martlet-signature: ")), "", 1),
            401,
        ),
    ];
    for (what, changed, status) in cases {
        assert_ne!(changed, head, "{what}");
        assert_eq!(raw(node.address, &joined(&changed, &body)).await, Some(status), "{what}");
    }
    let mut other = body.clone();
    *other.last_mut().unwrap() ^= 1;
    assert_eq!(raw(node.address, &joined(&head, &other)).await, Some(403), "body");
}

#[tokio::test]
async fn another_key_and_another_time_are_refused_without_effect() {
    let node = TestNode::start(memory()).await;
    let other = "00".repeat(32).parse().unwrap();
    let address = node.address.to_string();
    let stranger = HttpBackend::new(address, other, ClientOptions::default(), Arc::new(|_| ()));
    let late = ManualClock::at(SystemClock.now_ms() - 16 * 60 * 1000);
    let late = ClientOptions { clock: Arc::new(late), ..ClientOptions::default() };
    for client in [stranger, client(node.address, late)] {
        for _ in 0..3 {
            let error = client.devices().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            assert!(error.had_no_effect() && error.to_string().contains("403"), "{error}");
        }
    }
    assert_eq!(raw(node.address, b"GET /v1/devices HTTP/1.1\r\n\r\n").await, Some(401));
    assert_eq!(raw(node.address, b"GET /other HTTP/1.1\r\n\r\n").await, Some(401));
}

#[tokio::test]
async fn a_body_that_claims_too_much_is_refused_before_it_is_read() {
    let node = TestNode::start(memory()).await;
    let (head, body) = recorded().await;
    let length = format!("content-length: {}", body.len());
    let changed = head.replacen(&length, "content-length: 2000000000", 1);
    assert_ne!(changed, head);
    assert_eq!(raw(node.address, changed.as_bytes()).await, Some(400));
}

#[tokio::test]
async fn a_reply_that_claims_too_much_is_not_read() {
    let address = impostor(|mut stream| async move {
        use tokio::io::AsyncWriteExt;
        head(&mut stream).await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 90000000000\r\n\r\nx").await;
        std::future::pending::<()>().await;
    })
    .await;
    let client = client(address, ClientOptions::default());
    let error = client.read(DEVICE, &register(), Want::Entry, Term::ANY).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Internal);
}

/// A node with one permit whose reads never end.
async fn full_house() -> TestNode {
    let faulty = FaultyBackend::new(memory(), |call| match call.op {
        CallKind::Read => Fault::Hang,
        _ => Fault::None,
    });
    let options = ServerOptions { in_flight_max: 1, ..ServerOptions::default() };
    TestNode::with(Arc::new(faulty), options).await
}

#[tokio::test]
async fn calls_beyond_the_nodes_memory_get_a_retry_later() {
    let node = full_house().await;
    let client = Arc::new(node.client());
    let asker = client.clone();
    let hanging =
        tokio::spawn(async move { asker.read(DEVICE, &register(), Want::Entry, Term::ANY).await });
    soon("the place is taken", async || client.devices().await.is_err()).await;
    let error = client.devices().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(
        error.had_no_effect() && error.to_string().contains("too many concurrent requests"),
        "{error}"
    );
    hanging.abort();
    soon("whoever hangs up leaves a place", async || client.devices().await.is_ok()).await;
}

#[tokio::test]
async fn no_work_continues_past_the_callers_deadline() {
    let node = full_house().await;
    let hasty = client(node.address, patience(Duration::from_millis(200)));
    let error = hasty.read(DEVICE, &register(), Want::Entry, Term::ANY).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let other = node.client();
    soon("the place is free again", async || other.devices().await.is_ok()).await;
}
