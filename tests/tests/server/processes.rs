//! Replies of other processes of a cluster, which a proxy reads for its principals.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use http_body_util::Full;
use hyper::Request;
use martlet_tests::cluster::{ClusterPlan, TestCluster};
use martlet_tests::s3::{Reply, encoded, exchange};
use martlet_tests::server::{finished, martlet};
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};

const AUDIT: &str = "/admin/v1/audit";
const SETTINGS: &str = "/admin/v1/settings";
const REPLY: &str = "/admin/v1/processes/reply";

/// Principal of the first proxy, by the token of a session.
struct Reader<'a> {
    cluster: &'a TestCluster,
    token: String,
}

impl<'a> Reader<'a> {
    fn of(cluster: &'a TestCluster, role: &str) -> Self {
        let (folder, address) = (cluster.folder(), cluster.proxies[0].admin_address.to_string());
        let key = folder.join(format!("{role}.key"));
        let admin = |credential: &str, file: &Path, arguments: &[&str]| {
            let mut command = martlet(&["admin", "--admin-address", &address, credential]);
            let output = finished(command.arg(file).args(arguments));
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stdout).unwrap().trim().to_owned()
        };
        let create = ["key", "create", "--role", role, "--name", role, "--key-file"];
        let create = [&create[..], &[key.to_str().unwrap()]].concat();
        admin("--cluster-key-file", &folder.join("cluster.key"), &create);
        Self { cluster, token: admin("--admin-key-file", &key, &["session", "begin"]) }
    }

    async fn get(&self, target: &str) -> Reply {
        let address = self.cluster.proxies[0].admin_address;
        let request = Request::get(target)
            .header("host", address.to_string())
            .header("authorization", format!("Bearer {}", self.token));
        exchange(address, request.body(Full::<Bytes>::default()).unwrap()).await.unwrap()
    }

    async fn relayed(&self, process: &str, route: &str, query: &str) -> Reply {
        let encoded = |text: &str| text.replace(' ', "%20").replace('&', "%26").replace('=', "%3D");
        let [process, route, query] = [process, route, query].map(encoded);
        self.get(&format!("{REPLY}?process={process}&route={route}&query={query}")).await
    }

    /// Returns the list once the second proxy has sent its report.
    async fn names(&self) -> Vec<Value> {
        let end = Instant::now() + Duration::from_mins(1);
        loop {
            let reply = self.get("/admin/v1/processes").await;
            assert_eq!(reply.status, 200, "{}", reply.text());
            if reply.text().contains("proxy p2") {
                return serde_json::from_slice(&reply.body).unwrap();
            }
            assert!(Instant::now() < end, "{}", reply.text());
            sleep(Duration::from_millis(200)).await;
        }
    }
}

/// Makes an admin key at the second proxy, so that its audit log has a record.
fn change_at_the_second_proxy(cluster: &TestCluster) {
    let address = cluster.proxies[1].admin_address.to_string();
    let mut command = martlet(&["admin", "--admin-address", &address, "--cluster-key-file"]);
    command.arg(cluster.folder().join("cluster.key"));
    let output = finished(command.args(["tenant", "create", "made-at-p2"]));
    assert!(output.status.success(), "{output:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_reads_other_processes_for_its_principals() {
    let plan = ClusterPlan { nodes: 3, proxies: 2, replicators: false, ..ClusterPlan::default() };
    let mut cluster = plan.start().await;
    change_at_the_second_proxy(&cluster);
    {
        let operator = Reader::of(&cluster, "operator");
        let names = operator.names().await;
        let named = |name: &str| names.iter().find(|it| it["process"] == name).cloned();
        assert_eq!(names[0]["process"], "proxy p1");
        assert_eq!(names[0]["own"], true);
        let second = named("proxy p2").unwrap_or_else(|| panic!("{names:?}"));
        let routes = second["routes"].as_array().unwrap();
        assert!(routes.contains(&AUDIT.into()) && routes.contains(&SETTINGS.into()), "{second}");
        let node = names.iter().find(|it| it["process"].as_str().unwrap().contains("n1")).unwrap();
        assert!(!node["routes"].as_array().unwrap().contains(&AUDIT.into()), "{node}");
        let reply = operator.relayed("proxy p2", AUDIT, "what=made-at-p2&since_ms=1").await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        assert!(reply.text().contains("made-at-p2"), "{}", reply.text());
        let own = operator.relayed("proxy p1", AUDIT, "what=made-at-p2").await;
        assert!(own.status == 200 && !own.text().contains("made-at-p2"), "{}", own.text());
        let of_node = operator.relayed(node["process"].as_str().unwrap(), SETTINGS, "").await;
        assert_eq!(of_node.status, 200, "{}", of_node.text());
        assert!(of_node.text().contains("\"settings\""), "{}", of_node.text());
        refusals(&operator).await;
        viewers_get_what_viewers_may(&Reader::of(&cluster, "viewer")).await;
    }
    a_hung_process_takes_few_places(&cluster).await;
    cluster.proxies[1].kill();
    let operator = Reader { token: Reader::of_key(&cluster, "operator"), cluster: &cluster };
    let silent = operator.relayed("proxy p2", SETTINGS, "").await;
    assert_eq!(silent.status, 502, "{}", silent.text());
    assert!(silent.text().contains("proxy p2: no server answers"), "{}", silent.text());
}

impl Reader<'_> {
    /// Begins another session of a key that was made before.
    fn of_key(cluster: &TestCluster, role: &str) -> String {
        let address = cluster.proxies[0].admin_address.to_string();
        let mut command = martlet(&["admin", "--admin-address", &address, "--admin-key-file"]);
        command.arg(cluster.folder().join(format!("{role}.key"))).args(["session", "begin"]);
        let output = finished(&mut command);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }
}

