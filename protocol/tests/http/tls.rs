//! Tests of mutual TLS: only members of the cluster connect.

use std::net::SocketAddr;
use std::sync::Arc;

use futures::FutureExt;
use martlet_protocol::http::{ClientOptions, ServeOptions, Tls, TlsFiles, router, serve};
use martlet_protocol::testing::conformance;
use martlet_protocol::{Backend, ErrorKind};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::world::{DEVICE, client, guard, memory, raw};

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A certificate for one name, with its key, both in PEM.
struct NamedCertificate {
    certificate: String,
    key: String,
}

/// Issues a certificate for a name.
fn issue(authority: &Authority, name: &str) -> NamedCertificate {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    let certificate = params.signed_by(&key, authority).unwrap().pem();
    NamedCertificate { certificate, key: key.serialize_pem() }
}

/// Returns TLS with a certificate, for connections with members of `authority`.
fn tls(authority: &Authority, own: &NamedCertificate) -> Tls {
    let NamedCertificate { certificate, key } = own;
    Tls::new(certificate.as_bytes(), key.as_bytes(), authority.pem().as_bytes()).unwrap()
}

async fn node(tls: Tls) -> (SocketAddr, oneshot::Sender<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel();
    let app = guard(router(memory(), martlet_protocol::http::ServerOptions::default()));
    let options = ServeOptions { tls: Some(tls), ..ServeOptions::default() };
    tokio::spawn(serve(listener, app, options, stopped.map(|_| ())));
    (address, stop)
}

fn with(tls: Option<Tls>) -> ClientOptions {
    ClientOptions { tls, ..ClientOptions::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_members_are_admitted() {
    let (ours, theirs) = (authority(), authority());
    let (address, _stop) = node(tls(&ours, &issue(&ours, "127.0.0.1"))).await;

    let member = client(address, with(Some(tls(&ours, &issue(&ours, "proxy")))));
    conformance::all(&member, DEVICE).await;

    let stranger = client(address, with(Some(tls(&ours, &issue(&theirs, "proxy")))));
    assert_eq!(stranger.devices().await.unwrap_err().kind(), ErrorKind::Unavailable);
    let bare = client(address, with(None));
    assert_eq!(bare.devices().await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(raw(address, b"GET /v1/devices HTTP/1.1\r\n\r\n").await, None);
}

#[tokio::test]
async fn a_node_of_another_name_or_authority_is_not_believed() {
    let (ours, theirs) = (authority(), authority());
    for of_node in [issue(&ours, "127.0.0.2"), issue(&theirs, "127.0.0.1")] {
        let (address, _stop) = node(tls(&ours, &of_node)).await;
        let member = client(address, with(Some(tls(&ours, &issue(&ours, "proxy")))));
        let error = member.devices().await.unwrap_err();
        assert!(error.had_no_effect(), "{error}");
    }
}

#[test]
fn certificate_files_are_read_and_errors_name_their_fault() {
    let ours = authority();
    let NamedCertificate { certificate, key } = issue(&ours, "n1");
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("certificate.pem"), &certificate).unwrap();
    std::fs::write(path("key.pem"), &key).unwrap();
    std::fs::write(path("authority.pem"), ours.pem()).unwrap();
    let files = TlsFiles {
        certificate: path("certificate.pem"),
        key: path("key.pem"),
        authority: path("authority.pem"),
    };
    let loaded = Arc::new(Tls::load(&files).unwrap());
    assert_eq!(format!("{loaded:?}"), "Tls(…)");
    for wrong in [
        TlsFiles { key: path("none.pem"), ..files.clone() },
        TlsFiles { key: path("authority.pem"), ..files.clone() },
        TlsFiles { certificate: path("key.pem"), ..files.clone() },
        TlsFiles { authority: path("key.pem"), ..files.clone() },
    ] {
        let error = Tls::load(&wrong).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(!error.to_string().contains("BEGIN"), "{error}");
    }
}
