//! TLS at the data port: bytes for clients that trust it, nothing for others.

use std::path::Path;

use martlet_serving::Certificate;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::*;

/// Name in the port's certificate.
const NAME: &str = "n1.example";

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Certificate for [`NAME`].
fn certificate(authority: &Authority, folder: &Path) -> Certificate {
    let pair = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![NAME.to_owned()]).unwrap();
    let (chain, key) = (folder.join("chain.pem"), folder.join("key.pem"));
    std::fs::write(&chain, params.signed_by(&pair, authority).unwrap().pem()).unwrap();
    std::fs::write(&key, pair.serialize_pem()).unwrap();
    Certificate::load("data_tls", &chain, &key).unwrap()
}

/// Connects to a port that must show a certificate for `name`, issued by `authority`.
async fn connect(
    world: &World,
    authority: &Authority,
    name: &str,
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.der().clone()).unwrap();
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, world.connect().await).await
}

async fn world(authority: &Authority) -> World {
    let folder = tempfile::tempdir().unwrap();
    let certificate = certificate(authority, folder.path());
    World::of(Setup { certificate: Some(certificate), ..Setup::default() }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_are_sent_over_tls_in_both_verification_modes() {
    let ours = authority();
    let world = world(&ours).await;
    let bytes = pattern(5 << 20);
    let path = world.path(&world.put(&bytes).await);
    let mut stream = connect(&world, &ours, NAME).await.unwrap();
    for verify in ["node", "client"] {
        for range in [0..bytes.len(), BLOCK..40 * BLOCK, 100..200] {
            let header = format!("bytes={}-{}", range.start, range.end - 1);
            send(&mut stream, "GET", &format!("{path}&verify={verify}"), Some(&header)).await;
            let reply = receive(&mut stream, true).await;
            assert_eq!((reply.status, reply.header("x-martlet-verified")), (206, Some(verify)));
            assert!(reply.is_whole && reply.body == bytes[range.clone()], "{verify} {range:?}");
            let blocks = range.start / BLOCK..range.end.div_ceil(BLOCK);
            assert_eq!(reply.checksums().len(), blocks.len());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_refuses_another_name_and_another_authority() {
    let ours = authority();
    let world = world(&ours).await;
    for (authority, name) in [(&ours, "n2.example"), (&authority(), NAME)] {
        let refusal = connect(&world, authority, name).await.unwrap_err().to_string();
        assert!(refusal.contains("certificate"), "{name}: {refusal}");
    }
    assert!(connect(&world, &ours, NAME).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_in_clear_gets_no_reply_from_a_port_with_tls() {
    let ours = authority();
    let world = world(&ours).await;
    let bytes = pattern(100_000);
    let path = world.path(&world.put(&bytes).await);
    let mut stream = world.connect().await;
    send(&mut stream, "GET", &path, None).await;
    let mut reply = Vec::new();
    // The connection ends, by an alert of TLS or by a reset.
    drop(stream.read_to_end(&mut reply).await);
    assert!(!reply.starts_with(b"HTTP"), "{}", String::from_utf8_lossy(&reply));
    assert!(reply.len() < 100, "an alert is short");
    // The other mistake: TLS to a port in clear.
    let clear = World::new().await;
    assert!(connect(&clear, &ours, NAME).await.is_err());
    assert_eq!(clear.get(&clear.path(&clear.put(&bytes).await), None).await.status, 200);
}
