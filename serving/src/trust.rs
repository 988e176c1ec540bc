//! Authorities that clients of this crate's ports, and of webhooks, trust.

use std::path::Path;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use crate::failure::Failure;

/// Returns the TLS settings of a client. Servers are verified by the authorities in `ca_file`, or by
/// those that this system trusts if `ca_file` is `None`. `setting` is the file's name in errors.
///
/// # Errors
/// The file can't be read, contains no certificate, or this system trusts none.
pub fn client_config(ca_file: Option<&Path>, setting: &str) -> Result<Arc<ClientConfig>, Failure> {
    let roots = match ca_file {
        Some(path) => roots_of(path, setting)?,
        None => system_roots(setting)?,
    };
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider has suites for both versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// Loads the certificate authorities of a PEM file.
fn roots_of(path: &Path, setting: &str) -> Result<RootCertStore, Failure> {
    let unusable = |why: &dyn std::fmt::Display| {
        Failure::usage(format!("the {setting} {} can't be used: {why}", path.display()))
    };
    let text = std::fs::read(path).map_err(|error| unusable(&error))?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&text) {
        let certificate = certificate.map_err(|error| unusable(&error))?;
        roots.add(certificate).map_err(|error| unusable(&error))?;
    }
    if roots.is_empty() {
        return Err(unusable(&"it contains no certificate (PEM)"));
    }
    Ok(roots)
}

/// Loads the certificate authorities that this system trusts.
fn system_roots(setting: &str) -> Result<RootCertStore, Failure> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let why = found.errors.first().map(|error| format!(" ({error})")).unwrap_or_default();
        return Err(Failure::usage(format!(
            "this system has no CA certificates to verify a server with{why}: set {setting}"
        )));
    }
    Ok(roots)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_certificates_is_refused_by_its_setting() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let refusal = |path: &Path| client_config(Some(path), "admin_ca").unwrap_err().to_string();
        assert!(refusal(file.path()).contains("contains no certificate"));
        assert!(refusal(Path::new("/nowhere/ca.pem")).starts_with("the admin_ca /nowhere/ca.pem"));
        let made = rcgen::generate_simple_self_signed(vec!["n1".to_owned()]).unwrap();
        std::fs::write(file.path(), made.cert.pem()).unwrap();
        assert!(client_config(Some(file.path()), "admin_ca").is_ok());
    }
}
