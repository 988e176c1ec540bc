//! Validity of certificates, and the certificates that this process uses.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, RootCertStore};

use crate::error::{Error, Result};

/// Seconds since 1970 after the end of any certificate, at which a verification names the end.
const LATE_S: u64 = 1 << 40;

/// Certificates that this process uses. Dropped ones are removed when another is added.
static IN_USE: Mutex<Vec<Weak<CertificateInUse>>> = Mutex::new(Vec::new());

/// Certificate of a port, from its loading until it is dropped.
#[derive(Debug)]
pub struct CertificateInUse {
    /// Beginning of the names of the settings that it comes from.
    settings: &'static str,
    /// Seconds since 1970; zero if they can't be known.
    ends_s: AtomicU64,
}

impl CertificateInUse {
    /// Registers a certificate, which is the first of its chain.
    pub fn new(settings: &'static str, chain: &[CertificateDer<'static>]) -> Arc<Self> {
        let shown = Arc::new(Self { settings, ends_s: AtomicU64::new(0) });
        shown.replace(chain);
        let mut in_use = IN_USE.lock();
        in_use.retain(|other| other.strong_count() > 0);
        in_use.push(Arc::downgrade(&shown));
        shown
    }

    /// Notes that another chain is used from now on.
    pub fn replace(&self, chain: &[CertificateDer<'static>]) {
        let ends_s = validity_s(chain).map_or(0, |validity| validity.end);
        self.ends_s.store(ends_s, Ordering::Relaxed);
    }
}

/// Returns the certificates in use, by the beginning of their settings' names: each with its end in
/// seconds since 1970, the earliest where roles of the process have several. Certificates whose end
/// can't be read are left out.
pub fn certificate_ends_s() -> Vec<(&'static str, u64)> {
    let in_use = IN_USE.lock();
    let mut ends: Vec<_> = in_use
        .iter()
        .filter_map(Weak::upgrade)
        .map(|shown| (shown.settings, shown.ends_s.load(Ordering::Relaxed)))
        .filter(|(_, ends_s)| *ends_s > 0)
        .collect();
    ends.sort_unstable();
    ends.dedup_by_key(|(settings, _)| *settings);
    ends
}

/// Returns the validity of the first certificate of a chain, in seconds since 1970. The bounds come
/// from verifications long before and long after them: a verification checks the time first, and
/// names the bound.
///
/// # Errors
/// Kind `Invalid` if the certificate can't be parsed.
pub fn validity_s(chain: &[CertificateDer<'static>]) -> Result<Range<u64>> {
    let unreadable =
        |error: rustls::Error| Error::invalid("the certificate can't be parsed").with_source(error);
    let (first, others) =
        chain.split_first().ok_or_else(|| Error::invalid("there is no certificate"))?;
    let parsed = ParsedCertificate::try_from(first).map_err(unreadable)?;
    let mut roots = RootCertStore::empty();
    roots.add(first.clone()).map_err(unreadable)?;
    let algorithms = ring::default_provider().signature_verification_algorithms.all;
    let bound = |at_s: u64| {
        let at = UnixTime::since_unix_epoch(Duration::from_secs(at_s));
        match verify_server_cert_signed_by_trust_anchor(&parsed, &roots, others, at, algorithms) {
            Err(rustls::Error::InvalidCertificate(
                CertificateError::ExpiredContext { not_after: bound, .. }
                | CertificateError::NotValidYetContext { not_before: bound, .. },
            )) => Ok(bound.as_secs()),
            Err(error) => Err(unreadable(error)),
            Ok(()) => Ok(at_s),
        }
    };
    Ok(bound(0)?..bound(LATE_S)?)
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    /// First seconds of years.
    const OF_2020: u64 = 1_577_836_800;
    const OF_2023: u64 = 1_672_531_200;
    const OF_2030: u64 = 1_893_456_000;
    const OF_2100: u64 = 4_102_444_800;

    /// A certificate that is valid from 2020 until the beginning of a year.
    fn until(year: i32) -> Vec<CertificateDer<'static>> {
        let mut params = CertificateParams::new(vec!["n1".to_owned()]).unwrap();
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(year, 1, 1);
        vec![params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()]
    }

    fn end_of(settings: &str) -> Option<u64> {
        certificate_ends_s().into_iter().find(|(name, _)| *name == settings).map(|(_, end)| end)
    }

    #[test]
    fn the_validity_is_that_of_the_certificate() {
        assert_eq!(validity_s(&until(2023)).unwrap(), OF_2020..OF_2023, "an expired one");
        assert_eq!(validity_s(&until(2100)).unwrap(), OF_2020..OF_2100);
        assert!(validity_s(&[]).is_err());
        assert!(validity_s(&[CertificateDer::from(vec![1, 2, 3])]).is_err());
    }

    #[test]
    fn the_earliest_end_of_those_in_use_is_shown_until_they_are_dropped() {
        let one = CertificateInUse::new("test", &until(2100));
        let other = CertificateInUse::new("test", &until(2023));
        assert_eq!(end_of("test"), Some(OF_2023));
        other.replace(&until(2030));
        assert_eq!(end_of("test"), Some(OF_2030));
        drop(other);
        assert_eq!(end_of("test"), Some(OF_2100));
        one.replace(&[]);
        assert_eq!(end_of("test"), None, "an end that can't be read");
    }
}
