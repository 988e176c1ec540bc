//! `martlet admin support-bundle`: all parts are there, and none of the secrets that were put
//! everywhere.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use http_body_util::Full;
use hyper::Request;
use martlet_serving::AdminToken;
use martlet_tests::cluster::{ClusterPlan, TestCluster};
use martlet_tests::s3::{ACCESS_KEY, Reply, SECRET_KEY, exchange};
use martlet_tests::server::{finished, martlet};
use martlet_tests::{Server, Setup};
use rcgen::generate_simple_self_signed;
use serde_json::Value;

/// Names and contents of all parts of an archive, as one text.
fn contents(archive: &Path) -> String {
    let run = |flags: &str| {
        let output = Command::new("tar").arg(flags).arg(archive).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    run("-tzf") + &run("-xzOf")
}

/// Index of an archive.
fn index(archive: &Path) -> Value {
    let command = ["-xzOf", archive.to_str().unwrap(), "--wildcards", "*/index.json"];
    let output = Command::new("tar").args(command).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Returns the parts that are there, and those that are missing.
fn parts(index: &Value) -> [Vec<&str>; 2] {
    let parts = index["parts"].as_array().unwrap();
    let names = |missing: bool| {
        let some = parts.iter().filter(move |part| part["missing"].is_string() == missing);
        some.map(|part| part["name"].as_str().unwrap()).collect()
    };
    [names(false), names(true)]
}

/// Runs `martlet admin` against a server, and returns its JSON.
fn asked(server: &Server, arguments: &[&str]) -> Value {
    let output = server.ask(&[&["--json"], arguments].concat());
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Secrets and names of customers on a server, each with its description.
struct Canaries(Vec<(&'static str, String)>);

impl Canaries {
    fn assert_absent(&self, text: &str) {
        for (what, canary) in &self.0 {
            assert!(canary.len() > 8, "{what} is too short to be searched for");
            let at = text.find(canary.as_str());
            let around = at.map(|at| &text[at.saturating_sub(200)..at]);
            assert!(around.is_none(), "{what} is in the bundle, after {around:?}");
        }
    }
}

/// Setup of a server with a secret in each setting that may have one.
fn setup() -> (Setup, Canaries) {
    let (master, sse) = ("ca0a11e5".repeat(8), "ca0a11e6".repeat(8));
    let hook = "http://127.0.0.1:9/canarypath?token=canaryquery";
    let setup = Setup::new();
    let made = generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let (certificate, key) = (setup.join("data.crt"), setup.join("data.key"));
    fs::write(&certificate, made.cert.pem()).unwrap();
    let pem = made.signing_key.serialize_pem();
    fs::write(&key, &pem).unwrap();
    let pem_line = pem.lines().nth(1).unwrap().to_owned();
    let setup = setup
        .set("MARTLET_MASTER_KEYS", &master)
        .set("MARTLET_SSE_MASTER_KEY", &sse)
        .set("MARTLET_NOTIFICATIONS", &format!("canaryhook:*={hook}"))
        .set("MARTLET_DATA_ADDRESS", "127.0.0.1:0")
        .set("MARTLET_DATA_TLS_CERTIFICATE", certificate.to_str().unwrap())
        .set("MARTLET_DATA_TLS_KEY", key.to_str().unwrap());
    let canaries = vec![
        ("the root access key", ACCESS_KEY.to_owned()),
        ("the root secret", SECRET_KEY.to_owned()),
        ("the master key", master),
        ("the master key of encryption", sse),
        ("the path of a URL", "canarypath".to_owned()),
        ("the query of a URL", "canaryquery".to_owned()),
        ("the private key of TLS", pem_line),
    ];
    (setup, Canaries(canaries))
}

#[tokio::test]
async fn secrets_are_nowhere_in_the_bundle_of_a_server() {
    let (setup, mut canaries) = setup();
    let server = setup.start().await;
    let mut client = server.client();
    client.make_bucket("canary-bucket").await;
    client.put("/canary-bucket/canary-object", "canary-body".into()).await.unwrap();
    asked(&server, &["tenant", "create", "canary-tenant"]);
    asked(
        &server,
        &["user", "create", "--tenant", "canary-tenant", "canary-user", "--role", "admin"],
    );
    let key = asked(&server, &["key", "create", "--tenant", "canary-tenant"]);
    for (what, field) in [("a tenant's access key", "access_key"), ("its secret", "secret_key")] {
        canaries.0.push((what, key[field].as_str().unwrap().to_owned()));
    }
    let tokens = fs::read(setup.data_dir().join("token.key")).unwrap();
    canaries.0.push(("the key of tokens", String::from_utf8_lossy(&tokens).trim().to_owned()));
    for name in ["canary-bucket", "canary-object", "canary-body", "canary-tenant", "canary-user"] {
        canaries.0.push(("a name of customers", name.to_owned()));
    }
    let (bundle, data) = (setup.join("bundle.tar.gz"), setup.data_dir());
    let arguments = ["support-bundle", "--output", bundle.to_str().unwrap(), "--log"];
    let log = setup.join("err").display().to_string();
    let mut flags = arguments.to_vec();
    flags.extend([log.as_str(), "--data-dir", data.to_str().unwrap()]);
    let output = server.ask(&flags);
    assert!(output.status.success(), "{output:?}");
    let text = contents(&bundle);
    canaries.assert_absent(&text);
    canaries.assert_absent(&String::from_utf8_lossy(&fs::read(&bundle).unwrap()));
    // The text is really what it should be, with all that is allowed.
    for there in [
        "\"max_notification_attempts\"",
        "canaryhook:*=http://127.0.0.1:9",
        "martlet_requests_total{operation=\"CreateBucket\",status=\"200\"} 1",
        "\"check\": \"syncs\"",
        "listening for operators",
    ] {
        let is_default = there.contains("attempts");
        assert!(text.contains(there) != is_default, "{there}");
    }
    let index = index(&bundle);
    let [written, missing] = parts(&index);
    for part in ["status.json", "workers.json", "doctor.json", "logs/1.log"] {
        assert!(written.contains(&part), "{part}: {index:#}");
    }
    for part in ["processes/server/settings.json", "processes/server/metrics.txt"] {
        assert!(written.contains(&part), "{part}: {index:#}");
    }
    assert!(missing.contains(&"census.json"), "{index:#}");
    let again = server.ask(&flags);
    assert!(!again.status.success(), "an existing file is refused");
    the_process_makes_the_archive_too(&server, &canaries, &setup.join("made.tar.gz")).await;
}

/// Requests an archive of a route of the admin API.
async fn made(address: SocketAddr, token: &str) -> Reply {
    let request = Request::post("/admin/v1/support-bundle")
        .header("host", address.to_string())
        .header("authorization", format!("Bearer {token}"));
    exchange(address, request.body(Full::default()).unwrap()).await.unwrap()
}

/// Checks the archive that the admin API of a server makes.
async fn the_process_makes_the_archive_too(server: &Server, canaries: &Canaries, file: &Path) {
    let token = AdminToken::of(SECRET_KEY.as_bytes()).to_text();
    let wrong = AdminToken::of(b"another secret").to_text();
    assert_eq!(made(server.admin_address, &wrong).await.status, 401);
    assert!(!server.ask(&["census"]).stdout.is_empty(), "a job of this server");
    let reply = made(server.admin_address, &token).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(reply.header("content-type"), "application/gzip");
    let named = reply.header("content-disposition");
    assert!(named.contains("martlet-support-") && named.contains(".tar.gz"), "{named}");
    fs::write(file, &reply.body).unwrap();
    let text = contents(file);
    canaries.assert_absent(&text);
    assert!(text.contains("martlet_requests_total{operation=\"CreateBucket\",status=\"200\"} 1"));
    let index = index(file);
    let [written, missing] = parts(&index);
    for part in [
        "status.json",
        "workers.json",
        "capacity.json",
        "rings.json",
        "census.json",
        "processes/server/settings.json",
        "processes/server/metrics.txt",
    ] {
        assert!(written.contains(&part), "{part}: {index:#}");
    }
    assert_eq!(missing, ["doctor.json", "logs"], "{index:#}");
    // The archive is a read of everything: the audit log has it.
    let audit = String::from_utf8(server.ask(&["audit"]).stdout).unwrap();
    assert!(audit.contains("POST /admin/v1/support-bundle"), "{audit}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_reachable_processes_are_in_the_bundle_of_a_cluster() {
    let plan = ClusterPlan { nodes: 3, proxies: 1, replicators: false, ..ClusterPlan::default() };
    let mut cluster = plan.start().await;
    cluster.nodes[2].kill();
    let (key, bundle) = (cluster.folder().join("cluster.key"), cluster.folder().join("b.tar.gz"));
    let address = cluster.proxies[0].admin_address.to_string();
    let mut command = martlet(&["admin", "--admin-address", &address, "--cluster-key-file"]);
    command.arg(&key).args(["support-bundle", "--output"]).arg(&bundle);
    command.arg("--role").arg("proxy").arg("--config").arg(cluster.proxies[0].settings_path());
    let output = finished(&mut command);
    assert!(output.status.success(), "{output:?}");
    let text = contents(&bundle);
    let digits = fs::read_to_string(&key).unwrap();
    let of_cluster = vec![
        ("the cluster's key", digits.trim().to_owned()),
        ("the root secret", SECRET_KEY.to_owned()),
    ];
    Canaries(of_cluster.clone()).assert_absent(&text);
    let index = index(&bundle);
    let [written, missing] = parts(&index);
    for process in ["proxy-p1", "storage-node-n1", "storage-node-n2"] {
        let part = format!("processes/{process}/metrics.txt");
        assert!(written.contains(&part.as_str()), "{part}: {index:#}");
    }
    assert!(missing.contains(&"logs") && missing.contains(&"census.json"), "{index:#}");
    proxies_make_archives_for_keys(&cluster, &of_cluster).await;
    let tight = cluster.folder().join("tight.tar.gz");
    let mut command = martlet(&["admin", "--admin-address", &address, "--cluster-key-file"]);
    command.arg(&key).args(["support-bundle", "--max-size", "1KiB", "--output"]).arg(&tight);
    assert!(finished(&mut command).status.success());
    let listed = self::index(&tight);
    assert!(listed.to_string().contains("exceed --max-size"), "{listed:#}");
}

/// Checks archives of a proxy: all processes are queried for an admin key, and the proxy alone for
/// the holder of a token.
async fn proxies_make_archives_for_keys(cluster: &TestCluster, secrets: &[(&'static str, String)]) {
    let (folder, proxy) = (cluster.folder(), cluster.proxies[0].admin_address);
    let archive = async |token: &str| {
        let reply = made(proxy, token).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        let file = folder.join("p.tar.gz");
        fs::write(&file, &reply.body).unwrap();
        Canaries(secrets.to_vec()).assert_absent(&contents(&file));
        index(&file)
    };
    let listed = archive(&AdminToken::of(SECRET_KEY.as_bytes()).to_text()).await;
    let [written, missing] = parts(&listed);
    assert!(written.contains(&"processes/proxy-p1/metrics.txt"), "{listed:#}");
    assert!(missing.contains(&"processes/storage-node-n1/settings.json"), "{listed:#}");
    assert!(listed.to_string().contains("for admin keys alone"), "{listed:#}");
    let (address, key) = (proxy.to_string(), folder.join("operator.key"));
    let admin = |credential: &str, file: &Path, arguments: &[&str]| {
        let mut command = martlet(&["admin", "--admin-address", &address, credential]);
        let output = finished(command.arg(file).args(arguments));
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let create = ["key", "create", "--role", "operator", "--name", "a", "--key-file"];
    let create = [&create[..], &[key.to_str().unwrap()]].concat();
    admin("--cluster-key-file", &folder.join("cluster.key"), &create);
    let listed = archive(&admin("--admin-key-file", &key, &["session", "begin"])).await;
    for process in ["proxy-p1", "storage-node-n1", "storage-node-n2"] {
        for part in ["settings.json", "metrics.txt"] {
            let part = format!("processes/{process}/{part}");
            assert!(parts(&listed)[0].contains(&part.as_str()), "{part}: {listed:#}");
        }
    }
}
