//! The internal port of a storage node accepts only requests that are signed with the cluster key.
//! It refuses an unsigned request, a wrong key, and another body, path or day.

use martlet_tests::cluster::ClusterPlan;
use martlet_tests::cluster::internal::Request;
use martlet_tests::cluster::rings::INDEX;
use martlet_tests::s3;

const QUARTER_OF_AN_HOUR_MS: u64 = 15 * 60 * 1000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_signed_requests_are_let_in() {
    let plan = ClusterPlan { nodes: 3, proxies: 1, replicators: false, ..ClusterPlan::default() };
    let cluster = plan.start().await;
    let address = cluster.nodes[0].address;
    let good = Request::new("GET", "/v1/devices", "");
    assert_eq!(good.send(address).await.unwrap().status, 200, "signed as it should be");
    for path in ["/v1/devices", "/v1/rings", "/", "/metrics", "/v1/d/0/extents/0"] {
        let reply = s3::plain(address, path).await.unwrap();
        assert!(is_refused(reply.status), "{path}, unsigned: {}", reply.status);
        assert!(!reply.header("x-martlet-now").is_empty(), "every reply says the time");
    }
    let refused = async |what: &str, request: &Request, headers: &[(&'static str, String)]| {
        let reply = request.send_with(address, headers).await.unwrap();
        assert!(is_refused(reply.status), "{what}: {} {}", reply.status, reply.text());
    };
    let other_key = Request { key: "00".repeat(32), ..good.clone() };
    refused("another key", &other_key, &other_key.headers()).await;
    let now = good.date_ms;
    for date_ms in [0, now - 2 * QUARTER_OF_AN_HOUR_MS, now + 2 * QUARTER_OF_AN_HOUR_MS] {
        let other_day = Request { date_ms, ..good.clone() };
        refused("another time", &other_day, &other_day.headers()).await;
    }
    let other_path = Request { target: "/v1/rings".to_owned(), ..good.clone() };
    refused("the signature of another path", &other_path, &good.headers()).await;
    let more = Request { target: "/v1/devices?a=b".to_owned(), ..good.clone() };
    refused("the signature of another query", &more, &good.headers()).await;
    let other_method = Request { method: "POST", ..good.clone() };
    refused("the signature of another method", &other_method, &good.headers()).await;
    let ring = cluster.rings.ring(INDEX).encode();
    let offer = Request::new("PUT", "/v1/rings/index", ring);
    assert_eq!(offer.send(address).await.unwrap().status, 200, "a ring that it has");
    let other_body = Request { body: "x".into(), ..offer.clone() };
    refused("the signature of another body", &other_body, &offer.headers()).await;
    for missing in 0..3 {
        let mut headers = good.headers();
        let (name, _) = headers.remove(missing);
        refused(&format!("without {name}"), &good, &headers).await;
    }
    let mut headers = good.headers();
    headers.push(("x-martlet-extra", "1".to_owned()));
    refused("a header that was not signed", &good, &headers).await;
    assert_eq!(good.send(address).await.unwrap().status, 200, "it still serves");
}

fn is_refused(status: u16) -> bool {
    matches!(status, 400 | 401 | 403)
}
