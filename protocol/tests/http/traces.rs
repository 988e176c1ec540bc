//! Tests of spans that cross from a client to a node: by HTTP, by a channel, and in streams.

use std::sync::Arc;

use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use martlet_protocol::backend::Want;
use martlet_protocol::http::{ClientOptions, ServerOptions, router, scope_of_headers};
use martlet_protocol::trace::{
    FinishedSpan, SpanContext, SpanKind, SpanScope, SpanSink, SpanValue,
};
use martlet_protocol::{Backend, BackendExt, Term};
use parking_lot::Mutex;

use crate::world::{
    DEVICE, TestNode, client, collect, extent, guard, memory, register, soon, stream,
};

#[derive(Default)]
struct Kept(Mutex<Vec<FinishedSpan>>);

impl SpanSink for Kept {
    fn record(&self, span: FinishedSpan) {
        self.0.lock().push(span);
    }
}

impl Kept {
    fn take(&self) -> Vec<FinishedSpan> {
        std::mem::take(&mut *self.0.lock())
    }
}

/// A node that records spans, and the spans.
async fn node() -> (TestNode, Arc<Kept>) {
    let kept = Arc::new(Kept::default());
    let options = ServerOptions { spans: Some(kept.clone()), ..ServerOptions::default() };
    let sink: Arc<dyn SpanSink> = kept.clone();
    let scoped = from_fn(move |request: Request, next: Next| {
        let scope = scope_of_headers(request.headers(), &sink);
        async move {
            match scope {
                Some(scope) => scope.run(next.run(request)).await,
                None => next.run(request).await,
            }
        }
    });
    let app = guard(router(memory(), options).layer(scoped));
    (TestNode::serve("127.0.0.1:0".parse().unwrap(), app).await, kept)
}

/// Runs `work` as a sampled request; returns its context and the spans of the client.
async fn sampled(work: impl Future<Output = ()>) -> (SpanContext, Vec<FinishedSpan>) {
    let kept = Arc::new(Kept::default());
    let context = SpanContext::new_root();
    SpanScope::of_remote(context, kept.clone()).run(work).await;
    (context, kept.take())
}

/// Asserts that a node served the call of a client's span under it.
fn assert_served(context: SpanContext, sent: &FinishedSpan, served: &FinishedSpan) {
    assert_eq!((sent.kind, served.kind), (SpanKind::Client, SpanKind::Server));
    assert_eq!(sent.name, served.name);
    assert_eq!(sent.parent, Some(context.span));
    assert_eq!(served.parent, Some(sent.context.span));
    assert_eq!([sent.context.trace, served.context.trace], [context.trace; 2]);
    for span in [sent, served] {
        let device = ("martlet.device", SpanValue::Number(DEVICE.0.into()));
        assert!(span.attributes.contains(&device), "{span:?}");
        assert!(span.attributes.contains(&("martlet.outcome", SpanValue::Name("ok"))), "{span:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_is_a_span_at_its_client_and_one_at_its_node() {
    let (node, kept) = node().await;
    for channels in [false, true] {
        let options = ClientOptions { channels, ..ClientOptions::default() };
        let client = client(node.address, options);
        let key = register();
        let read = async || {
            client.read(DEVICE, &key, Want::Entry, Term::ANY).await.unwrap();
        };
        if channels {
            soon("a channel is open", async || {
                read().await;
                client.has_channel()
            })
            .await;
        }
        read().await;
        assert!(kept.take().is_empty(), "calls that are not sampled have no spans");
        let (context, sent) = sampled(read()).await;
        let served = kept.take();
        assert_eq!((sent.len(), served.len(), sent[0].name), (1, 1, "read"));
        assert_served(context, &sent[0], &served[0]);
        assert_eq!(client.has_channel(), channels);
    }
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spans_of_extents_last_until_the_last_byte() {
    let (node, kept) = node().await;
    let client = node.client();
    let new = extent(Some(5));
    let id = new.id;
    let body = stream(vec![Ok("hello".into())]);
    let work = async {
        client.write_extent(DEVICE, new, body).await.unwrap();
    };
    let (context, sent) = sampled(work).await;
    let served = kept.take();
    assert_eq!((sent.len(), served.len(), sent[0].name), (1, 1, "write-extent"));
    assert_served(context, &sent[0], &served[0]);
    let read = async {
        let stream = client.read_extent(DEVICE, id, 0..5).await.unwrap();
        assert_eq!(collect(stream).await.unwrap(), b"hello");
    };
    let (context, sent) = sampled(read).await;
    soon("the node has sent all", async || !kept.0.lock().is_empty()).await;
    let served = kept.take();
    assert_eq!(sent[0].name, "read-extent");
    assert_served(context, &sent[0], &served[0]);
    let bytes = ("martlet.bytes", SpanValue::Number(5));
    assert!([&sent[0], &served[0]].iter().all(|span| span.attributes.contains(&bytes)));
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_without_traces_serves_sampled_calls() {
    let node = TestNode::start(memory()).await;
    let client = node.client();
    let key = register();
    let work = async {
        for _ in 0..20 {
            client.read(DEVICE, &key, Want::Entry, Term::ANY).await.unwrap();
        }
    };
    let (_, sent) = sampled(work).await;
    assert_eq!(sent.len(), 20);
    node.stop().await;
}
