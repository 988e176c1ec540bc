//! Crowds of clients without a key: sockets and memory stay bounded, and clients with a key are
//! served.
#![allow(clippy::unwrap_used, reason = "all of this runs within tests")]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::{StreamExt, stream};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use hyper::client::conn::http2::{self, SendRequest};
use hyper::{Request, Uri};
use hyper_util::rt::{TokioExecutor, TokioIo};
use martlet_tests::bytes::body;
use martlet_tests::cluster::certificates::Authority;
use martlet_tests::{S3, Server, Setup, process};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;

use super::memory::open_to_all;

/// Timeout of a request with a key on a machine at its limit.
const PROMPTLY: Duration = Duration::from_secs(10);
const DOCUMENT_BYTES: usize = 1 << 20;

/// Opens connections that send equal bytes, and then nothing.
async fn crowd(address: SocketAddr, count: usize, bytes: &[u8]) -> Vec<TcpStream> {
    let hold = |_| async move {
        let mut stream = TcpStream::connect(address).await.unwrap();
        // A connection that the server closed belongs to the crowd, too.
        let _ = stream.write_all(bytes).await;
        stream
    };
    stream::iter(0..count).map(hold).buffered(32).collect().await
}

/// Half of an unsigned document, which any client may send.
fn half_a_document() -> Vec<u8> {
    let mut bytes = format!(
        "POST /open/k?uploadId=x HTTP/1.1\r\nhost: x\r\ncontent-length: {DOCUMENT_BYTES}\r\n\r\n"
    )
    .into_bytes();
    bytes.resize(bytes.len() + 50_000, b' ');
    bytes
}

/// Reads an object until `done`, on one connection and on new ones. Returns the number of rounds.
async fn keep_reading(server: &Server, done: &AtomicBool) -> usize {
    let (mut known, mut count) = (server.client(), 0);
    assert_eq!(known.get("/box/k").await.unwrap().status, 200);
    while !done.load(Ordering::Acquire) {
        let begun = Instant::now();
        let reply = timeout(PROMPTLY, known.request_once("/box/k")).await.expect("it is prompt");
        assert_eq!(reply.expect("its connection stays open").status, 200);
        let mut newcomer = server.client();
        let reply = timeout(PROMPTLY, newcomer.get("/box/k")).await.expect("it is prompt");
        assert_eq!(reply.unwrap().status, 200);
        assert!(begun.elapsed() < PROMPTLY);
        count += 1;
        sleep(Duration::from_millis(20)).await;
    }
    count
}

async fn started(setup: &Setup) -> Server {
    process::raise_file_limit(12_000);
    let server = setup.start().await;
    let mut client = server.client();
    client.make_bucket("box").await;
    client.put("/box/k", body("k", 5000)).await.unwrap();
    server
}

#[tokio::test(flavor = "multi_thread")]
async fn five_thousand_connections_do_not_keep_a_key_out() {
    let server = started(&Setup::new()).await;
    let mut client = server.client();
    client.make_bucket("open").await;
    let opened = client.send("PUT", "/open?policy=", open_to_all("open")).await.unwrap();
    assert_eq!(opened.status, 204, "{}", opened.text());
    let done = AtomicBool::new(false);
    let address = server.s3_address;
    let strangers = async {
        let silent = crowd(address, 2500, b"").await;
        let heads = crowd(address, 1600, b"GET /box/k HTTP/1.1\r\nhost: x\r\nx: ").await;
        let documents = crowd(address, 900, &half_a_document()).await;
        sleep(Duration::from_secs(2)).await;
        done.store(true, Ordering::Release);
        (silent, heads, documents)
    };
    let (held, count) = tokio::join!(strangers, keep_reading(&server, &done));
    println!("{count} rounds of requests beside {} connections", held.0.len() + held.1.len());
    assert!(count > 1);
    let sockets = process::sockets(server.pid());
    assert!(sockets < 1500, "{sockets} sockets are open");
    let growth = process::resident_bytes(server.pid()) >> 20;
    println!("{growth} MiB are resident, {sockets} sockets open");
    assert!(growth < 300, "{growth} MiB are resident");
}

/// Starts a server with TLS, and makes a client's TLS settings for HTTP/2.
async fn secure() -> (Server, TlsConnector) {
    let setup = Setup::new();
    let certificates = setup.join("certificates");
    std::fs::create_dir(&certificates).unwrap();
    let certificates = Authority::found().issue([127, 0, 0, 1].into(), &certificates);
    let setup = setup
        .set("MARTLET_S3_TLS_CERTIFICATE", certificates.certificate.to_str().unwrap())
        .set("MARTLET_S3_TLS_KEY", certificates.key.to_str().unwrap());
    process::raise_file_limit(12_000);
    let server = setup.start().await;
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(&certificates.authority).unwrap()).unwrap();
    let mut config = ClientConfig::builder_with_provider(ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    (server, TlsConnector::from(Arc::new(config)))
}

