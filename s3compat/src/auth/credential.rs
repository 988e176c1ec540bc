//! Credentials: a secret, its identity, and the signing keys derived from it.

use std::fmt;

use aws_sigv4::sign::v4::generate_signing_key;
use parking_lot::RwLock;

use crate::access::Identity;
use crate::date::Timestamp;
use crate::decode::SigningKey;

/// A secret access key. It is never printed.
#[derive(Clone)]
pub struct SecretKey(Box<str>);

impl SecretKey {
    /// Creates a secret.
    pub fn new(secret: &str) -> Self {
        Self(secret.into())
    }

    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKey(…)")
    }
}

/// A secret, its identity, and its recently derived signing keys.
#[derive(Debug)]
pub struct Credential {
    access_key: Box<str>,
    secret: SecretKey,
    identity: Identity,
    derived: RwLock<Vec<DerivedKey>>,
}

/// Maximum number of cached signing keys of a credential. Enough for presigned links, which live
/// for a week, and one region or two.
const DERIVED_MAX: usize = 16;

struct DerivedKey {
    service: &'static str,
    day: u32,
    region: Box<str>,
    key: SigningKey,
}

impl fmt::Debug for DerivedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DerivedKey")
            .field("day", &self.day)
            .field("region", &self.region)
            .finish_non_exhaustive()
    }
}

impl Credential {
    pub(crate) fn new(access_key: &str, secret: SecretKey, identity: Identity) -> Self {
        Self { access_key: access_key.into(), secret, identity, derived: RwLock::default() }
    }

    /// Access key that requests name.
    pub fn access_key(&self) -> &str {
        &self.access_key
    }

    /// Identity of the credential.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    pub(crate) fn secret(&self) -> &SecretKey {
        &self.secret
    }

    /// Signing key for S3 on the day of `time` in `region`. It is cached, as its derivation costs
    /// four HMACs.
    pub(crate) fn signing_key(&self, time: Timestamp, region: &str) -> SigningKey {
        self.signing_key_for("s3", time, region)
    }

    /// Signing key for a service.
    pub(crate) fn signing_key_for(
        &self,
        service: &'static str,
        time: Timestamp,
        region: &str,
    ) -> SigningKey {
        let day = time.day();
        let is_it = |derived: &&DerivedKey| {
            (derived.service, derived.day) == (service, day) && *derived.region == *region
        };
        if let Some(derived) = self.derived.read().iter().find(is_it) {
            return derived.key.clone();
        }
        let derived =
            generate_signing_key(self.secret.expose(), time.system_time(), region, service);
        let key = SigningKey::new(derived.as_ref());
        let mut cache = self.derived.write();
        if cache.len() >= DERIVED_MAX {
            cache.remove(0);
        }
        cache.push(DerivedKey { service, day, region: region.into(), key: key.clone() });
        key
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_differ_by_day_and_region_and_the_cache_is_bounded() {
        let secret = SecretKey::new("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY");
        let credential = Credential::new("AKIDEXAMPLE", secret, Identity::Anonymous);
        let mut seen = std::collections::HashSet::new();
        for day in 0..40 {
            for region in ["us-east-1", "eu-west-1"] {
                let time = Timestamp::from_unix_ms(day * 86_400_000);
                let first = credential.signing_key(time, region).sign(b"x");
                assert_eq!(credential.signing_key(time, region).sign(b"x"), first);
                assert!(seen.insert(first));
            }
        }
        assert!(credential.derived.read().len() <= DERIVED_MAX);
    }
}
