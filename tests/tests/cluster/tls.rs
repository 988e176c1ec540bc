//! Members that use TLS between each other, each with a certificate: all functions of a cluster
//! work, and a client without a certificate of the cluster's authority is refused.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Output;
use std::sync::Arc;
use std::time::Duration;

use martlet_protocol::http::TlsFiles;
use martlet_protocol::{Clock, SystemClock};
use martlet_tests::bytes::chance;
use martlet_tests::checkers::Response;
use martlet_tests::cluster::certificates::Authority;
use martlet_tests::cluster::internal::Request;
use martlet_tests::cluster::rings::{DATA, INDEX};
use martlet_tests::cluster::{ClusterPlan, TestCluster};
use martlet_tests::probe::PATIENCE;
use martlet_tests::recorded::load::Load;
use martlet_tests::recorded::{RecordedClient, Recorder};
use martlet_tests::server::{finished, martlet};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::{recorder, until};

/// Inline, one extent, more than one extent.
const LENGTHS: [usize; 3] = [100, 300_000, 66 << 20];

fn plan() -> ClusterPlan {
    ClusterPlan { nodes: 3, proxies: 2, tls: true, ..ClusterPlan::in_a_hurry() }
}

/// Runs `martlet admin` with the key of a cluster and these certificate files.
fn asked(cluster: &TestCluster, arguments: &[&str], certificates: Option<&TlsFiles>) -> Output {
    let (member, key) = (&cluster.proxies[0], cluster.folder().join("cluster.key"));
    let mut command = martlet(&["admin", "--admin-address", &member.admin_address.to_string()]);
    command.arg("--cluster-key-file").arg(key).args(arguments);
    if let Some(TlsFiles { certificate, key, authority }) = certificates {
        command.arg("--tls-certificate").arg(certificate);
        command.arg("--tls-key").arg(key).arg("--tls-ca").arg(authority);
    }
    finished(&mut command)
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Writes through one proxy, reads and lists through the other.
async fn write_and_read(clients: &mut [RecordedClient; 2], prefix: &str) {
    let mut keys = Vec::new();
    for (round, length) in LENGTHS.into_iter().enumerate() {
        let [writer, reader] = clients.get_disjoint_mut([round % 2, (round + 1) % 2]).unwrap();
        let key = format!("{prefix}/{round}");
        writer.length = length;
        let (value, outcome) = writer.put(&key).await;
        assert_eq!(outcome, Response::Done, "{key}: {:?}", writer.reply);
        assert_eq!(reader.get(&key).await, Response::Read(Some(value)), "{key}");
        keys.push(key);
        assert_eq!(reader.list_all(&format!("{prefix}/")).await, keys);
    }
}

/// Pushes newer rings to the first node with `martlet admin`, and waits until all nodes have them.
async fn push_rings(cluster: &mut TestCluster) {
    let address = cluster.nodes[0].address.to_string();
    for name in [INDEX, DATA] {
        let (ring, path) = (cluster.rings.next_epoch(name), cluster.folder().join("pushed"));
        std::fs::create_dir_all(&path).unwrap();
        let path = path.join(format!("{name}.ring"));
        ring.save(&path).unwrap();
        let push = ["ring", "push", path.to_str().unwrap(), "--node", &address];
        let bare = asked(cluster, &push, None);
        assert_eq!(bare.status.code(), Some(1), "without certificates: {bare:?}");
        let told = text(&asked(cluster, &push, Some(cluster.operator_certificates())));
        assert!(told.contains("is in use"), "{told}");
        let wanted = format!("{}-{}", ring.epoch(), hex::encode(&ring.hash()[..8]));
        until(&format!("all have {name} {wanted}"), PATIENCE, async || {
            let status = ["ring", "status", "--node", &address];
            let told = text(&asked(cluster, &status, Some(cluster.operator_certificates())));
            told.matches(&wanted).count() == cluster.nodes.len()
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_that_a_cluster_does_works_over_tls() {
    let (mut chance, mut cluster) = (chance(), plan().start().await);
    let recorder: Arc<Recorder> = recorder(&cluster).await;
    let mut clients = [0, 1].map(|proxy| recorder.client(&cluster, proxy));
    write_and_read(&mut clients, "whole").await;

    let load = Load { clients: 4, ..Load::default() };
    let load = load.start(&recorder, &cluster, &mut chance);
    cluster.nodes[1].kill();
    // Two of three replicas are a quorum.
    for (number, client) in clients.iter_mut().enumerate() {
        client.length = 20_000;
        until("a write without the node", PATIENCE, async || {
            client.put(&format!("without/{number}")).await.1 == Response::Done
        })
        .await;
    }
    cluster.nodes[1].start().await;
    load.stop().await;
    push_rings(&mut cluster).await;
    write_and_read(&mut clients, "again").await;

    let certificate = "certificate=\"tls\"";
    let end = cluster.nodes[1].metric_of("martlet_certificate_end_timestamp_seconds", certificate);
    assert!(end.await.unwrap() > SystemClock.now_ms() / 1000, "the end of the node's certificate");

    let census = cluster.until_clean(PATIENCE).await;
    assert!(census.registers > LENGTHS.len() && census.extents >= LENGTHS.len(), "{census}");
    assert_eq!(asked(&cluster, &["census"], None).status.code(), Some(1), "without certificates");
    let told = text(&asked(&cluster, &["census"], Some(cluster.operator_certificates())));
    assert!(told.contains("clean: every replica is where the rings place it"), "{told}");
    recorder.finish(&cluster).await;
}

/// Sends a correctly signed request over TLS, with or without a certificate. Returns the bytes of
/// the reply. The client trusts the node's certificate in any case.
async fn asked_over_tls(cluster: &TestCluster, tls: Option<&TlsFiles>) -> String {
    let address = cluster.nodes[0].address;
    let mut roots = RootCertStore::empty();
    for root in certificates(&cluster.operator_certificates().authority) {
        roots.add(root).unwrap();
    }
    let provider = Arc::new(ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(roots);
    let config = match tls {
        None => config.with_no_client_auth(),
        Some(TlsFiles { certificate, key, .. }) => {
            let key = PrivateKeyDer::from_pem_file(key).unwrap();
            config.with_client_auth_cert(certificates(certificate), key).unwrap()
        }
    };
    let name = ServerName::IpAddress(address.ip().into());
    let stream = TcpStream::connect(address).await.unwrap();
    let mut answer = Vec::new();
    let exchange = async {
        let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
        stream.write_all(signed(address).as_bytes()).await?;
        stream.read_to_end(&mut answer).await
    };
    // A refused client receives an error without waiting.
    let ended = timeout(PATIENCE, exchange).await.expect("the node ends the connection");
    println!("{} bytes came back, then {ended:?}", answer.len());
    String::from_utf8_lossy(&answer).into_owned()
}

fn certificates(path: &Path) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_file_iter(path).unwrap().map(Result::unwrap).collect()
}

/// A signed request of a member, as sent on the wire.
fn signed(address: SocketAddr) -> String {
    let headers = Request::new("GET", "/v1/devices", "").headers();
    let headers: Vec<String> =
        headers.iter().map(|(name, it)| format!("{name}: {it}\r\n")).collect();
    format!(
        "GET /v1/devices HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{}\r\n",
        headers.concat()
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_without_a_certificate_of_the_authority_are_refused() {
    let cluster = ClusterPlan { proxies: 1, replicators: false, ..plan() }.start().await;
    let operator = cluster.operator_certificates();
    let heard = asked_over_tls(&cluster, Some(operator)).await;
    assert!(heard.starts_with("HTTP/1.1 200"), "{heard}");
    assert_eq!(asked_over_tls(&cluster, None).await, "", "no certificate");
    let folder = cluster.folder().join("stranger");
    std::fs::create_dir(&folder).unwrap();
    let stranger = Authority::found().issue(Ipv4Addr::LOCALHOST.into(), &folder);
    assert_eq!(asked_over_tls(&cluster, Some(&stranger)).await, "", "of another authority");
    let plain = Request::new("GET", "/v1/devices", "");
    let plain = timeout(Duration::from_secs(30), plain.send(cluster.nodes[0].address)).await;
    assert!(plain.expect("the node ends the connection").is_err(), "plain HTTP");
    // The certificate names the machine, and the key proves membership; neither suffices alone.
    let (address, status) = (cluster.nodes[0].address.to_string(), ["ring", "status", "--node"]);
    let status = [&status[..], &[&address]].concat();
    assert!(text(&asked(&cluster, &status, Some(operator))).contains("n1"));
    for tls in [None, Some(&stranger)] {
        assert_eq!(asked(&cluster, &status, tls).status.code(), Some(1), "{tls:?}");
    }
    let heard = asked_over_tls(&cluster, Some(operator)).await;
    assert!(heard.starts_with("HTTP/1.1 200"), "it still serves: {heard}");
}
