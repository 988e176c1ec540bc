//! Tests of channels between a client and a node: the suite of backends, restarts, peers without
//! channels, and a link whose bytes are changed, repeated or held back.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use martlet_protocol::backend::{CallKind, Want};
use martlet_protocol::http::{ClientOptions, HttpBackend, ServerOptions, router};
use martlet_protocol::testing::{Call, Fault, FaultyBackend, conformance};
use martlet_protocol::{Backend, BackendExt, ErrorKind, RegisterKey, Term};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::world::{
    DEVICE, TestNode, client, guard, impostor, memory, patience, register, soon, write,
};

/// Makes short calls until the client has a channel.
async fn open_channel(client: &HttpBackend) {
    soon("a channel is open", async || {
        let _ = client.sums(DEVICE, &[martlet_protocol::tree::Span::ALL]).await;
        client.has_channel()
    })
    .await;
}

async fn read(client: &HttpBackend, key: &RegisterKey) -> martlet_protocol::Result<bool> {
    let view = client.read(DEVICE, key, Want::Entry, Term::ANY).await?;
    Ok(view.entry.is_some())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_suite_passes_by_a_channel() {
    let node = TestNode::start(memory()).await;
    let client = node.client();
    open_channel(&client).await;
    conformance::all(&client, DEVICE).await;
    assert!(client.has_channel());
    node.stop().await;
    soon("the node's goodbye comes", async || !client.has_channel()).await;
}

#[tokio::test]
async fn after_a_restart_calls_go_on_and_a_channel_is_opened_again() {
    let memory = memory();
    let node = TestNode::start(memory.clone()).await;
    let address = node.address;
    let client = client(address, ClientOptions::default());
    for _ in 0..3 {
        open_channel(&client).await;
    }
    node.stop().await;
    let app = guard(router(memory.clone(), ServerOptions::default()));
    let node = TestNode::serve(address, app).await;
    let key = register();
    client.write(DEVICE, write(&key)).await.expect("nothing was sent on the old channel");
    assert!(read(&client, &key).await.unwrap());
    open_channel(&client).await;
    assert!(read(&client, &key).await.unwrap());
    drop(node);
}

#[tokio::test]
async fn a_node_that_dies_leaves_the_outcome_of_a_write_open_and_reads_are_repeated() {
    let hangs = Arc::new(AtomicBool::new(true));
    let flag = hangs.clone();
    let memory = memory();
    let choose = move |_: &Call<'_>| {
        if flag.load(Ordering::SeqCst) { Fault::Hang } else { Fault::None }
    };
    let faulty = Arc::new(FaultyBackend::new(memory.clone(), choose));
    hangs.store(false, Ordering::SeqCst);
    let node = TestNode::start(faulty.clone()).await;
    let address = node.address;
    let client = Arc::new(client(address, ClientOptions::default()));
    open_channel(&client).await;
    hangs.store(true, Ordering::SeqCst);
    let key = register();
    let (writer, reader) = (client.clone(), client.clone());
    let (sent, known) = (write(&key), key.clone());
    let writing = tokio::spawn(async move { writer.write(DEVICE, sent).await });
    let reading = tokio::spawn(async move { read(&reader, &known).await });
    soon("the node has the write", async || {
        memory.read(DEVICE, &key, Want::Entry, Term::ANY).await.unwrap().entry.is_some()
    })
    .await;
    node.kill().await;
    hangs.store(false, Ordering::SeqCst);
    let _node = TestNode::serve(address, guard(router(faulty, ServerOptions::default()))).await;
    let error = writing.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(!error.had_no_effect(), "the write may have taken effect: {error}");
    assert!(reading.await.unwrap().is_ok_and(|found| found), "the read was sent again");
}

#[tokio::test]
async fn a_node_without_channels_is_probed_once_and_called_over_http() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let without = move |request: Request, next: Next| {
        let count = count.clone();
        async move {
            if request.uri().path() == "/v1/channel" {
                count.fetch_add(1, Ordering::SeqCst);
                return StatusCode::NOT_FOUND.into_response();
            }
            let reply: Response = next.run(request).await;
            reply
        }
    };
    let app = guard(router(memory(), ServerOptions::default()).layer(from_fn(without)));
    let node = TestNode::serve("127.0.0.1:0".parse().unwrap(), app).await;
    let client = node.client();
    let key = register();
    client.write(DEVICE, write(&key)).await.unwrap();
    soon("the node is asked", async || {
        assert!(read(&client, &key).await.unwrap());
        asked.load(Ordering::SeqCst) > 0
    })
    .await;
    for _ in 0..50 {
        assert!(read(&client, &key).await.unwrap());
        tokio::task::yield_now().await;
    }
    assert!(!client.has_channel());
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_client_may_do_without_channels() {
    let node = TestNode::start(memory()).await;
    let client = client(node.address, ClientOptions { channels: false, ..Default::default() });
    conformance::all(&client, DEVICE).await;
    assert!(!client.has_channel());
}

#[tokio::test]
async fn dropped_calls_leave_their_permits_and_too_many_are_refused() {
    let choose = |call: &Call<'_>| match call.op {
        CallKind::Read => Fault::Hang,
        _ => Fault::None,
    };
    let faulty = Arc::new(FaultyBackend::new(memory(), choose));
    let options = ServerOptions { in_flight_max: 1, ..ServerOptions::default() };
    let node = TestNode::with(faulty, options).await;
    let client = Arc::new(node.client());
    open_channel(&client).await;
    let asker = client.clone();
    let hanging = tokio::spawn(async move { read(&asker, &register()).await });
    let sums = async || client.sums(DEVICE, &[martlet_protocol::tree::Span::ALL]).await;
    soon("the permit is taken", async || sums().await.is_err()).await;
    let error = sums().await.unwrap_err();
    assert!(error.had_no_effect() && error.to_string().contains("too many"), "{error}");
    hanging.abort();
    soon("the permit is free again", async || sums().await.is_ok()).await;
    assert!(client.has_channel());
}

