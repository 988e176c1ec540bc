//! Who may sign: access keys, their secrets, and the signing keys derived from them.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use aws_sigv4::sign::v4::generate_signing_key;
use martlet_proxy::{Accounts, Holder, KeyCache, ROOT};
use parking_lot::RwLock;

use super::date::Timestamp;
use super::refusal::Refusal;
use super::who::{Identity, Who};
use crate::limits::meter::Registry;
use crate::sts::{IdentityProvider, SessionKey, Sessions};

/// A secret access key. It is never printed.
#[derive(Clone)]
pub struct Secret(Box<str>);

impl Secret {
    /// Takes the secret in.
    pub fn new(secret: &str) -> Self {
        Self(secret.into())
    }

    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// The access keys that are honoured: some for good, and those that a directory knows. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Keys {
    fixed: Arc<HashMap<String, Arc<Credential>>>,
    directory: Option<KeyCache<Credential>>,
    sessions: Option<Arc<Sessions>>,
    /// What tenants and keys have used lately.
    meters: Arc<Registry>,
}

impl Keys {
    /// One key, for the owner of everything.
    pub fn root(access_key: &str, secret: Secret) -> Self {
        Self::new([(access_key.to_owned(), secret, Identity::known(ROOT))])
    }

    /// Access keys with their secrets and the identities that they speak for.
    pub fn new(keys: impl IntoIterator<Item = (String, Secret, Identity)>) -> Self {
        let credentials = keys.into_iter().map(|(access_key, secret, identity)| {
            let credential = Credential::new(&access_key, secret, identity);
            (access_key, Arc::new(credential))
        });
        let fixed = Arc::new(credentials.collect());
        Self { fixed, directory: None, sessions: None, meters: Arc::default() }
    }

    /// The same with the keys of tenants. What is known for good wins.
    #[must_use]
    pub fn with_accounts(self, accounts: Accounts) -> Self {
        let meters = self.meters.clone();
        let directory = KeyCache::new(accounts, move |holder: &Holder, secret: &str| {
            let who = Who { meters: meters.of(holder), ..Who::of(holder) };
            let identity = Identity::Known(Arc::new(who));
            Credential::new(&holder.key.access_key, Secret::new(secret), identity)
        });
        Self { directory: Some(directory), ..self }
    }

    /// The same with sessions of roles, whose tokens `key` seals, and the providers whose tokens may begin
    /// some.
    #[must_use]
    pub fn with_sessions(
        self,
        accounts: Accounts,
        key: SessionKey,
        providers: Vec<IdentityProvider>,
    ) -> Self {
        Self { sessions: Some(Arc::new(Sessions::new(accounts, key, providers))), ..self }
    }

    /// What sessions rest on, where there are any.
    pub(crate) fn sessions(&self) -> Option<&Sessions> {
        self.sessions.as_deref()
    }

    /// What tenants and keys have used lately.
    pub(crate) fn meters(&self) -> &Registry {
        &self.meters
    }

    /// What an access key stands for, of whatever sort but a session's.
    pub(crate) async fn any(&self, access_key: &str) -> Result<Option<Arc<Credential>>, Refusal> {
        match self.lookup(access_key) {
            Some(credential) => Ok(Some(credential.clone())),
            None => self.find(access_key).await,
        }
    }

    /// What an access key stands for that is known for good.
    pub fn lookup(&self, access_key: &str) -> Option<&Arc<Credential>> {
        self.fixed.get(access_key)
    }

    /// What any other access key stands for.
    pub(super) async fn find(&self, access_key: &str) -> Result<Option<Arc<Credential>>, Refusal> {
        let Some(directory) = &self.directory else { return Ok(None) };
        if let Some(credential) = directory.get(access_key) {
            return Ok(Some(credential));
        }
        // Seldom, and large: most requests make no room for it.
        Box::pin(directory.find(access_key)).await.map_err(|_| Refusal::try_again())
    }
}

/// A secret, whom it speaks for, and the signing keys derived from it of late.
#[derive(Debug)]
pub struct Credential {
    access_key: Box<str>,
    secret: Secret,
    identity: Identity,
    derived: RwLock<Vec<Derived>>,
}

/// So many days and regions of one credential are in use at a time: presigned links live for a
/// week, and most servers answer to one region or two.
const DERIVED_MAX: usize = 16;

struct Derived {
    service: &'static str,
    day: u32,
    region: Box<str>,
    key: SigningKey,
}

impl fmt::Debug for Derived {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Derived")
            .field("day", &self.day)
            .field("region", &self.region)
            .finish_non_exhaustive()
    }
}

/// A key for one day, region and service, as SigV4 derives it. It is never printed.
#[derive(Clone, Copy)]
pub struct SigningKey([u8; 32]);

impl SigningKey {
    /// The signature of `string_to_sign`, in hexadecimal.
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
    pub(crate) fn new(access_key: &str, secret: Secret, identity: Identity) -> Self {
        Self { access_key: access_key.into(), secret, identity, derived: RwLock::default() }
    }

    /// What requests name it by.
    pub fn access_key(&self) -> &str {
        &self.access_key
    }

    /// Whom it speaks for.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    pub(crate) fn secret(&self) -> &Secret {
        &self.secret
    }

    /// The signing key of the day of `time` in `region`, derived once: that costs four HMACs.
    pub(crate) fn signing_key(&self, time: Timestamp, region: &str) -> SigningKey {
        self.signing_key_for("s3", time, region)
    }

    /// The same for a service.
    pub(super) fn signing_key_for(
        &self,
        service: &'static str,
        time: Timestamp,
        region: &str,
    ) -> SigningKey {
        let day = time.day();
        let is_it = |derived: &&Derived| {
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
        cache.push(Derived { service, day, region: region.into(), key });
        key
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys() -> Keys {
        Keys::root("AKIDEXAMPLE", Secret::new("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"))
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
