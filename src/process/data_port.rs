//! Data port of a process with devices: its settings, its address, its TLS and its tasks.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use martlet_data_port::{DataPortFigures, DataPortLimits, DataPortServer};
use martlet_protocol::data_port::host_id;
use martlet_protocol::extent_token::ExtentTokenKey;
use martlet_protocol::{Clock, DataPort};
use martlet_serving::listen::{self, Limits, Port};
use martlet_serving::{Certificate, Failure, Size};
use martlet_storage_node::StorageNode;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

/// Flags of a role with devices.
#[derive(Args, Clone, Debug, Default, Serialize)]
pub(crate) struct DataPortArgs {
    /// Address at which clients read extents in place [default: none]
    #[arg(long, value_name = "HOST:PORT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) data_address: Option<SocketAddr>,
    /// URL of the data port for clients [default: by the data address]
    #[arg(long, value_name = "URL", requires = "data_address")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) data_url: Option<String>,
    /// PEM file with the certificate chain of the data port [default: the S3 port's on a server]
    #[arg(long, value_name = "FILE", requires = "data_tls_key")]
    #[serde(skip_serializing_if = "Option::is_none")]
    data_tls_certificate: Option<PathBuf>,
    /// PEM file with the private key of the data port
    #[arg(long, value_name = "FILE", requires = "data_tls_certificate")]
    #[serde(skip_serializing_if = "Option::is_none")]
    data_tls_key: Option<PathBuf>,
    /// Maximum number of concurrent requests at the data port [default: 1024]
    #[arg(long, value_name = "NUMBER", hide_short_help = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    max_data_requests: Option<usize>,
}

/// Settings of a role with devices.
#[derive(Clone, Debug, Deserialize)]
#[serde(default)]
pub(crate) struct DataPortSettings {
    /// Address of the data port. Without one no client reads in place.
    pub(crate) data_address: Option<SocketAddr>,
    /// URL that clients use, if the address isn't theirs: `http://HOST:PORT`, or `https`.
    pub(crate) data_url: Option<String>,
    /// PEM file with the TLS certificate of the data port. Default: plain HTTP, or on a server the
    /// certificate of the S3 port.
    pub(crate) data_tls_certificate: Option<PathBuf>,
    /// PEM file with the certificate's private key.
    pub(crate) data_tls_key: Option<PathBuf>,
    /// Maximum number of concurrent requests. Further requests are answered 503.
    pub(crate) max_data_requests: usize,
}

impl Default for DataPortSettings {
    fn default() -> Self {
        Self {
            data_address: None,
            data_url: None,
            data_tls_certificate: None,
            data_tls_key: None,
            max_data_requests: 1024,
        }
    }
}

/// Bound data port.
pub(crate) struct OpenDataPort {
    port: Port,
    /// The port as clients know it.
    pub(crate) known_as: DataPort,
    requests_max: usize,
}

/// Data port with its devices.
pub(crate) struct ReadyDataPort {
    open: OpenDataPort,
    server: DataPortServer,
}

impl DataPortSettings {
    /// Names of these settings.
    pub(crate) const NAMES: [&str; 5] =
        ["data_address", "data_url", "data_tls_certificate", "data_tls_key", "max_data_requests"];

    /// Refuses invalid values and combinations.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if self.max_data_requests == 0 {
            return Err(Failure::usage("max_data_requests must be at least 1"));
        }
        if self.data_tls_certificate.is_some() != self.data_tls_key.is_some() {
            return Err(Failure::usage(
                "TLS at the data address needs both data_tls_certificate and data_tls_key",
            ));
        }
        let Some(url) = &self.data_url else { return Ok(()) };
        if self.data_address.is_none() {
            return Err(Failure::usage("data_url needs data_address: name the port's address too"));
        }
        DataPort::new(url, "").map(drop).map_err(|error| Failure::usage(error.to_string()))
    }

    /// Binds the data port, if there is one. `certificate` is used without one in the settings;
    /// `host` is the name of this node for others, if known.
    pub(crate) async fn listen(
        &self,
        certificate: Option<(&Path, &Path)>,
        host: Option<&str>,
    ) -> Result<Option<OpenDataPort>, Failure> {
        let Some(address) = self.data_address else { return Ok(None) };
        let own = self.data_tls_certificate.as_deref().zip(self.data_tls_key.as_deref());
        // A server's data port falls back on the certificate of its S3 port.
        let (settings, files) = match own {
            Some(own) => ("data_tls", Some(own)),
            None => ("s3_tls", certificate),
        };
        let certificate =
            files.map(|(chain, key)| Certificate::load(settings, chain, key)).transpose()?;
        let listener = listen::bind(address, "--data-address").await?;
        let bound = listen::address_of(&listener)?;
        let scheme = if certificate.is_some() { "https" } else { "http" };
        if certificate.is_none() && !bound.ip().is_loopback() {
            tracing::warn!(
                address = %bound,
                "unencrypted reads in place from other machines are possible: set \
                 data_tls_certificate and data_tls_key"
            );
        }
        let url = match &self.data_url {
            Some(url) => url.clone(),
            None => format!("{scheme}://{}", authority(bound, host)?),
        };
        let known_as = DataPort::new(&url, &host_id().unwrap_or_default());
        let known_as = known_as.map_err(|error| Failure::usage(error.to_string()))?;
        let port = Port { listener, certificate };
        Ok(Some(OpenDataPort { port, known_as, requests_max: self.max_data_requests }))
    }
}

