//! Webhooks: the outcomes of their replies, and the checks of their certificates.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::*;

#[test]
fn permanent_refusals_differ_from_passing_failures() {
    let of = |status: u16| classify_status(StatusCode::from_u16(status).unwrap());
    assert!([200, 202, 204].iter().all(|status| of(*status) == Ok(())));
    for status in [400, 405, 409, 410, 413, 415, 422] {
        assert!(matches!(of(status), Err(DeliveryFailure::Refused(_))), "{status}");
    }
    for status in [301, 307, 401, 403, 404, 407, 408, 425, 429, 500, 502, 503, 504] {
        assert!(matches!(of(status), Err(DeliveryFailure::Failed(_))), "{status}");
    }
}

/// Webhook on this machine, with a certificate for one name.
struct Hook {
    place: tempfile::TempDir,
    port: u16,
}

impl Hook {
    /// Answers every request 200, and sends each request's head to the channel.
    async fn start(name: &str) -> (Self, tokio::sync::mpsc::UnboundedReceiver<String>) {
        let place = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        std::fs::write(place.path().join("ca.pem"), authority.pem()).unwrap();
        let pair = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let shown = params.signed_by(&pair, &authority).unwrap().pem();
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![CertificateDer::from_pem_slice(shown.as_bytes()).unwrap()],
                PrivateKeyDer::from_pem_slice(pair.serialize_pem().as_bytes()).unwrap(),
            )
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (heard, heads) = tokio::sync::mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let Ok(mut stream) = acceptor.accept(stream).await else { continue };
                let mut request = vec![0; 4096];
                let count = stream.read(&mut request).await.unwrap();
                heard.send(String::from_utf8_lossy(&request[..count]).into_owned()).unwrap();
                let reply = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
                stream.write_all(reply.as_bytes()).await.unwrap();
            }
        });
        (Self { place, port }, heads)
    }

    fn webhook(&self, ca_file: &Path, token_file: Option<&Path>) -> Webhook {
        let url = format!("https://localhost:{}/hook", self.port);
        Webhook::new(&url, Some(ca_file), token_file).unwrap()
    }

    fn ca_file(&self) -> PathBuf {
        self.place.path().join("ca.pem")
    }
}

#[tokio::test]
async fn a_token_is_sent_to_verified_servers_alone() {
    let (hook, mut heads) = Hook::start("localhost").await;
    let token = hook.place.path().join("token");
    std::fs::write(&token, "first-token\n").unwrap();
    let webhook = hook.webhook(&hook.ca_file(), Some(&token));
    assert!(!format!("{webhook:?}").contains("first"), "{webhook:?}");
    webhook.post(Bytes::from_static(b"{}")).await.unwrap();
    let head = heads.recv().await.unwrap();
    assert!(head.starts_with("POST /hook HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("authorization: Bearer first-token\r\n"), "{head}");
    std::fs::write(&token, "second-token").unwrap();
    webhook.post(Bytes::from_static(b"{}")).await.unwrap();
    assert!(heads.recv().await.unwrap().contains("Bearer second-token\r\n"));
    std::fs::remove_file(&token).unwrap();
    let trouble = webhook.post(Bytes::from_static(b"{}")).await.unwrap_err();
    assert!(matches!(trouble, DeliveryFailure::Away(_)), "{trouble:?}");
}

#[tokio::test]
async fn unverified_servers_receive_no_message() {
    let (hook, mut heads) = Hook::start("localhost").await;
    let (other, mut other_heads) = Hook::start("elsewhere.example").await;
    for webhook in [hook.webhook(&other.ca_file(), None), other.webhook(&other.ca_file(), None)] {
        let trouble = webhook.post(Bytes::from_static(b"{}")).await.unwrap_err();
        assert!(
            matches!(&trouble, DeliveryFailure::Away(why) if why.contains("certificate")),
            "{trouble:?}"
        );
    }
    assert!(heads.try_recv().is_err() && other_heads.try_recv().is_err());
}

#[test]
fn invalid_settings_fail_the_start() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("file");
    let refusal = |url: &str, ca_file: Option<&Path>, token_file: Option<&Path>| {
        Webhook::new(url, ca_file, token_file).unwrap_err().to_string()
    };
    let (plain, safe) = ("http://h/", "https://h/");
    assert!(refusal("ftp://h/", None, None).contains("must have the form http://host"));
    assert!(refusal("https://me:secret@h/", None, None).contains("token_file"));
    assert!(!refusal("https://me:secret@h/", None, None).contains("secret"));
    assert!(refusal(safe, Some(&file), None).contains("can't be used: No such file"));
    assert!(refusal(plain, None, Some(&file)).contains("can't be used: No such file"));
    std::fs::write(&file, "two words").unwrap();
    assert!(refusal(plain, None, Some(&file)).contains("without spaces"));
    assert!(!refusal(plain, None, Some(&file)).contains("words"), "a token is never told");
    assert!(refusal(safe, Some(&file), None).contains("it contains no certificate"));
    assert!(refusal(plain, Some(&file), None).contains("needs an https:// webhook"));
    std::fs::write(&file, "").unwrap();
    assert!(refusal(plain, None, Some(&file)).contains("one token"));
}