type RequestBody = BoxBody<Bytes, Infallible>;

async fn connected(address: SocketAddr, tls: &TlsConnector) -> Option<SendRequest<RequestBody>> {
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::from(address.ip());
    let stream = tls.connect(name, stream).await.ok()?;
    let executor = TokioExecutor::new();
    let (sender, connection) = http2::handshake(executor, TokioIo::new(stream)).await.ok()?;
    tokio::spawn(async move { drop(connection.await) });
    Some(sender)
}

fn over_tls<B>(mut request: Request<B>, address: SocketAddr) -> Request<B> {
    let uri = format!("https://{address}{}", request.uri());
    *request.uri_mut() = uri.parse::<Uri>().unwrap();
    request
}

/// Sends a signed request and waits for the end of its reply.
async fn ask(
    sender: &mut SendRequest<RequestBody>,
    address: SocketAddr,
    (method, target): (&str, &str),
    body: Bytes,
) {
    let request = S3::new(address).request(method, target, body);
    let request = over_tls(request, address).map(|body: Full<Bytes>| body.boxed());
    let answer = async {
        sender.ready().await.unwrap();
        let reply = sender.send_request(request).await.unwrap();
        let status = reply.status();
        reply.into_body().collect().await.unwrap();
        status
    };
    let status = timeout(PROMPTLY, answer).await.expect("it is prompt");
    assert!(status.is_success(), "{method} {target}: {status}");
}

/// Opens one connection with 60 half-sent, unsigned documents.
async fn half_sent(
    address: SocketAddr,
    tls: &TlsConnector,
    bytes: usize,
) -> Option<SendRequest<RequestBody>> {
    let mut sender = connected(address, tls).await?;
    for _ in 0..60 {
        let half = stream::iter([Ok(Frame::data(Bytes::from(vec![b' '; bytes])))]);
        let body = BodyExt::boxed(StreamBody::new(half.chain(stream::pending())));
        let request = Request::post("/open/k?uploadId=x")
            .header("host", address.to_string())
            .header("content-length", DOCUMENT_BYTES)
            .body(body)
            .unwrap();
        sender.ready().await.ok()?;
        let reply = sender.send_request(over_tls(request, address));
        // No task waits for the outcome.
        tokio::spawn(async move { drop(timeout(Duration::from_secs(30), reply).await) });
    }
    Some(sender)
}

#[tokio::test(flavor = "multi_thread")]
async fn five_thousand_streams_do_not_keep_a_key_out() {
    let (server, tls) = secure().await;
    let address = server.s3_address;
    let mut known = connected(address, &tls).await.unwrap();
    let nothing = Bytes::new;
    ask(&mut known, address, ("PUT", "/box"), nothing()).await;
    ask(&mut known, address, ("PUT", "/open"), nothing()).await;
    ask(&mut known, address, ("PUT", "/open?policy="), open_to_all("open")).await;
    let done = AtomicBool::new(false);
    let strangers = async {
        let silent = crowd(address, 400, b"").await;
        let bytes = |at| if at % 5 == 0 { 500_000 } else { 10_000 };
        let connections = stream::iter(0..100).map(|at| half_sent(address, &tls, bytes(at)));
        let connections = connections.buffered(8);
        let held: Vec<_> = connections.collect().await;
        sleep(Duration::from_secs(1)).await;
        done.store(true, Ordering::Release);
        (silent, held)
    };
    let tenant = async {
        let mut count = 0;
        while !done.load(Ordering::Acquire) {
            ask(&mut known, address, ("GET", "/box"), nothing()).await;
            let mut newcomer = connected(address, &tls).await.unwrap();
            ask(&mut newcomer, address, ("GET", "/box"), nothing()).await;
            count += 1;
            sleep(Duration::from_millis(20)).await;
        }
        count
    };
    let (_held, count) = tokio::join!(strangers, tenant);
    let resident = process::resident_bytes(server.pid()) >> 20;
    println!("{count} rounds of requests, {resident} MiB are resident");
    assert!(count > 1);
    assert!(resident < 200, "{resident} MiB are resident");
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_are_served_beside_idle_connections_to_their_port() {
    let server = started(&Setup::new()).await;
    let address = server.admin_address;
    let silent = crowd(address, 150, b"").await;
    let heads = crowd(address, 150, b"GET /healthz HTTP/1.1\r\nhost: x\r\n").await;
    let unread = crowd(address, 150, b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n").await;
    for path in ["/healthz", "/readyz", "/metrics"] {
        let reply = timeout(PROMPTLY, server.admin(path)).await.expect("it is prompt");
        assert_eq!(reply.unwrap().status, 200, "{path}");
    }
    let status = server.ask(&["status"]);
    assert!(status.status.success(), "{status:?}");
    drop((silent, heads, unread));
}
