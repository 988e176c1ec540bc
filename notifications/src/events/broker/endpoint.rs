//! Connections to brokers: in clear, or over TLS with a certificate for the host's name.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use martlet_serving::{Failure, client_config};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio_rustls::TlsConnector;

use super::super::retry::DeliveryFailure;
use super::address::BrokerHost;
use super::credentials::Credentials;
use super::staggered::first_success;

/// Time of a batch after which a protocol that sends messages one by one begins no further message.
/// A slow broker then has acknowledged all that it got, when the time of the attempt is over.
pub(super) const BATCH_TIME: Duration = Duration::from_secs(4);

/// Maximum number of a host's addresses that are tried.
const ADDRESSES_MAX: usize = 16;

/// Bytes to and from a broker.
pub(super) trait ByteStream: AsyncRead + AsyncWrite + Send + Sync + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin> ByteStream for T {}

/// Connection to a broker, in clear or over TLS.
pub(super) type BrokerStream = Box<dyn ByteStream>;

/// Hosts of a broker, and everything that a connection to them needs.
#[derive(Clone)]
pub(super) struct Endpoint {
    /// At least one host.
    pub(super) hosts: Vec<BrokerHost>,
    pub(super) tls: Option<TlsConnector>,
    pub(super) credentials: Credentials,
}

/// Returns the TLS settings of connections. `ca_file` holds the accepted authorities; `None` stands
/// for those that the system trusts.
pub(super) fn connector(ca_file: Option<&Path>) -> Result<TlsConnector, Failure> {
    Ok(TlsConnector::from(client_config(ca_file, "ca_file")?))
}

impl Endpoint {
    /// Returns the first host.
    pub(super) fn host(&self) -> &BrokerHost {
        &self.hosts[0]
    }

    /// Connects to a host.
    pub(super) async fn connect(&self, host: &BrokerHost) -> Result<BrokerStream, DeliveryFailure> {
        let stream = open(host).await?;
        self.secured(host, stream).await
    }

    /// Returns a connection over TLS if the endpoint has TLS, and the connection itself if not.
    pub(super) async fn secured(
        &self,
        host: &BrokerHost,
        stream: TcpStream,
    ) -> Result<BrokerStream, DeliveryFailure> {
        let Some(connector) = &self.tls else { return Ok(Box::new(stream)) };
        let failure = |why: &dyn std::fmt::Display| {
            DeliveryFailure::away(format!("no TLS connection to {host}: {why}"))
        };
        let name = ServerName::try_from(host.name.clone()).map_err(|error| failure(&error))?;
        let stream = connector.connect(name, stream).await.map_err(|error| failure(&error))?;
        Ok(Box::new(stream))
    }
}

/// Opens a TCP connection to a host, at the first of its addresses that answers.
pub(super) async fn open(host: &BrokerHost) -> Result<TcpStream, DeliveryFailure> {
    let found = lookup_host((host.name.as_str(), host.port)).await;
    let found = found.map_err(|error| no_connection(host, &error))?;
    let addresses: Vec<SocketAddr> = found.take(ADDRESSES_MAX).collect();
    open_any(host, &addresses).await
}

