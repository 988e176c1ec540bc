//! Certificates and keys of ports, and files that hold secrets.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use martlet_protocol::http::validity_s;
use martlet_protocol::{Clock, SystemClock};
use martlet_serving::folder::is_shared;
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, RootCertStore};

use crate::finding::Finding;
use crate::target::CertificateFiles;

const CHECK: &str = "certificate";
const SECRETS: &str = "secret file";
const DAY_S: i64 = 86_400;
/// Days before the end of a certificate from which it should be renewed.
const DAYS_WARN: i64 = 21;

/// Observed certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CertificateFacts {
    begins_s: i64,
    ends_s: i64,
    /// Host names and addresses that clients use and the certificate is not for.
    missing: Vec<String>,
}

/// Examines the certificates of all ports.
pub(crate) fn examine(files: &[CertificateFiles]) -> Vec<Finding> {
    let now_s = i64::try_from(SystemClock.now_ms() / 1000).unwrap_or(i64::MAX);
    files.iter().map(|files| examine_one(files, now_s)).collect()
}

fn examine_one(files: &CertificateFiles, now_s: i64) -> Finding {
    let subject = format!("{} {}", files.setting, files.certificate.display());
    let read = read_chain(&files.certificate)
        .and_then(|chain| facts(&chain, &files.names).map(|facts| (chain, facts)));
    let (chain, facts) = match read {
        Ok(read) => read,
        Err(error) => {
            return Finding::ok(CHECK, &subject, error).fail(
                "replace the file by the certificate in PEM, its intermediate ones after it",
            );
        }
    };
    let proven = check_key(&chain, &files.key).and_then(|()| match &files.authority {
        Some(authority) => check_authority(&chain, authority, &facts, now_s),
        None => Ok(()),
    });
    match proven {
        Ok(()) => judge(&subject, &facts, now_s),
        Err(error) => Finding::ok(CHECK, subject, error)
            .fail("use the key and the authority that belong to the certificate"),
    }
}

fn read_chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let bytes = fs::read(path).map_err(|error| format!("it can't be read: {error}"))?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    match chain {
        Ok(chain) if chain.is_empty() => Err("it contains no certificate".to_owned()),
        Ok(chain) => Ok(chain),
        Err(error) => Err(format!("it is not a PEM file: {error}")),
    }
}

