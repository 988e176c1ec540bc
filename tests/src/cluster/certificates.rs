//! Certificates of a cluster whose members use TLS: an authority of its own, and a certificate for
//! each member.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use martlet_protocol::http::{Tls, TlsFiles};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

use super::settings_text::quoted;

/// A certificate authority.
#[derive(Debug)]
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    /// Makes a new authority, which no process trusts yet.
    pub fn found() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Writes certificate, key and authority for the address `ip` to a folder, with mode 0600.
    pub fn issue(&self, ip: IpAddr, folder: &Path) -> TlsFiles {
        let pair = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![ip.to_string()]).unwrap();
        let certificate = params.signed_by(&pair, &self.0).unwrap().pem();
        let written = |name: &str, pem: String| {
            let path = folder.join(name);
            fs::write(&path, pem).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            path
        };
        TlsFiles {
            certificate: written("certificate.pem", certificate),
            key: written("key.pem", pair.serialize_pem()),
            authority: written("authority.pem", self.0.pem()),
        }
    }
}

/// Settings lines that name the certificate files.
pub(super) fn settings(certificates: &TlsFiles) -> String {
    let TlsFiles { certificate, key, authority } = certificates;
    format!(
        "tls_certificate = {}\ntls_key = {}\ntls_ca = {}\n",
        quoted(certificate),
        quoted(key),
        quoted(authority)
    )
}

/// The authority of a cluster, and the certificate of an operator outside the cluster.
#[derive(Debug)]
pub(super) struct Certificates {
    pub(super) authority: Authority,
    pub(super) operator: TlsFiles,
    pub(super) tls: Tls,
}

impl Certificates {
    pub(super) fn new(cluster: &Path) -> Self {
        let (authority, folder) = (Authority::found(), cluster.join("operator"));
        fs::create_dir(&folder).unwrap();
        let operator = authority.issue(Ipv4Addr::LOCALHOST.into(), &folder);
        let tls = Tls::load(&operator).unwrap();
        Self { authority, operator, tls }
    }
}
