//! Requests to a provider over sockets: replies, refusals, bounds and TLS.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use martlet_protocol::ManualClock;
use parking_lot::Mutex;
use rustls::crypto::ring;
use rustls::pki_types::PrivateKeyDer;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::*;

/// Request that a server received: its head and its body.
#[derive(Clone, Debug, Default)]
struct Received {
    head: String,
    body: String,
}

/// Server with fixed replies: status and body by path.
#[derive(Clone, Default)]
struct Replies {
    by_path: Arc<Mutex<HashMap<String, (u16, String)>>>,
    received: Arc<Mutex<Vec<Received>>>,
    count: Arc<AtomicUsize>,
}

impl Replies {
    fn set(&self, path: &str, status: u16, body: impl Into<String>) {
        self.by_path.lock().insert(path.to_owned(), (status, body.into()));
    }

    fn last(&self) -> Received {
        self.received.lock().last().cloned().unwrap_or_default()
    }

    async fn answer<S: AsyncRead + AsyncWrite + Unpin>(self, mut stream: S) {
        let mut text = Vec::new();
        let mut buffer = [0; 4096];
        let (head, body) = loop {
            let read = stream.read(&mut buffer).await.unwrap_or(0);
            if read == 0 {
                return;
            }
            text.extend_from_slice(&buffer[..read]);
            let whole = String::from_utf8_lossy(&text).into_owned();
            let Some((head, body)) = whole.split_once("\r\n\r\n") else { continue };
            let lower = head.to_ascii_lowercase();
            let length = lower
                .split_once("content-length: ")
                .map_or(0, |(_, rest)| rest.lines().next().unwrap().parse::<usize>().unwrap());
            if body.len() >= length {
                break (head.to_owned(), body.to_owned());
            }
        };
        self.count.fetch_add(1, Ordering::SeqCst);
        let path = head.split(' ').nth(1).unwrap().to_owned();
        self.received.lock().push(Received { head, body });
        let reply = self.by_path.lock().get(&path).cloned();
        let (status, body) = reply.unwrap_or((404, String::new()));
        let location = if status == 302 { "location: /elsewhere\r\n" } else { "" };
        let head = format!(
            "HTTP/1.1 {status} X\r\n{location}content-length: {}\r\nconnection: close\r\n\r\n",
            body.len()
        );
        let _ = stream.write_all((head + &body).as_bytes()).await;
        let _ = stream.shutdown().await;
    }

    async fn serve(&self, tls: Option<TlsAcceptor>) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let replies = self.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (replies, tls) = (replies.clone(), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => replies.answer(stream).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                replies.answer(stream).await;
                            }
                        }
                    }
                });
            }
        });
        address
    }
}

fn trusting(roots: RootCertStore) -> Arc<ClientConfig> {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(config)
}

fn document(issuer: &str) -> Value {
    json!({
        "issuer": issuer,
        "jwks_uri": format!("{issuer}/keys"),
        "authorization_endpoint": format!("{issuer}/authorize?audience=x"),
        "token_endpoint": format!("{issuer}/token"),
    })
}

struct Setting {
    replies: Replies,
    provider: OidcProvider,
    clock: Arc<ManualClock>,
    issuer: String,
}

async fn setting() -> Setting {
    let replies = Replies::default();
    let issuer = format!("http://{}/realm", replies.serve(None).await);
    replies.set("/realm/.well-known/openid-configuration", 200, document(&issuer).to_string());
    let clock = Arc::new(ManualClock::at(1_000_000));
    let tls = trusting(RootCertStore::empty());
    let parts = ProviderParts { issuer: issuer.clone(), tls, clock: clock.clone() };
    Setting { replies, provider: OidcProvider::new(parts), clock, issuer }
}

fn exchange<'a>(verifier: &'a CodeVerifier, client_secret: Option<&'a str>) -> CodeExchange<'a> {
    let (redirect_uri, client_id) = ("http://localhost:1/login/oidc/callback", "con sole");
    CodeExchange { code: "a+b&c", verifier, redirect_uri, client_id, client_secret }
}

#[tokio::test]
async fn a_login_begins_at_the_providers_endpoint() {
    let Setting { provider, issuer, .. } = setting().await;
    let verifier = CodeVerifier::new();
    let request = AuthorizationRequest {
        redirect_uri: "http://localhost:1/x",
        scopes: &["openid".to_owned(), "email".to_owned()],
        state: "s&t",
        nonce: "n",
        verifier: &verifier,
    };
    let url = provider.authorization_url("me", request).await.unwrap();
    let expected = format!(
        "{issuer}/authorize?audience=x&response_type=code&client_id=me&\
         redirect_uri=http%3A%2F%2Flocalhost%3A1%2Fx&scope=openid+email&state=s%26t&nonce=n&\
         code_challenge={}&code_challenge_method=S256",
        verifier.challenge()
    );
    assert_eq!(url, expected);
    assert!(provider.is_issuer(None).await.unwrap());
    assert!(provider.is_issuer(Some(&issuer)).await.unwrap());
    assert!(!provider.is_issuer(Some("https://evil.example")).await.unwrap());
}