/// Observes a certificate.
fn facts(chain: &[CertificateDer<'static>], wanted: &[String]) -> Result<CertificateFacts, String> {
    let validity = validity_s(chain).map_err(|error| format!("it can't be used: {error}"))?;
    let parsed = ParsedCertificate::try_from(&chain[0])
        .map_err(|error| format!("it can't be parsed: {error}"))?;
    let signed = |seconds: u64| i64::try_from(seconds).unwrap_or(i64::MAX);
    let is_for = |name: &str| {
        let name = ServerName::try_from(name.to_owned());
        name.is_ok_and(|name| verify_server_name(&parsed, &name).is_ok())
    };
    Ok(CertificateFacts {
        begins_s: signed(validity.start),
        ends_s: signed(validity.end),
        missing: wanted.iter().filter(|name| !is_for(name)).cloned().collect(),
    })
}

/// Verifies a chain under these authorities at a time.
fn verify(
    certificate: &ParsedCertificate<'_>,
    intermediates: &[CertificateDer<'_>],
    roots: &RootCertStore,
    at_s: u64,
) -> Result<(), CertificateError> {
    let algorithms = ring::default_provider().signature_verification_algorithms.all;
    let now = UnixTime::since_unix_epoch(Duration::from_secs(at_s));
    verify_server_cert_signed_by_trust_anchor(certificate, roots, intermediates, now, algorithms)
        .map_err(|error| match error {
            rustls::Error::InvalidCertificate(error) => error,
            other => CertificateError::Other(rustls::OtherError(std::sync::Arc::new(other))),
        })
}

/// Checks that the key belongs to the certificate.
fn check_key(chain: &[CertificateDer<'static>], key: &Path) -> Result<(), String> {
    let name = key.display();
    let key = PrivateKeyDer::from_pem_file(key)
        .map_err(|_| format!("the key in {name} can't be read, or is no PEM file"))?;
    CertifiedKey::from_der(chain.to_vec(), key, &ring::default_provider())
        .map(drop)
        .map_err(|error| format!("the key in {name} does not belong to it: {error}"))
}

/// Checks that an authority has issued the certificate. Its end and its names are judged elsewhere.
fn check_authority(
    chain: &[CertificateDer<'static>],
    authority: &Path,
    facts: &CertificateFacts,
    now_s: i64,
) -> Result<(), String> {
    let name = authority.display();
    let mut roots = RootCertStore::empty();
    for root in read_chain(authority).map_err(|error| format!("the authority {name}: {error}"))? {
        roots.add(root).map_err(|error| format!("the authority {name} can't be used: {error}"))?;
    }
    let parsed = ParsedCertificate::try_from(&chain[0])
        .map_err(|error| format!("it can't be parsed: {error}"))?;
    let within = now_s.clamp(facts.begins_s, facts.ends_s).max(0).unsigned_abs();
    match verify(&parsed, &chain[1..], &roots, within) {
        Ok(()) => Ok(()),
        Err(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
            Err(format!("the authority {name} has not issued it"))
        }
        Err(error) => Err(format!("it does not verify under the authority {name}: {error:?}")),
    }
}

/// Returns the step after a renewal. Certificates between members are read at the start alone.
fn after_renewal(subject: &str) -> &'static str {
    if subject.starts_with("tls_") {
        "then restart the processes that use it, one after another"
    } else {
        "a running process takes the new files by itself"
    }
}

fn judge(subject: &str, facts: &CertificateFacts, now_s: i64) -> Finding {
    let days = facts.ends_s.saturating_sub(now_s).div_euclid(DAY_S);
    let finding = Finding::ok(CHECK, subject, format!("{days} days left"));
    if facts.ends_s <= now_s {
        let seen = format!("ended {} days ago", now_s.saturating_sub(facts.ends_s) / DAY_S);
        return Finding::ok(CHECK, subject, seen)
            .fail(format!("renew it now; {}", after_renewal(subject)));
    }
    if facts.begins_s > now_s {
        let hours = facts.begins_s.saturating_sub(now_s).div_euclid(3600);
        return Finding::ok(CHECK, subject, format!("begins in {hours} hours"))
            .fail("set this machine's clock, or wait, or issue it again");
    }
    if !facts.missing.is_empty() {
        let seen = format!("{days} days left; not for {}", facts.missing.join(", "));
        return Finding::ok(CHECK, subject, seen)
            .warn("issue it with these names, or clients that use them refuse the connection");
    }
    if days < DAYS_WARN {
        return finding.warn(format!("renew it; {}", after_renewal(subject)));
    }
    finding
}

/// Examines files that only the process may read. Their contents are not read.
pub(crate) fn examine_secrets(files: &[PathBuf]) -> Vec<Finding> {
    files
        .iter()
        .map(|file| {
            let name = file.display().to_string();
            match fs::metadata(file) {
                Ok(about) if is_shared(&about) => {
                    Finding::ok(SECRETS, &name, "other users can read it").fail(format!(
                        "chmod 600 {name}, and make a new one if another user may have read it"
                    ))
                }
                Ok(_) => Finding::ok(SECRETS, name, "only its owner can read it"),
                Err(error) => Finding::ok(SECRETS, name, format!("it can't be read: {error}"))
                    .fail("copy it from another machine, or correct its path in the settings"),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
    use time::OffsetDateTime;

    use super::*;
    use crate::finding::Verdict;

    fn facts_until(ends_s: i64) -> CertificateFacts {
        CertificateFacts { begins_s: 0, ends_s, missing: Vec::new() }
    }

    fn verdict(facts: &CertificateFacts, now_s: i64) -> Verdict {
        judge("c", facts, now_s).verdict
    }

    #[test]
    fn ends_and_beginnings_are_judged() {
        let year = facts_until(365 * DAY_S);
        assert_eq!(verdict(&year, DAY_S), Verdict::Ok);
        assert_eq!(verdict(&year, 350 * DAY_S), Verdict::Warn);
        assert_eq!(verdict(&year, 366 * DAY_S), Verdict::Fail);
        let later = CertificateFacts { begins_s: 10 * DAY_S, ..year };
        assert_eq!(verdict(&later, DAY_S), Verdict::Fail);
        let step =
            |subject: &str| judge(subject, &facts_until(DAY_S), 0).advice.unwrap_or_default();
        assert!(step("tls_certificate /c.pem").contains("restart"));
        assert!(step("s3_tls_certificate /c.pem").contains("by itself"));
    }

    struct Issued {
        _place: tempfile::TempDir,
        files: CertificateFiles,
        pair: KeyPair,
    }

    /// Writes a certificate of a new authority for `n1`, valid for `days` from now on.
    fn issued(days: i64) -> Issued {
        let place = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let pair = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["n1".to_owned()]).unwrap();
        let now = OffsetDateTime::now_utc();
        params.not_before = now - time::Duration::days(400);
        params.not_after = now + time::Duration::days(days);
        let certificate = params.signed_by(&pair, &authority).unwrap().pem();
        let write = |name: &str, text: String| {
            let path = place.path().join(name);
            fs::write(&path, text).unwrap();
            path
        };
        let files = CertificateFiles {
            setting: "tls_certificate",
            certificate: write("c.pem", certificate),
            key: write("k.pem", pair.serialize_pem()),
            authority: Some(write("ca.pem", authority.pem())),
            names: vec!["n1".into()],
        };
        Issued { _place: place, files, pair }
    }

    #[test]
    fn a_real_certificate_is_examined() {
        let good = issued(100);
        let finding = &examine(std::slice::from_ref(&good.files))[0];
        assert_eq!(finding.verdict, Verdict::Ok, "{finding:?}");
        assert!(["99 days left", "100 days left"].contains(&finding.seen.as_str()), "{finding:?}");
        let names = ["n1", "n2", "10.0.0.1"].map(str::to_owned).to_vec();
        let finding = &examine(&[CertificateFiles { names, ..good.files.clone() }])[0];
        assert_eq!(finding.verdict, Verdict::Warn);
        assert!(finding.seen.ends_with("not for n2, 10.0.0.1"), "{}", finding.seen);
        let expired = issued(-3);
        let finding = &examine(std::slice::from_ref(&expired.files))[0];
        assert_eq!((finding.verdict, finding.seen.as_str()), (Verdict::Fail, "ended 3 days ago"));
    }

    #[test]
    fn keys_and_authorities_of_others_are_found() {
        let (one, other) = (issued(100), issued(100));
        let seen = |files: CertificateFiles| {
            let finding = examine(&[files]).remove(0);
            assert_eq!(finding.verdict, Verdict::Fail, "{finding:?}");
            finding.seen
        };
        let key = CertificateFiles { key: other.files.key.clone(), ..one.files.clone() };
        assert!(seen(key).contains("does not belong to it"));
        let authority =
            CertificateFiles { authority: other.files.authority.clone(), ..one.files.clone() };
        assert!(seen(authority).contains("has not issued it"));
        fs::write(&one.files.key, "mangled").unwrap();
        let unreadable = seen(one.files.clone());
        assert!(unreadable.contains("can't be read"), "{unreadable}");
        fs::write(&one.files.certificate, one.pair.serialize_pem()).unwrap();
        assert!(seen(one.files).contains("no certificate"));
    }

    #[test]
    fn secrets_are_for_their_owner() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("cluster.key");
        fs::write(&file, "x").unwrap();
        let verdict = |mode: u32| {
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            examine_secrets(std::slice::from_ref(&file))[0].verdict
        };
        assert_eq!((verdict(0o600), verdict(0o644)), (Verdict::Ok, Verdict::Fail));
        assert_eq!(examine_secrets(&[place.path().join("none")])[0].verdict, Verdict::Fail);
    }
}
