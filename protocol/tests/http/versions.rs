//! Tests of nodes and clients of different releases: versions in common, refusals, replacements.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use martlet_protocol::backend::Want;
use martlet_protocol::http::{
    Announcement, ClientOptions, HttpBackend, ReleaseTag, ServerOptions, guarded, router,
};
use martlet_protocol::release::FORMATS;
use martlet_protocol::testing::{MemoryBackend, conformance};
use martlet_protocol::tree::Span;
use martlet_protocol::{BackendExt, ErrorKind, Release, SystemClock, Term, VersionRange};
use parking_lot::Mutex;

use crate::world::{DEVICE, TestNode, client, key, memory, register, soon, tag, write};

/// Release that speaks these versions.
fn release(oldest: u16, newest: u16) -> ReleaseTag {
    let wire = VersionRange { oldest, newest };
    ReleaseTag::new(Release { wire, name: format!("r{newest}"), ..Release::own(FORMATS.oldest) })
}

fn options(release: ReleaseTag) -> ClientOptions {
    ClientOptions { release, ..ClientOptions::default() }
}

/// Node of a release. One of version 0 announces nothing.
fn node(memory: Arc<MemoryBackend>, oldest: u16, newest: u16) -> Router {
    let (own, is_silent) = (release(oldest, newest), newest == 0);
    let announce = move || Announcement::new(&[tag()]).with_release(own.clone());
    let app = router(memory, ServerOptions::default());
    let app = guarded(app, key(), Arc::new(SystemClock), Arc::new(announce));
    app.layer(from_fn(move |request: Request, next: Next| async move {
        let mut reply: Response = next.run(request).await;
        if is_silent {
            reply.headers_mut().remove("x-martlet-release");
        }
        reply
    }))
}

async fn start(oldest: u16, newest: u16) -> TestNode {
    TestNode::serve("127.0.0.1:0".parse().unwrap(), node(memory(), oldest, newest)).await
}

async fn open_channel(client: &HttpBackend) {
    soon("a channel is open", async || {
        let _ = client.sums(DEVICE, &[Span::ALL]).await;
        client.has_channel()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn releases_with_a_common_version_pass_the_suite_by_a_channel() {
    for (of_node, of_client) in
        [((0, 0), (0, 1)), ((0, 1), (0, 0)), ((0, 1), (1, 2)), ((1, 2), (0, 1))]
    {
        let node = start(of_node.0, of_node.1).await;
        let client = client(node.address, options(release(of_client.0, of_client.1)));
        // The first calls go by HTTP.
        open_channel(&client).await;
        conformance::all(&client, DEVICE).await;
        assert!(client.has_channel(), "node {of_node:?}, client {of_client:?}");
    }
}

#[tokio::test]
async fn a_caller_without_a_common_version_is_refused_before_any_effect() {
    let memory = memory();
    let address = "127.0.0.1:0".parse().unwrap();
    let node = TestNode::serve(address, node(memory.clone(), 2, 3)).await;
    for old in [release(0, 1), release(0, 0)] {
        let client = client(node.address, options(old));
        let register = register();
        let error = client.write(DEVICE, write(&register)).await.unwrap_err();
        assert!(error.kind() == ErrorKind::Unavailable && error.had_no_effect());
        let sentence = error.to_string();
        assert!(sentence.contains("(release r3) speaks versions 2 to 3"), "{sentence}");
        assert!(sentence.contains("upgrade this process to a release that speaks version 2"));
        let view = memory.read(DEVICE, &register, Want::Entry, Term::ANY).await.unwrap();
        assert!(view.entry.is_none(), "nothing was written");
        for _ in 0..6 {
            assert!(client.sums(DEVICE, &[Span::ALL]).await.is_err());
        }
        assert!(!client.has_channel());
    }
}

#[tokio::test]
async fn replies_of_a_node_without_a_common_version_are_not_used() {
    let node = start(0, 0).await;
    let reports = Arc::new(Mutex::new(Vec::new()));
    let keep = reports.clone();
    let observe = Arc::new(move |report| keep.lock().push(report));
    let address = node.address.to_string();
    let client = HttpBackend::new(address, key(), options(release(1, 2)), observe);
    let error = client.sums(DEVICE, &[Span::ALL]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("speak"), "{error}");
    let reported = reports.lock()[0].release.as_ref().unwrap().release();
    assert_eq!(reported, Release::unannounced(), "the report names the release");
}

/// Replaces a node by one of another release at its address.
async fn replace(node: TestNode, memory: &Arc<MemoryBackend>, newest: u16) -> TestNode {
    let address: SocketAddr = node.address;
    node.stop().await;
    TestNode::serve(address, self::node(memory.clone(), 0, newest)).await
}

#[tokio::test]
async fn a_client_with_an_open_channel_follows_its_node_up_and_down() {
    let memory = memory();
    let address = "127.0.0.1:0".parse().unwrap();
    let mut node = TestNode::serve(address, node(memory.clone(), 0, 0)).await;
    let client = client(node.address, ClientOptions::default());
    for newest in [1, 0, 2, 0] {
        open_channel(&client).await;
        node = replace(node, &memory, newest).await;
        let register = register();
        client.write(DEVICE, write(&register)).await.expect("nothing was sent before");
        open_channel(&client).await;
        let view = client.read(DEVICE, &register, Want::Entry, Term::ANY).await.unwrap();
        assert!(view.entry.is_some(), "version {newest}");
    }
    drop(node);
}