/// Host and port for clients: the address, or the node's host where the address means all of them.
fn authority(bound: SocketAddr, host: Option<&str>) -> Result<String, Failure> {
    if !bound.ip().is_unspecified() {
        return Ok(bound.to_string());
    }
    let host = host.ok_or_else(|| {
        Failure::usage(format!(
            "clients can't connect to {bound}: name the data port in data_url, as in \
             http://10.0.0.5:{}",
            bound.port()
        ))
    })?;
    Ok(format!("{host}:{}", bound.port()))
}

impl OpenDataPort {
    /// Puts the devices of `node` behind the port. `clock` has the time of the tokens. Clients take at
    /// least `rate_min` bytes of a reply in a second.
    pub(crate) fn ready(
        self,
        node: Arc<StorageNode>,
        key: ExtentTokenKey,
        clock: Arc<dyn Clock>,
        rate_min: Size,
    ) -> ReadyDataPort {
        let limits = DataPortLimits {
            requests_max: self.requests_max,
            bytes_per_second_min: rate_min.0,
            ..DataPortLimits::default()
        };
        let server = DataPortServer::new(node, key, clock, limits);
        ReadyDataPort { open: self, server }
    }
}

impl ReadyDataPort {
    /// Counters of the port.
    pub(crate) fn figures(&self) -> Arc<DataPortFigures> {
        self.server.figures()
    }

    /// Serves clients until `stop`, then finishes replies for at most `drain`.
    pub(crate) async fn serve(self, limits: Limits, stop: watch::Receiver<bool>, drain: Duration) {
        let Self { open, server } = self;
        Arc::new(server).serve(open.port, limits, stop, drain).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(address: &str) -> DataPortSettings {
        DataPortSettings { data_address: address.parse().ok(), ..DataPortSettings::default() }
    }

    async fn url(settings: &DataPortSettings, host: Option<&str>) -> Result<String, String> {
        let opened = settings.listen(None, host).await.map_err(|failure| failure.to_string())?;
        Ok(opened.map(|port| port.known_as.url).unwrap_or_default())
    }

    #[tokio::test]
    async fn there_is_no_port_unless_one_is_set() {
        let off = DataPortSettings::default();
        assert_eq!(url(&off, Some("n1")).await.unwrap(), "");
        let own = url(&on("127.0.0.1:0"), Some("n1")).await.unwrap();
        assert!(own.starts_with("http://127.0.0.1:") && !own.ends_with(":0"), "{own}");
    }

    #[tokio::test]
    async fn an_address_of_all_interfaces_needs_a_name() {
        let named = url(&on("0.0.0.0:0"), Some("n1.example.com")).await.unwrap();
        assert!(named.starts_with("http://n1.example.com:"), "{named}");
        let refusal = url(&on("0.0.0.0:0"), None).await.unwrap_err();
        assert!(refusal.contains("data_url"), "{refusal}");
        let given = DataPortSettings { data_url: Some("https://x:7".into()), ..on("0.0.0.0:0") };
        assert_eq!(url(&given, None).await.unwrap(), "https://x:7");
    }

    #[tokio::test]
    async fn a_broken_certificate_is_refused_by_its_own_setting() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("broken.pem");
        std::fs::write(&file, "nothing").unwrap();
        let own = DataPortSettings {
            data_tls_certificate: Some(file.clone()),
            data_tls_key: Some(file.clone()),
            ..on("127.0.0.1:0")
        };
        let refusal = url(&own, None).await.unwrap_err();
        assert!(refusal.starts_with("data_tls_certificate contains no"), "{refusal}");
        let of_s3 = on("127.0.0.1:0").listen(Some((&file, &file)), None).await;
        let refusal = of_s3.err().unwrap().to_string();
        assert!(refusal.starts_with("s3_tls_certificate contains no"), "{refusal}");
    }

    #[test]
    fn mistakes_are_refused() {
        let refusal = |settings: &DataPortSettings| {
            settings.check().err().map(|failure| failure.to_string()).unwrap_or_default()
        };
        let none = DataPortSettings { max_data_requests: 0, ..on("127.0.0.1:0") };
        assert!(refusal(&none).contains("max_data_requests"));
        let half = DataPortSettings { data_tls_key: Some("k".into()), ..on("127.0.0.1:0") };
        assert!(refusal(&half).contains("data_tls_certificate"));
        let wrong = DataPortSettings { data_url: Some("n1:9002/".into()), ..on("127.0.0.1:0") };
        assert!(refusal(&wrong).contains("http://HOST:PORT"));
        let alone = DataPortSettings { data_url: Some("http://x:1".into()), ..Default::default() };
        assert!(refusal(&alone).contains("data_address"));
        assert_eq!(refusal(&on("127.0.0.1:0")), "");
    }
}