async fn open_any(
    host: &BrokerHost,
    addresses: &[SocketAddr],
) -> Result<TcpStream, DeliveryFailure> {
    let attempts = addresses.iter().map(|address| open_at(host, *address)).collect();
    let stream = first_success(attempts).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

async fn open_at(host: &BrokerHost, address: SocketAddr) -> Result<TcpStream, DeliveryFailure> {
    TcpStream::connect(address).await.map_err(|error| no_connection(host, &error))
}

fn no_connection(host: &BrokerHost, error: &io::Error) -> DeliveryFailure {
    DeliveryFailure::away(format!("no connection to {host}: {error}"))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpSocket};
    use tokio::time::timeout;

    use super::super::testing::{FakeBroker, closed_port, tls_acceptor};
    use super::*;

    fn local(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    /// Returns a listener whose queue is full, so that its address is silent, and what fills it.
    async fn silent() -> (TcpListener, Vec<TcpStream>) {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(local(0)).unwrap();
        let listener = socket.listen(1).unwrap();
        let address = listener.local_addr().unwrap();
        let mut queued = Vec::new();
        for _ in 0..64 {
            match timeout(Duration::from_millis(200), TcpStream::connect(address)).await {
                Ok(stream) => queued.push(stream.unwrap()),
                Err(_) => return (listener, queued),
            }
        }
        panic!("the queue took {} connections", queued.len());
    }

    #[tokio::test]
    async fn dead_addresses_of_a_host_are_passed() {
        let host = BrokerHost { name: "broker.example".to_owned(), port: 9 };
        let (silent, _queued) = silent().await;
        let listener = TcpListener::bind(local(0)).await.unwrap();
        let good = listener.local_addr().unwrap();
        let closed = local(closed_port().await);
        let began = Instant::now();
        let stream = open_any(&host, &[silent.local_addr().unwrap(), closed, good]).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), good);
        assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
        let failure = open_any(&host, &[closed]).await.unwrap_err();
        assert!(failure.reason().contains("no connection to broker.example"), "{failure:?}");
        let failure = open_any(&host, &[]).await.unwrap_err();
        assert_eq!(failure.reason(), "no address is known");
    }
    /// Starts a server with a certificate for `name`. Returns the certificate of its authority.
    async fn secure_server(name: &str) -> (String, FakeBroker) {
        let (authority, acceptor) = tls_acceptor(name);
        let server = FakeBroker::start(move |stream| {
            let acceptor = acceptor.clone();
            async move {
                if let Ok(mut stream) = acceptor.accept(stream).await {
                    let _ = stream.write_all(b"hello").await;
                    let _ = stream.shutdown().await;
                }
            }
        });
        (authority, server.await)
    }

    /// Returns the endpoint of a server on this machine, verified by an authority.
    fn endpoint(port: u16, authority: &str) -> Endpoint {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), authority).unwrap();
        Endpoint {
            hosts: vec![BrokerHost { name: "localhost".to_owned(), port }],
            tls: Some(connector(Some(file.path())).unwrap()),
            credentials: Credentials::default(),
        }
    }

    async fn refusal(endpoint: &Endpoint) -> String {
        match endpoint.connect(endpoint.host()).await {
            Ok(_) => panic!("a connection was made"),
            Err(DeliveryFailure::Away(reason)) => reason,
            Err(failure) => panic!("no message is to blame: {failure:?}"),
        }
    }

    #[tokio::test]
    async fn servers_are_verified_by_name_and_authority() {
        let (authority, server) = secure_server("localhost").await;
        let trusting = endpoint(server.port, &authority);
        let mut stream = trusting.connect(trusting.host()).await.unwrap_or_else(|failure| {
            panic!("no connection: {failure:?}");
        });
        let mut greeting = [0; 5];
        stream.read_exact(&mut greeting).await.unwrap();
        assert_eq!(&greeting, b"hello");
        let (foreign, _) = tls_acceptor("localhost");
        let reason = refusal(&endpoint(server.port, &foreign)).await;
        assert!(reason.contains("no TLS connection to localhost"), "{reason}");
        assert!(reason.contains("UnknownIssuer") || reason.contains("BadSignature"), "{reason}");
        let (authority, server) = secure_server("other.example").await;
        let reason = refusal(&endpoint(server.port, &authority)).await;
        assert!(reason.contains("not valid for name") || reason.contains("NotValidForName"));
    }

    #[tokio::test]
    async fn a_server_in_clear_gets_no_secret_over_tls() {
        let (authority, _) = tls_acceptor("localhost");
        let server = FakeBroker::start(async |mut stream| {
            let _ = stream.write_all(b"INFO {\"server_id\":\"x\"}\r\n").await;
            let mut received = Vec::new();
            let _ = stream.read_to_end(&mut received).await;
        })
        .await;
        let reason = refusal(&endpoint(server.port, &authority)).await;
        assert!(reason.contains("no TLS connection to localhost"), "{reason}");
    }
}
