//! Keys that sign requests: access keys, and the sessions of roles.

use std::sync::Arc;

use martlet_proxy::{Accounts, ROOT};

use super::access_keys::AccessKeys;
use super::credential::{Credential, SecretKey};
use super::providers::IdentityProvider;
use super::session_token::SessionKey;
use super::sessions::Sessions;
use crate::access::Identity;

/// Accepted keys: fixed access keys, those of a directory, and sessions. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Keys {
    access_keys: AccessKeys,
    sessions: Option<Arc<Sessions>>,
}

impl Keys {
    /// One key, for root, which owns everything.
    pub fn root(access_key: &str, secret: SecretKey) -> Self {
        Self::new([(access_key.to_owned(), secret, Identity::known(ROOT))])
    }

    /// Access keys with their secrets and identities.
    pub fn new(keys: impl IntoIterator<Item = (String, SecretKey, Identity)>) -> Self {
        Self { access_keys: AccessKeys::new(keys), sessions: None }
    }

    /// Adds the keys of tenants. Fixed keys take precedence.
    #[must_use]
    pub fn with_accounts(self, accounts: Accounts) -> Self {
        Self { access_keys: self.access_keys.with_accounts(accounts), ..self }
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

    /// Access keys without sessions.
    pub(crate) fn access_keys(&self) -> &AccessKeys {
        &self.access_keys
    }

    /// Credential of a fixed access key.
    pub fn lookup(&self, access_key: &str) -> Option<&Arc<Credential>> {
        self.access_keys.lookup(access_key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::date::Timestamp;

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
    fn unknown_keys_are_not_found() {
        assert!(keys().lookup("AKIDEXAMPL").is_none());
        assert_eq!(keys().lookup("AKIDEXAMPLE").unwrap().identity().name(), Some("root"));
    }
}