/// Checks that one principal's requests of a process that hangs leave places to others.
async fn a_hung_process_takes_few_places(cluster: &TestCluster) {
    let reader = |role: &str| Reader { token: Reader::of_key(cluster, role), cluster };
    let (viewer, operator) = (reader("viewer"), reader("operator"));
    cluster.proxies[1].pause();
    // Threads of a process stop some time after the signal.
    let second = cluster.proxies[1].admin_address;
    let healthz = || {
        let request = Request::get("/healthz").header("host", second.to_string());
        exchange(second, request.body(Full::<Bytes>::default()).unwrap())
    };
    while timeout(Duration::from_millis(500), healthz()).await.is_ok() {}
    let requests =
        (0..12).map(|_| timeout(Duration::from_secs(3), viewer.relayed("proxy p2", SETTINGS, "")));
    let asking = join_all(requests);
    let beside = async {
        sleep(Duration::from_secs(1)).await;
        operator.relayed("storage node n1", SETTINGS, "").await
    };
    let (replies, of_node) = tokio::join!(asking, timeout(Duration::from_secs(2), beside));
    let of_node = of_node.expect("another process is read meanwhile");
    assert_eq!(of_node.status, 200, "{}", of_node.text());
    let refused: Vec<_> = replies.into_iter().flatten().collect();
    assert_eq!(refused.len(), 8, "four requests wait for the process");
    for reply in refused {
        assert_eq!(reply.status, 503, "{}", reply.text());
        assert!(reply.text().contains("under way"), "{}", reply.text());
    }
    cluster.proxies[1].resume();
}

async fn refusals(operator: &Reader<'_>) {
    for (process, route, query, status, part) in [
        ("proxy p2", "/admin/v1/backup/records", "", 400, "route must be one of"),
        ("proxy p2", "/metrics", "", 400, "route must be one of"),
        ("proxy p2", "/admin/v1/audit/../tenants", "", 400, "route must be one of"),
        ("proxy p9", AUDIT, "", 404, "no process of the cluster"),
        ("127.0.0.1:1", AUDIT, "", 404, "no process of the cluster"),
        ("storage node n1", AUDIT, "", 404, "no route"),
        ("proxy p2", AUDIT, "after=%23fragment#x", 400, ""),
    ] {
        let reply = operator.relayed(process, route, query).await;
        assert_eq!(reply.status, status, "{process} {route}: {}", reply.text());
        assert!(reply.text().contains(part), "{process} {route}: {}", reply.text());
    }
    for query in ["after=<", "after=\"", "after={", "after=%255C|", "after=%"] {
        let target = format!("{REPLY}?process=proxy%20p2&route={AUDIT}&query={}", encoded(query));
        let reply = operator.get(&target).await;
        assert_eq!(reply.status, 400, "{query}: {}", reply.text());
        assert!(reply.text().contains("encoded for a URL"), "{query}: {}", reply.text());
    }
    for parameters in [
        "",
        "?process=proxy%20p2",
        "?process=proxy%20p2&route=/admin/v1/audit&route=/admin/v1/audit",
    ] {
        let reply = operator.get(&format!("{REPLY}{parameters}")).await;
        assert_eq!(reply.status, 400, "{parameters}: {}", reply.text());
        let error: Value = serde_json::from_slice(&reply.body).unwrap();
        let sentence = error["error"].as_str().unwrap();
        assert!(sentence.starts_with("process and route are required"), "{sentence}");
    }
    let long = "a".repeat(3000);
    assert_eq!(operator.relayed("proxy p2", AUDIT, &long).await.status, 400);
}

async fn viewers_get_what_viewers_may(viewer: &Reader<'_>) {
    let names = viewer.names().await;
    let second = names.iter().find(|it| it["process"] == "proxy p2").unwrap();
    assert!(!second["routes"].as_array().unwrap().contains(&AUDIT.into()), "{second}");
    assert_eq!(viewer.relayed("proxy p2", SETTINGS, "").await.status, 200);
    for process in ["proxy p1", "proxy p2"] {
        for route in [AUDIT, "/admin/v1/events/parked"] {
            let reply = viewer.relayed(process, route, "").await;
            assert_eq!(reply.status, 403, "{process} {route}: {}", reply.text());
            assert!(reply.text().contains("role operator"), "{}", reply.text());
        }
    }
}
