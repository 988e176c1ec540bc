//! Traces of requests: one tree of spans over the processes that worked for a request, sampling, and
//! collectors that are away.

use std::time::{Duration, Instant};

use bytes::Bytes;
use martlet_tests::Setup;
use martlet_tests::cluster::ClusterPlan;
use martlet_tests::otlp::{ReceivedSpan, TraceCollector};
use serde_json::Value;

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// Returns the roots of nodes' spans: spans of other processes than the proxy whose parent is a
/// call of the proxy.
fn served_calls(spans: &[ReceivedSpan]) -> Vec<&ReceivedSpan> {
    let of_proxy = |id: &str| spans.iter().any(|span| span.id == id && span.is_client);
    let is_served =
        |span: &&ReceivedSpan| span.process.starts_with("storage-node/") && of_proxy(&span.parent);
    spans.iter().filter(is_served).collect()
}

/// Returns true if the root is there, the parent of each span, and two served calls.
fn is_whole(spans: &[ReceivedSpan]) -> bool {
    let has_parent = |span: &ReceivedSpan| spans.iter().any(|other| other.id == span.parent);
    let has_root = spans.iter().any(|span| span.parent.is_empty());
    let is_rooted = spans.iter().all(|span| span.parent.is_empty() || has_parent(span));
    has_root && is_rooted && served_calls(spans).len() >= 2
}

/// Asserts that the spans form one tree, whose root belongs to the proxy.
fn assert_tree(spans: &[ReceivedSpan], operation: &str) {
    let (roots, others): (Vec<_>, Vec<_>) = spans.iter().partition(|span| span.parent.is_empty());
    let [root] = roots[..] else { panic!("{roots:#?}") };
    assert_eq!((&*root.process, &*root.name), ("proxy/p1", operation));
    assert_eq!((root.get("aws.s3.bucket"), root.get("aws.s3.key")), ("traced", ""));
    for span in others {
        let parent = spans.iter().find(|other| other.id == span.parent);
        let parent = parent.unwrap_or_else(|| panic!("no parent of {span:#?}"));
        let is_same_process = parent.process == span.process;
        assert_eq!(is_same_process, !parent.is_client, "{parent:#?} above {span:#?}");
        if span.is_client {
            assert_eq!(span.process, root.process);
            assert!(!span.get("server.address").is_empty(), "{span:#?}");
            assert!(!span.get("martlet.device").is_empty(), "{span:#?}");
        }
    }
}