#[tokio::test]
async fn codes_are_exchanged_by_public_and_by_confidential_clients() {
    let Setting { replies, provider, .. } = setting().await;
    replies.set("/realm/token", 200, r#"{"id_token": "a.b.c", "access_token": "x"}"#);
    let verifier = CodeVerifier::new();
    let token = provider.exchange(exchange(&verifier, None)).await.unwrap();
    assert_eq!(token, "a.b.c");
    let Received { head, body } = replies.last();
    assert!(!head.to_lowercase().contains("authorization:"), "{head}");
    let expected = format!(
        "grant_type=authorization_code&code=a%2Bb%26c&\
         redirect_uri=http%3A%2F%2Flocalhost%3A1%2Flogin%2Foidc%2Fcallback&code_verifier={}&\
         client_id=con+sole",
        verifier.text()
    );
    assert_eq!(body, expected);
    provider.exchange(exchange(&verifier, Some("p:w"))).await.unwrap();
    let Received { head, body } = replies.last();
    // base64 of con%20sole:p%3Aw
    assert!(head.contains("Basic Y29uJTIwc29sZTpwJTNBdw=="), "{head}");
    assert!(!body.contains("secret") && !body.contains("client_id"), "{body}");
}

#[tokio::test]
async fn refusals_and_broken_replies_differ_and_repeat_nothing_secret() {
    let Setting { replies, provider, .. } = setting().await;
    let verifier = CodeVerifier::new();
    let outcome = async |status: u16, body: &str| {
        replies.set("/realm/token", status, body);
        provider.exchange(exchange(&verifier, Some("hidden"))).await.unwrap_err()
    };
    let refused = outcome(400, r#"{"error": "invalid_grant", "error_description": "<b>"}"#).await;
    assert_eq!(refused, OidcError::Refused("invalid_grant".into()));
    for (status, body) in [
        (400, r#"{"error": "<script>"}"#),
        (500, r#"{"error": "invalid_grant"}"#),
        (302, ""),
        (200, r#"{"access_token": "x"}"#),
        (200, "<html>"),
    ] {
        let error = outcome(status, body).await;
        assert!(matches!(error, OidcError::Unavailable(_)), "{status} {body}: {error}");
        let text = error.to_string();
        assert!(!text.contains("hidden") && !text.contains(verifier.text()), "{text}");
        assert!(!text.contains("script"), "{text}");
    }
    let huge = outcome(200, &"x".repeat(300_000)).await.to_string();
    assert!(huge.contains("more than 262144 bytes"), "{huge}");
    assert!(!replies.received.lock().iter().any(|it| it.head.contains("/elsewhere")));
}

#[tokio::test]
async fn keys_are_fetched_from_where_the_metadata_names_them() {
    let Setting { replies, provider, .. } = setting().await;
    replies.set("/realm/keys", 200, r#"{"keys": []}"#);
    assert_eq!(&provider.jwks().await.unwrap()[..], br#"{"keys": []}"#);
    replies.set("/realm/keys", 200, "x".repeat((1 << 20) + 1));
    assert!(provider.jwks().await.unwrap_err().to_string().contains("more than 1048576 bytes"));
    replies.set("/realm/keys", 503, "");
    assert!(provider.jwks().await.unwrap_err().to_string().contains("status 503"));
}

#[tokio::test]
async fn metadata_is_fetched_once_an_hour_and_outlives_a_failure() {
    let Setting { replies, provider, clock, .. } = setting().await;
    let is_issuer = async || provider.is_issuer(None).await;
    // Concurrent requests share one fetch.
    let (one, other, third) = tokio::join!(is_issuer(), is_issuer(), is_issuer());
    assert!(one.is_ok() && other.is_ok() && third.is_ok());
    assert_eq!(replies.count.load(Ordering::SeqCst), 1);
    replies.set("/realm/.well-known/openid-configuration", 500, "");
    clock.advance_ms(59 * 60 * 1000);
    is_issuer().await.unwrap();
    assert_eq!(replies.count.load(Ordering::SeqCst), 1);
    clock.advance_ms(60 * 1000);
    for _ in 0..10 {
        is_issuer().await.unwrap();
    }
    assert_eq!(replies.count.load(Ordering::SeqCst), 2, "a failure has a pause");
}

#[tokio::test]
async fn a_provider_that_is_away_is_an_error_that_passes() {
    let Setting { replies, provider, clock, issuer } = setting().await;
    let path = "/realm/.well-known/openid-configuration";
    replies.set(path, 200, document("https://evil.example").to_string());
    let error = provider.jwks().await.unwrap_err().to_string();
    assert!(error.contains("another issuer"), "{error}");
    replies.set(path, 200, document(&issuer).to_string());
    replies.set("/realm/keys", 200, "{}");
    assert!(provider.jwks().await.is_err(), "the failure is the answer for five seconds");
    assert_eq!(replies.count.load(Ordering::SeqCst), 1);
    clock.advance_ms(5_000);
    assert!(provider.jwks().await.is_ok());
    // A port without a listener.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gone = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let tls = trusting(RootCertStore::empty());
    let away = OidcProvider::new(ProviderParts { issuer: gone, tls, clock });
    assert!(matches!(away.jwks().await, Err(OidcError::Unavailable(_))));
}

#[tokio::test]
async fn certificates_are_verified() {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let server = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let replies = Replies::default();
    let address = replies.serve(Some(TlsAcceptor::from(Arc::new(server)))).await;
    let issuer = format!("https://localhost:{}", address.port());
    let path = "/.well-known/openid-configuration";
    replies.set(path, 200, document(&issuer).to_string());
    replies.set("/keys", 200, "{}");
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let provider = |roots| {
        let (issuer, clock) = (issuer.clone(), Arc::new(ManualClock::at(1)));
        OidcProvider::new(ProviderParts { issuer, tls: trusting(roots), clock })
    };
    assert!(provider(roots).jwks().await.is_ok());
    let error = provider(RootCertStore::empty()).jwks().await.unwrap_err().to_string();
    assert!(error.contains("certificate"), "{error}");
}
