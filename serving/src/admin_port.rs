//! Socket of the admin address: over TLS where a certificate is set; in clear on loopback
//! addresses, and elsewhere only if a setting allows it.

use std::net::SocketAddr;

use crate::certificate::Certificate;
use crate::failure::Failure;
use crate::listen::{self, Port};
use crate::settings::CommonSettings;

/// Binds the admin address and logs it.
///
/// # Errors
/// The address is in use; the certificate is unusable; the address is not loopback, has no
/// certificate, and `admin_allow_clear` is not set.
pub async fn bind(address: SocketAddr, common: &CommonSettings) -> Result<Port, Failure> {
    let port = open(address, common, "--admin-address").await?;
    let address = listen::address_of(&port.listener)?;
    let scheme = if port.certificate.is_some() { "https" } else { "http" };
    tracing::info!(%address, scheme, "listening for operators: /healthz, /readyz, /metrics");
    Ok(port)
}

/// Binds the address of the console, with the certificate of the admin address.
///
/// # Errors
/// As [`bind`].
pub async fn bind_console(address: SocketAddr, common: &CommonSettings) -> Result<Port, Failure> {
    open(address, common, "--console-address").await
}

/// Binds an address for operators that `flag` names.
async fn open(address: SocketAddr, common: &CommonSettings, flag: &str) -> Result<Port, Failure> {
    let certificate = certificate(common)?;
    if certificate.is_none() && !address.ip().to_canonical().is_loopback() {
        check_clear(address, common.admin_allow_clear)?;
    }
    Ok(Port { listener: listen::bind(address, flag).await?, certificate })
}

fn certificate(common: &CommonSettings) -> Result<Option<Certificate>, Failure> {
    match (&common.admin_tls_certificate, &common.admin_tls_key) {
        (Some(chain), Some(key)) => Certificate::load("admin_tls", chain, key).map(Some),
        // `CommonSettings::check` refuses one without the other.
        _ => Ok(None),
    }
}

/// Refuses tokens and secrets in clear between machines, unless they are allowed.
fn check_clear(address: SocketAddr, is_allowed: bool) -> Result<(), Failure> {
    if !is_allowed {
        return Err(Failure::usage(format!(
            "other machines can reach the address {address} for operators, where tokens and secrets would \
             travel in clear: set admin_tls_certificate and admin_tls_key, or listen on 127.0.0.1; \
             in an isolated network, set admin_allow_clear = true"
        )));
    }
    tracing::warn!(
        %address,
        "tokens of operators may travel in clear: set admin_tls_certificate and admin_tls_key"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Arc;

    use rcgen::generate_simple_self_signed;
    use rustls::pki_types::ServerName;
    use tempfile::TempDir;
    use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
    use tokio::net::TcpStream;
    use tokio_rustls::TlsConnector;

    use super::*;
    use crate::operator::Operator;
    use crate::trust::client_config;

    fn everywhere() -> SocketAddr {
        "0.0.0.0:0".parse().unwrap()
    }

    /// Folder for a certificate and its key, with settings that name both.
    struct CertificateFolder {
        _folder: TempDir,
        chain: PathBuf,
        key: PathBuf,
        common: CommonSettings,
    }

    impl CertificateFolder {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let [chain, key] = ["a.crt", "a.key"].map(|name| folder.path().join(name));
            let common = CommonSettings {
                admin_tls_certificate: Some(chain.clone()),
                admin_tls_key: Some(key.clone()),
                ..CommonSettings::default()
            };
            Self { _folder: folder, chain, key, common }
        }

        /// Writes a certificate for the host name `n1`.
        fn fill(&self) {
            let made = generate_simple_self_signed(vec!["n1".to_owned()]).unwrap();
            std::fs::write(&self.chain, made.cert.pem()).unwrap();
            std::fs::write(&self.key, made.signing_key.serialize_pem()).unwrap();
        }
    }

    /// Requests `/healthz`, and returns the reply.
    async fn health(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> String {
        let request = b"GET /healthz HTTP/1.1\r\nhost: n1\r\nconnection: close\r\n\r\n";
        stream.write_all(request).await.unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).await.unwrap();
        reply
    }

    #[tokio::test]
    async fn other_machines_need_tls_or_a_setting() {
        let mut common = CommonSettings::default();
        let refusal = bind(everywhere(), &common).await.err().unwrap().to_string();
        assert!(refusal.contains("admin_tls_certificate"), "{refusal}");
        for loopback in ["127.0.0.1:0", "127.9.9.9:0", "[::ffff:127.0.0.1]:0"] {
            let port = bind(loopback.parse().unwrap(), &common).await.unwrap();
            assert!(port.certificate.is_none());
        }
        common.admin_allow_clear = true;
        assert!(bind(everywhere(), &common).await.unwrap().certificate.is_none());
    }

    #[tokio::test]
    async fn a_certificate_opens_every_address() {
        let files = CertificateFolder::new();
        let bound = async || bind(everywhere(), &files.common).await;
        assert!(bound().await.err().unwrap().to_string().contains("a.crt"));
        files.fill();
        std::fs::write(&files.key, "no key").unwrap();
        let refusal = bound().await.err().unwrap().to_string();
        assert!(refusal.contains("admin_tls_key"), "{refusal}");
        files.fill();
        assert!(bound().await.unwrap().certificate.is_some());
    }

    #[tokio::test]
    async fn clients_over_tls_are_served_and_those_in_clear_get_the_scheme() {
        let files = CertificateFolder::new();
        files.fill();
        let port = bind("127.0.0.1:0".parse().unwrap(), &files.common).await.unwrap();
        let address = listen::address_of(&port.listener).unwrap();
        let server = Arc::new(Operator::new(Vec::new())).serve(port, &files.common);

        let in_clear = health(TcpStream::connect(address).await.unwrap()).await;
        assert!(in_clear.starts_with("HTTP/1.1 400 "), "{in_clear}");
        let (head, body) = in_clear.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}\r\n", body.len())), "{head}");
        assert!(body.contains("write https:// instead of http://"), "{body}");

        let connector = TlsConnector::from(client_config(Some(&files.chain), "ca").unwrap());
        let connect = async |name: &'static str| {
            let stream = TcpStream::connect(address).await.unwrap();
            connector.connect(ServerName::try_from(name).unwrap(), stream).await
        };
        let reply = health(connect("n1").await.unwrap()).await;
        assert!(reply.starts_with("HTTP/1.1 200 ") && reply.ends_with("ok\n"), "{reply}");
        let other = connect("n2").await.err().unwrap().to_string();
        assert!(other.contains("not valid for name"), "{other}");
        server.end().await;
    }
}