/// Asserts that a log has a line of the request with this id and trace.
fn assert_logged(log: &str, id: &str, trace: &str) {
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut of_request = lines.filter(|line| line["request_id"] == id).peekable();
    assert!(of_request.peek().is_some(), "no line of {id}");
    assert!(of_request.all(|line| line["trace_id"] == trace), "lines of {id} without {trace}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_is_one_tree_of_spans_over_proxy_and_nodes() {
    let collector = TraceCollector::start().await;
    let endpoint: &'static str = collector.endpoint().leak();
    let plan = ClusterPlan {
        nodes: 3,
        proxies: 1,
        replicators: false,
        environment: vec![
            ("MARTLET_OTLP_ENDPOINT", endpoint),
            ("MARTLET_TRACE_SAMPLE", "1"),
            ("MARTLET_LOG", "info,martlet=debug"),
            ("MARTLET_LOG_FORMAT", "json"),
        ],
        ..ClusterPlan::default()
    };
    let cluster = plan.start().await;
    let mut client = cluster.client(0);
    client.make_bucket("traced").await;
    for (key, length) in [("small", 100), ("packed", 200_000), ("large", 3 << 20)] {
        let (target, body) = (format!("/traced/{key}"), Bytes::from(vec![7; length]));
        let put = client.put(&target, body.clone()).await.unwrap();
        let got = client.get(&target).await.unwrap();
        assert_eq!((put.status, got.status, &got.body), (200, 200, &body));
        for (reply, operation) in [(put, "PutObject"), (got, "GetObject")] {
            let id = reply.header("x-amz-request-id");
            let spans = collector.trace_of(id, is_whole).await;
            assert_tree(&spans, operation);
            let root = spans.iter().find(|span| span.parent.is_empty()).unwrap();
            assert_eq!(root.get("aws.request_id"), id);
            assert_eq!(root.get("http.response.status_code"), "200");
            let bytes = if operation == "PutObject" { "request" } else { "response" };
            let bytes = root.get(&format!("http.{bytes}.body.size")).to_owned();
            assert_eq!(bytes, length.to_string(), "{root:#?}");
            let served = served_calls(&spans);
            let on_nodes: std::collections::BTreeSet<_> =
                served.iter().map(|span| &span.process).collect();
            assert!(on_nodes.len() >= 2 || operation == "GetObject", "{on_nodes:?}");
            assert!(served.iter().any(|span| span.get("aws.request_id") == id), "{served:#?}");
            if operation == "PutObject" {
                let is_commit = |span: &ReceivedSpan| span.name == "commit of the index";
                assert!(spans.iter().any(is_commit), "{spans:#?}");
            }
            assert_logged(&cluster.proxies[0].logged(), id, &root.trace);
            let node = cluster.nodes.iter().find(|node| {
                served.iter().any(|span| {
                    span.process.ends_with(&node.name) && span.get("aws.request_id") == id
                })
            });
            assert_logged(&node.unwrap().logged(), id, &root.trace);
        }
    }
    let exported = cluster.nodes[0].metric("martlet_trace_spans_exported_total").await;
    assert!(exported.unwrap() > 0);
    cluster.assert_no_panic();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_get_traces_up_to_their_bound_and_only_for_valid_parents() {
    let collector = TraceCollector::start().await;
    let server = Setup::new()
        .set("MARTLET_OTLP_ENDPOINT", &collector.endpoint())
        .set("MARTLET_TRACE_SAMPLE", "0")
        .set("MARTLET_TRACE_KEYS", "true")
        .start()
        .await;
    let mut client = server.client();
    client.make_bucket("traced").await;
    let malformed = PARENT.replace("4bf9", "XXXX");
    let unsampled = PARENT.replace("-01", "-00");
    for parent in [&malformed, &unsampled, "00-0-0-01", "x"] {
        let headers = [("traceparent", parent)];
        let reply = client.send_with("GET", "/traced", &headers, Bytes::new()).await.unwrap();
        assert_eq!(reply.status, 200);
    }
    let began = Instant::now();
    let mut last = String::new();
    for _ in 0..50 {
        let headers = [("traceparent", PARENT)];
        let reply = client.send_with("PUT", "/traced/key", &headers, "x".into()).await.unwrap();
        assert_eq!(reply.status, 200);
        reply.header("x-amz-request-id").clone_into(&mut last);
    }
    let seconds = usize::try_from(began.elapsed().as_secs()).unwrap() + 2;
    let is_root = |span: &&ReceivedSpan| span.parent == PARENT[36..52];
    let wait = Instant::now();
    while collector.spans().iter().filter(is_root).count() == 0 {
        assert!(wait.elapsed() < Duration::from_secs(20), "no span came");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let mut server = server;
    assert!(server.stop().await.success());
    let spans = collector.spans();
    let roots: Vec<_> = spans.iter().filter(is_root).collect();
    assert!((1..=seconds).contains(&roots.len()), "{} in {seconds} s", roots.len());
    for root in roots {
        assert_eq!((&*root.trace, &*root.name), (&PARENT[3..35], "PutObject"));
        assert_eq!(root.get("aws.s3.key"), "key", "a setting allows keys");
    }
    assert!(spans.iter().all(|span| span.trace == PARENT[3..35]), "{spans:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_are_not_sampled_send_no_span() {
    let collector = TraceCollector::start().await;
    let mut server = Setup::new()
        .set("MARTLET_OTLP_ENDPOINT", &collector.endpoint())
        .set("MARTLET_TRACE_SAMPLE", "0")
        .set("MARTLET_MAX_CLIENT_TRACES", "0")
        .start()
        .await;
    let mut client = server.client();
    client.make_bucket("traced").await;
    for _ in 0..20 {
        let headers = [("traceparent", PARENT)];
        let reply = client.send_with("PUT", "/traced/key", &headers, "x".into()).await.unwrap();
        assert_eq!(reply.status, 200);
    }
    assert_eq!(server.metric("martlet_trace_spans_exported_total").await, 0);
    assert!(server.stop().await.success());
    assert!(collector.spans().is_empty(), "{:#?}", collector.spans());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_go_on_while_the_collector_is_away() {
    // Nothing listens on the discard port of this address.
    let mut server = Setup::new()
        .set("MARTLET_OTLP_ENDPOINT", "http://127.0.0.1:9")
        .set("MARTLET_TRACE_SAMPLE", "1")
        .start()
        .await;
    let mut client = server.client();
    client.make_bucket("traced").await;
    let body = Bytes::from_static(b"x");
    assert_eq!(client.put("/traced/key", body.clone()).await.unwrap().status, 200);
    let full = "martlet_trace_spans_dropped_total{reason=\"queue_full\"} 0";
    let began = Instant::now();
    while server.admin("/metrics").await.unwrap().text().contains(full) {
        assert!(began.elapsed() < Duration::from_mins(2), "the queue has no end");
        for _ in 0..200 {
            assert_eq!(client.get("/traced/key").await.unwrap().body, body);
        }
    }
    assert!(server.metric("martlet_trace_export_failures_total").await > 0);
    assert_eq!(server.metric("martlet_trace_spans_exported_total").await, 0);
    let began = Instant::now();
    assert!(server.stop().await.success());
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

#[test]
fn settings_of_traces_that_cannot_work_are_refused() {
    for (name, value, part) in [
        ("MARTLET_OTLP_ENDPOINT", "collector:4318", "http://host:4318"),
        ("MARTLET_OTLP_ENDPOINT", "http://me:s3cret@c", "otlp_headers_file"),
        ("MARTLET_TRACE_SAMPLE", "2", "from 0 to 1"),
        ("MARTLET_TRACE_SAMPLE", "much", "from 0 to 1"),
        ("MARTLET_TRACE_ATTRIBUTES", "zone", "NAME=VALUE"),
    ] {
        let (_, sentence) = Setup::new().set(name, value).refusal();
        assert!(sentence.contains(part) && !sentence.contains("s3cret"), "{sentence}");
    }
}
