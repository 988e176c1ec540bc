//! Access keys, their secrets, and the signing keys derived from them.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use aws_sigv4::sign::v4::generate_signing_key;
use martlet_proxy::{Accounts, Holder, KeyCache, ROOT};
use parking_lot::RwLock;

use super::date::Timestamp;
use super::identity::{AccountIdentity, Identity};
use super::refusal::Refusal;
use crate::limits::meter::Registry;
use crate::sts::{IdentityProvider, SessionKey, Sessions};

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

/// Accepted access keys: fixed ones, and those of a directory. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Keys {
    fixed: Arc<HashMap<String, Arc<Credential>>>,
    directory: Option<KeyCache<Credential>>,
    sessions: Option<Arc<Sessions>>,
    /// Recent use of tenants and keys.
    meters: Arc<Registry>,
}

impl Keys {
    /// One key, for root, which owns everything.
    pub fn root(access_key: &str, secret: SecretKey) -> Self {
        Self::new([(access_key.to_owned(), secret, Identity::known(ROOT))])
    }

    /// Access keys with their secrets and identities.
    pub fn new(keys: impl IntoIterator<Item = (String, SecretKey, Identity)>) -> Self {
        let credentials = keys.into_iter().map(|(access_key, secret, identity)| {
            let credential = Credential::new(&access_key, secret, identity);
            (access_key, Arc::new(credential))
        });
        let fixed = Arc::new(credentials.collect());
        Self { fixed, directory: None, sessions: None, meters: Arc::default() }
    }

    /// Adds the keys of tenants. Fixed keys take precedence.
    #[must_use]
    pub fn with_accounts(self, accounts: Accounts) -> Self {
        let meters = self.meters.clone();
        let directory = KeyCache::new(accounts, move |holder: &Holder, secret: &str| {
            let who = AccountIdentity { meters: meters.of(holder), ..AccountIdentity::of(holder) };
            let identity = Identity::Known(Arc::new(who));
            Credential::new(&holder.key.access_key, SecretKey::new(secret), identity)
        });
        Self { directory: Some(directory), ..self }
    }

    /// Adds sessions of roles. `key` seals their tokens; tokens of `providers` may begin sessions.
    #[must_use]
    pub fn with_sessions(
        self,
        accounts: Accounts,
        key: SessionKey,
        providers: Vec<IdentityProvider>,
    ) -> Self {
        Self { sessions: Some(Arc::new(Sessions::new(accounts, key, providers))), ..self }
    }

    /// State of sessions, if sessions are enabled.
    pub(crate) fn sessions(&self) -> Option<&Sessions> {
        self.sessions.as_deref()
    }

    /// Recent use of tenants and keys.
    pub(crate) fn meters(&self) -> &Registry {
        &self.meters
    }

    /// Credential of any access key except a session's.
    pub(crate) async fn any(&self, access_key: &str) -> Result<Option<Arc<Credential>>, Refusal> {
        match self.lookup(access_key) {
            Some(credential) => Ok(Some(credential.clone())),
            None => self.find(access_key).await,
        }
    }

    /// Credential of a fixed access key.
    pub fn lookup(&self, access_key: &str) -> Option<&Arc<Credential>> {
        self.fixed.get(access_key)
    }

    /// Credential of an access key in the directory.
    pub(super) async fn find(&self, access_key: &str) -> Result<Option<Arc<Credential>>, Refusal> {
        let Some(directory) = &self.directory else { return Ok(None) };
        if let Some(credential) = directory.get(access_key) {
            return Ok(Some(credential));
        }
        // Rare, and large: boxed, so that other requests need no space for it.
        Box::pin(directory.find(access_key)).await.map_err(|_| Refusal::try_again())
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

/// A key for one day, region and service, as SigV4 derives it. It is never printed.
#[derive(Clone, Copy)]
pub struct SigningKey([u8; 32]);

impl SigningKey {
    /// Signature of `string_to_sign`, in hexadecimal.
    pub fn sign(&self, string_to_sign: &[u8]) -> String {
        aws_sigv4::sign::v4::calculate_signature(self.0, string_to_sign)
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningKey(…)")
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
    pub(super) fn signing_key_for(
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
            return derived.key;
        }
        let derived =
            generate_signing_key(self.secret.expose(), time.system_time(), region, service);
        let mut key = SigningKey([0; 32]);
        key.0.copy_from_slice(derived.as_ref());
        let mut cache = self.derived.write();
        if cache.len() >= DERIVED_MAX {
            cache.remove(0);
        }
        cache.push(DerivedKey { service, day, region: region.into(), key });
        key
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys() -> Keys {
        Keys::root("AKIDEXAMPLE", SecretKey::new("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"))
    }

    #[test]
    fn secrets_are_never_printed() {
        let keys = keys();
        let credential = keys.lookup("AKIDEXAMPLE").unwrap();
        let key = credential.signing_key(Timestamp::from_unix_ms(1_440_938_160_000), "us-east-1");
        let printed = format!("{keys:?} {credential:?} {key:?}");
        assert!(!printed.contains("wJalr"), "{printed}");
        assert!(printed.contains("us-east-1"), "{printed}");
    }

    #[test]
    fn keys_differ_by_day_and_region_and_the_cache_is_bounded() {
        let keys = keys();
        let credential = keys.lookup("AKIDEXAMPLE").unwrap();
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

    #[test]
    fn unknown_keys_are_not_found() {
        assert!(keys().lookup("AKIDEXAMPL").is_none());
        assert_eq!(keys().lookup("AKIDEXAMPLE").unwrap().identity().name(), Some("root"));
    }
}