#[tokio::test]
async fn calls_end_with_their_deadline_and_the_channel_is_renewed() {
    let choose = |call: &Call<'_>| match call.op {
        CallKind::Read => Fault::Hang,
        _ => Fault::None,
    };
    let node = TestNode::start(Arc::new(FaultyBackend::new(memory(), choose))).await;
    let client = client(node.address, patience(Duration::from_millis(300)));
    open_channel(&client).await;
    let error = read(&client, &register()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    open_channel(&client).await;
}

/// Change of a chunk of bytes on a link. Armed once a channel is open, for the next chunk.
type Tampering = fn(&mut Vec<u8>);

/// A link to a node, through a party that can change bytes.
#[derive(Clone, Default)]
struct Link {
    to_node: Arc<Mutex<Option<Tampering>>>,
    to_client: Arc<Mutex<Option<Tampering>>>,
}

impl Link {
    async fn open(&self, node: SocketAddr) -> SocketAddr {
        let link = self.clone();
        impostor(move |stream| {
            let link = link.clone();
            async move {
                let Ok(beyond) = TcpStream::connect(node).await else { return };
                let (near_reader, near_writer) = stream.into_split();
                let (far_reader, far_writer) = beyond.into_split();
                let there = pass(near_reader, far_writer, link.to_node.clone());
                let back = pass(far_reader, near_writer, link.to_client.clone());
                tokio::join!(there, back);
            }
        })
        .await
    }
}

async fn pass(
    mut reader: tokio::net::tcp::OwnedReadHalf,
    mut writer: tokio::net::tcp::OwnedWriteHalf,
    tampering: Arc<Mutex<Option<Tampering>>>,
) {
    let mut bytes = vec![0; 64 * 1024];
    while let Ok(n @ 1..) = reader.read(&mut bytes).await {
        let mut chunk = bytes[..n].to_vec();
        let armed = tampering.lock().take();
        if let Some(tamper) = armed {
            tamper(&mut chunk);
        }
        if writer.write_all(&chunk).await.is_err() {
            return;
        }
    }
}

#[tokio::test]
async fn changed_and_repeated_bytes_have_no_effect() {
    let tamperings: [(&str, Tampering); 4] = [
        ("a flipped bit of the arguments", |chunk| chunk[60] ^= 1),
        ("a flipped bit of the MAC", |chunk| *chunk.last_mut().unwrap() ^= 1),
        ("a forged length", |chunk| chunk[2] ^= 0x40),
        ("nothing of the chunk left", Vec::clear),
    ];
    for (what, tamper) in tamperings {
        let memory = memory();
        let node = TestNode::start(memory.clone()).await;
        let link = Link::default();
        let client = client(link.open(node.address).await, patience(Duration::from_secs(1)));
        open_channel(&client).await;
        let key = register();
        *link.to_node.lock() = Some(tamper);
        let error = client.write(DEVICE, write(&key)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{what}");
        assert!(!error.had_no_effect(), "{what}: {error}");
        let view = memory.read(DEVICE, &key, Want::Entry, Term::ANY).await.unwrap();
        assert_eq!(view.entry, None, "{what}");
    }
}

#[tokio::test]
async fn changed_replies_are_not_believed() {
    let memory = memory();
    let node = TestNode::start(memory.clone()).await;
    let link = Link::default();
    let client = client(link.open(node.address).await, ClientOptions::default());
    let key = register();
    client.write(DEVICE, write(&key)).await.unwrap();
    open_channel(&client).await;
    *link.to_client.lock() = Some(|chunk| {
        let at = chunk.len() / 2;
        chunk[at] ^= 1;
    });
    assert!(read(&client, &key).await.unwrap(), "the read is sent again over HTTP");
    assert!(link.to_client.lock().is_none(), "a reply was changed");
    assert!(!client.has_channel());
    open_channel(&client).await;
}

#[tokio::test]
async fn repeated_calls_are_performed_once() {
    let writes = Arc::new(AtomicUsize::new(0));
    let count = writes.clone();
    let choose = move |call: &Call<'_>| {
        count.fetch_add(usize::from(call.op == CallKind::Write), Ordering::SeqCst);
        Fault::None
    };
    let node = TestNode::start(Arc::new(FaultyBackend::new(memory(), choose))).await;
    let link = Link::default();
    let client = client(link.open(node.address).await, ClientOptions::default());
    open_channel(&client).await;
    *link.to_node.lock() = Some(|chunk| chunk.extend(chunk.clone()));
    // The node cuts the channel at the repetition, perhaps before it has sent the reply.
    let _ = client.write(DEVICE, write(&register())).await;
    soon("the node has cut the channel", async || !client.has_channel()).await;
    assert_eq!(writes.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_callers_share_a_channel() {
    let node = TestNode::start(memory()).await;
    let client = Arc::new(node.client());
    open_channel(&client).await;
    let callers = (0..64).map(|caller| {
        let client = client.clone();
        tokio::spawn(async move {
            for n in 0..50 {
                let key = RegisterKey::object(register().bucket, 4, &format!("{caller}/{n}"));
                assert!(!read(&client, &key).await.unwrap());
                client.write(DEVICE, write(&key)).await.unwrap();
                assert!(read(&client, &key).await.unwrap());
            }
        })
    });
    futures::future::try_join_all(callers).await.unwrap();
    assert!(client.has_channel());
    let _ = client.devices().await.unwrap();
}
