//! Access keys: creation, reads, limits, rotation and deletion.

use martlet_protocol::Network;
use martlet_protocol::id::random_bytes;

use super::client::{Accounts, check_networks};
use crate::accounts::documents::missing;
use crate::accounts::page::Page;
use crate::accounts::records::{DefaultView, Key, Rate, User, UserOf, check_credentials};
use crate::error::{Error, Result};
#[cfg(test)]
use crate::keyring::Sealed;

/// Alphabet of access keys. S3 clients expect 20 characters, and 40 of a secret.
const ACCESS_KEY_LETTERS: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
const SECRET_LETTERS: &[u8; 64] =
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Keys on one page.
const PAGE: usize = 500;

/// Parameters of a new key.
#[derive(Clone)]
pub struct NewKey {
    /// Tenant that owns the key.
    pub tenant: String,
    /// User that the key acts as; none for the whole tenant.
    pub user: Option<String>,
    /// Access key and secret, if they were created elsewhere.
    pub given: Option<(String, String)>,
    /// Networks that its requests may come from; all if empty.
    pub networks: Vec<Network>,
}

impl std::fmt::Debug for NewKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { tenant, user, .. } = self;
        write!(f, "NewKey(of {tenant}, {user:?})")
    }
}

/// Random text of `LETTERS` characters. The alphabet's size divides 256, so all letters are equally
/// likely.
fn random_text<const LETTERS: usize>(alphabet: &[u8]) -> String {
    let bytes: [u8; LETTERS] = random_bytes();
    bytes.iter().map(|byte| char::from(alphabet[usize::from(*byte) % alphabet.len()])).collect()
}

/// Returns a random access key.
pub(super) fn new_access_key() -> String {
    random_text::<20>(ACCESS_KEY_LETTERS)
}

/// Returns a random secret.
pub(super) fn new_secret() -> String {
    random_text::<40>(SECRET_LETTERS)
}

/// Access keys of tenants and users.
#[derive(Clone, Copy, Debug)]
pub struct AccessKeys<'a> {
    pub(super) accounts: &'a Accounts,
}

impl Accounts {
    /// Access keys of tenants and users.
    pub fn keys(&self) -> AccessKeys<'_> {
        AccessKeys { accounts: self }
    }
}

