//! Connections to brokers: in clear, or over TLS with a certificate for the host's name.

use std::path::Path;
use std::time::Duration;

use martlet_serving::{Failure, client_config};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::super::retry::DeliveryFailure;
use super::address::BrokerHost;
use super::credentials::Credentials;

/// Time of a batch after which a protocol that sends messages one by one begins no further message.
/// A slow broker then has acknowledged all that it got, when the time of the attempt is over.
pub(super) const BATCH_TIME: Duration = Duration::from_secs(4);

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

/// Opens a TCP connection to a host.
pub(super) async fn open(host: &BrokerHost) -> Result<TcpStream, DeliveryFailure> {
    let failure = |error| DeliveryFailure::away(format!("no connection to {host}: {error}"));
    let stream = TcpStream::connect((host.name.as_str(), host.port)).await.map_err(failure)?;
    stream.set_nodelay(true)?;
    Ok(stream)
}
