//! Messages and lanes for tests of brokers.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use super::super::counts::Counts;
use super::super::retry::DeliveryFailure;
use super::super::spool::{self, SpooledMessage};
use super::lane::BrokerLane;
use super::settings::BrokerSettings;

/// Timeout of an attempt in tests of silent brokers.
pub(super) const SHORT: Duration = Duration::from_millis(300);
/// Timeout of an attempt in other tests, ample for a busy machine.
pub(super) const AMPLE: Duration = Duration::from_secs(20);

/// Returns messages as a spool returns them.
pub(super) fn spooled<T: AsRef<str>>(texts: &[T]) -> Vec<SpooledMessage> {
    let place = tempfile::tempdir().unwrap();
    let (mut tail, mut head) =
        spool::open(place.path(), 16 << 20, &Arc::new(Counts::default())).unwrap();
    let batch: Vec<Bytes> =
        texts.iter().map(|it| Bytes::copy_from_slice(it.as_ref().as_bytes())).collect();
    tail.append(&batch).unwrap();
    let messages = head.read().unwrap();
    assert_eq!(messages.len(), texts.len());
    messages
}

/// Returns the event of an object in bucket `b`.
pub(super) fn event(key: &str) -> String {
    format!(r#"{{"Records":[{{"s3":{{"bucket":{{"name":"b"}},"object":{{"key":"{key}"}}}}}}]}}"#)
}

/// Makes a lane of these settings.
pub(super) fn lane(settings: BrokerSettings<'_>, patience: Duration) -> BrokerLane {
    BrokerLane::with_patience(settings.client().unwrap(), patience)
}

/// Server on this machine that serves each connection by a function. It ends with its value.
pub(super) struct FakeBroker {
    pub(super) port: u16,
    task: JoinHandle<()>,
}

impl Drop for FakeBroker {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl FakeBroker {
    pub(super) async fn start<F, S>(serve: F) -> Self
    where
        F: Fn(TcpStream) -> S + Send + 'static,
        S: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream));
            }
        });
        Self { port, task }
    }
}

/// Returns the certificate of a new authority, and a server's side of TLS with a certificate of that
/// authority for `name`.
pub(super) fn tls_acceptor(name: &str) -> (String, TlsAcceptor) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
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
    (authority.pem(), TlsAcceptor::from(Arc::new(config)))
}

/// Returns a port on which no server listens.
pub(super) async fn closed_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port()
}

/// Returns the reason for a failure that is the broker's.
pub(super) fn away(outcome: Result<usize, DeliveryFailure>) -> String {
    match outcome {
        Err(DeliveryFailure::Away(reason)) => reason,
        other => panic!("it is not the broker's failure: {other:?}"),
    }
}

/// Returns the reason for the refusal of a message.
pub(super) fn refused(outcome: Result<usize, DeliveryFailure>) -> String {
    match outcome {
        Err(DeliveryFailure::Refused(reason)) => reason,
        other => panic!("it is no refusal: {other:?}"),
    }
}