impl AccessKeys<'_> {
    /// Creates a key. Returns its secret, which no later call returns.
    ///
    /// # Errors
    /// [`Error::NoSuchAccount`] without its tenant or user; [`Error::AccountConflict`] if the
    /// access key exists or no master key can seal its secret; [`Error::InvalidArgument`] for
    /// credentials or networks outside their limits.
    pub async fn create(self, new: NewKey) -> Result<(Key, String)> {
        let (key, secret) = self.new_key(new, DefaultView::default()).await?;
        if let Some(user) = &key.user {
            self.accounts.list_key_of(&key.tenant_id, user, &key.access_key).await?;
        }
        self.accounts.documents().create_document(&key).await?;
        Ok((key, secret))
    }

    /// Creates a key that is in the list of its user.
    pub(super) async fn create_listed(
        self,
        new: NewKey,
        view: DefaultView,
    ) -> Result<(Key, String)> {
        let (key, secret) = self.new_key(new, view).await?;
        self.accounts.documents().create_document(&key).await?;
        Ok((key, secret))
    }

    /// Makes the document of a new key, which isn't stored yet.
    async fn new_key(self, new: NewKey, view: DefaultView) -> Result<(Key, String)> {
        self.check_sealing()?;
        check_networks(&new.networks)?;
        let (access_key, secret) = new.given.unwrap_or_else(|| (new_access_key(), new_secret()));
        check_credentials(&access_key, &secret)?;
        let tenant = self.accounts.tenants().get(&new.tenant).await?;
        let user = match &new.user {
            None => None,
            Some(name) => {
                let User { name, id, tenant_id, .. } =
                    self.accounts.users().get(&tenant.name, name).await?;
                if tenant_id != tenant.canonical_id {
                    let left =
                        format!("the user {name} belongs to a deleted tenant {}", tenant.name);
                    return Err(Error::AccountConflict(
                        left + ": delete the user and create it again",
                    ));
                }
                Some(UserOf { name, id })
            }
        };
        let now_ms = self.accounts.now_ms();
        let key = Key {
            secret: self
                .accounts
                .vault
                .seal(&secret, &belonging(&access_key, &tenant.canonical_id)),
            access_key,
            tenant: tenant.name,
            tenant_id: tenant.canonical_id,
            user,
            created_ms: now_ms,
            rotated_ms: now_ms,
            disabled: false,
            networks: new.networks,
            rate: Rate::default(),
            view,
        };
        Ok((key, secret))
    }

    /// Reads a key.
    ///
    /// # Errors
    /// [`Error::NoSuchAccount`].
    pub async fn get(self, access_key: &str) -> Result<Key> {
        self.accounts
            .documents()
            .document(access_key)
            .await?
            .ok_or_else(|| missing::<Key>(access_key))
    }

    /// Keys of a tenant, or all keys, in order of access key, above `after`.
    pub async fn list(
        self,
        tenant: Option<&str>,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<Key>> {
        let is_its = |key: &Key| tenant.is_none_or(|tenant| key.tenant == tenant);
        self.accounts.documents().list_documents("", after, limit, is_its).await
    }

    /// Enables or disables a key, or sets the networks that its requests may come from.
    ///
    /// # Errors
    /// [`Error::NoSuchAccount`].
    pub async fn change(
        self,
        access_key: &str,
        disabled: Option<bool>,
        networks: Option<Vec<Network>>,
    ) -> Result<Key> {
        check_networks(networks.as_deref().unwrap_or_default())?;
        let change = |key: &mut Key| {
            key.disabled = disabled.unwrap_or(key.disabled);
            if let Some(networks) = &networks {
                key.networks.clone_from(networks);
            }
            Ok(())
        };
        self.accounts.documents().change_document(access_key, change).await
    }

    /// Sets the view that a key's requests get by default.
    ///
    /// # Errors
    /// [`Error::NoSuchAccount`].
    pub async fn change_view(self, access_key: &str, view: DefaultView) -> Result<Key> {
        let change = |key: &mut Key| {
            key.view = view;
            Ok(())
        };
        self.accounts.documents().change_document(access_key, change).await
    }

    /// Replaces a key's secret by `given` or by a random one. The old secret becomes invalid.
    ///
    /// # Errors
    /// [`Error::NoSuchAccount`]; [`Error::AccountConflict`] if no master key can seal the secret.
    pub async fn rotate(self, access_key: &str, given: Option<String>) -> Result<(Key, String)> {
        self.rotate_if(access_key, given, |_| Ok(())).await
    }

    /// Replaces a key's secret as [`AccessKeys::rotate`] does, if `check` accepts the key.
    pub(super) async fn rotate_if(
        self,
        access_key: &str,
        given: Option<String>,
        check: impl Fn(&Key) -> Result<()> + Send + Sync,
    ) -> Result<(Key, String)> {
        self.check_sealing()?;
        let secret = given.unwrap_or_else(new_secret);
        check_credentials(access_key, &secret)?;
        let now_ms = self.accounts.now_ms();
        let change = |key: &mut Key| {
            check(key)?;
            key.secret = self.accounts.vault.seal(&secret, &belonging(access_key, &key.tenant_id));
            key.rotated_ms = now_ms;
            Ok(())
        };
        let key = self.accounts.documents().change_document(access_key, change).await?;
        Ok((key, secret))
    }

    /// Refuses without a master key: no secret is written in clear.
    fn check_sealing(self) -> Result<()> {
        if self.accounts.vault.seals() {
            return Ok(());
        }
        Err(Error::AccountConflict(
            "this process has no master key to encrypt the secret of a key: set master_key_file at \
             every proxy, the same for all"
                .into(),
        ))
    }

    /// Seals the secrets that an earlier version stored in clear; returns their number. Afterwards
    /// only processes with the master key can open them.
    ///
    /// # Errors
    /// Fails if no quorum replies; some secrets may be sealed by then.
    pub async fn seal_secrets(self) -> Result<u64> {
        let (mut after, mut sealed) = (None::<String>, 0);
        if !self.accounts.vault.seals() {
            return Ok(0);
        }
        loop {
            let Page { items: keys, is_truncated } =
                self.list(None, after.as_deref(), PAGE).await?;
            for key in keys.iter().filter(|key| !key.secret.is_sealed()) {
                sealed += u64::from(self.seal_secret(&key.access_key).await?);
            }
            after = keys.into_iter().last().map(|key| key.access_key);
            if !is_truncated || after.is_none() {
                return Ok(sealed);
            }
        }
    }

    /// Stores a secret in clear, as a version without a master key did.
    #[cfg(test)]
    pub(crate) async fn leave_in_clear(self, access_key: &str, secret: &str) {
        let clear = |key: &mut Key| {
            key.secret = Sealed::Clear(secret.to_owned());
            Ok(())
        };
        self.accounts.documents().change_document(access_key, clear).await.expect("the key exists");
    }

    /// Seals a secret; returns false if it is no longer in clear.
    async fn seal_secret(self, access_key: &str) -> Result<bool> {
        let mut was_clear = false;
        let change = |key: &mut Key| {
            was_clear = false;
            if let Some(secret) = key.secret.in_clear() {
                let belonging = belonging(access_key, &key.tenant_id);
                (key.secret, was_clear) = (self.accounts.vault.seal(secret, &belonging), true);
            }
            Ok(())
        };
        match self.accounts.documents().change_document(access_key, change).await {
            Ok(_) => Ok(was_clear),
            Err(Error::NoSuchAccount(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Deletes a key.
    ///
    /// # Errors
    /// [`Error::NoSuchAccount`].
    pub async fn delete(self, access_key: &str) -> Result<()> {
        let key = self.get(access_key).await?;
        self.accounts.documents().delete_document::<Key>(access_key).await?;
        if let Some(user) = &key.user {
            self.accounts.forget_key_of(&key.tenant_id, user, access_key).await?;
        }
        Ok(())
    }
}

/// Associated data that binds a secret to its key and tenant.
pub(crate) fn belonging(access_key: &str, tenant_id: &str) -> String {
    format!("{access_key} of {tenant_id}")
}
