//! Access keys that users make, rotate and delete themselves.
//!
//! A document for each user lists the user's keys, so that a list of them reads no key of others:
//!
//! ```text
//! own-keys/CANONICAL-ID/USER-ID       the access keys of a user of a tenant
//! ```
//!
//! A key is listed before it is created, and forgotten once it is deleted. A name without a key is
//! forgotten a minute after it was listed: its creation failed. Keys that an earlier version made are
//! listed once they have been used here.
//!
//! Invariants:
//! * A user reaches keys of that user alone: same user id, same tenant.
//! * No secret that a key makes opens more than the key itself: a new key takes networks and view of
//!   its maker. A key with limits rotates and deletes another one only if the limits are equal. A key
//!   with a rate of its own makes no key, because two keys have twice the rate.
//! * A key that is made while its maker is changed is deleted again.
//! * A user has [`OWN_KEYS_MAX`] keys at most by making them.

use futures::stream::{self, StreamExt, TryStreamExt};
use serde::{Deserialize, Serialize};

use super::client::Accounts;
use super::keys::{NewKey, new_access_key, new_secret};
use crate::accounts::documents::{Dated, missing};
use crate::accounts::records::{DefaultView, Kept, Key, Rate, User, UserOf, is_access_key};
use crate::error::{Error, Result};

/// Maximum number of keys that a user has when it makes one.
pub const OWN_KEYS_MAX: usize = 8;
/// Maximum number of keys in a user's list. Operators may make more, which are not listed.
const LISTED_MAX: usize = 64;
/// Time after which a listed name without a key is forgotten, in milliseconds.
const UNBORN_MS: u64 = 60_000;
/// Concurrent reads of keys for one list.
const READS_AT_ONCE: usize = 8;

/// List of a user's keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct KeysOfUser {
    tenant_id: String,
    user_id: String,
    keys: Vec<ListedKey>,
}

/// Access key in a list, with the time at which it was listed in milliseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ListedKey {
    access_key: String,
    listed_ms: u64,
}

impl Kept for KeysOfUser {
    const KIND: &'static str = "list of keys";
    const FOLDER: &'static str = "own-keys/";

    fn path(&self) -> String {
        path_of(&self.tenant_id, &self.user_id)
    }
}

fn path_of(tenant_id: &str, user_id: &str) -> String {
    format!("{tenant_id}/{user_id}")
}

/// Keys of one user, as the holder of one of them reaches them.
#[derive(Debug)]
pub struct OwnKeys<'a> {
    accounts: &'a Accounts,
    /// Key that signed the request.
    maker: Key,
    user: UserOf,
}

impl Accounts {
    /// Keys of the user of an access key, which is read from a quorum.
    ///
    /// # Errors
    /// [`Error::NoSuchAccount`] if the key doesn't exist, is disabled, or belongs to no user.
    pub async fn own_keys(&self, access_key: &str) -> Result<OwnKeys<'_>> {
        let holder = self.store.directory().holder(access_key).await?;
        let holder = holder.ok_or_else(|| missing::<Key>(access_key))?;
        let maker = holder.key;
        let no_user = || Error::NoSuchAccount(format!("the key {access_key} belongs to no user"));
        let user = maker.user.clone().ok_or_else(no_user)?;
        Ok(OwnKeys { accounts: self, maker, user })
    }

    /// Adds a key that is going to be created to the list of its user. A full list stays as it is.
    pub(super) async fn list_key_of(
        &self,
        tenant_id: &str,
        user: &UserOf,
        access_key: &str,
    ) -> Result<()> {
        let now_ms = self.now_ms();
        let add = |keys: &mut Vec<ListedKey>| {
            if keys.len() < LISTED_MAX {
                add_to(keys, access_key, now_ms);
            }
            Ok(())
        };
        self.change_list(tenant_id, user, add).await
    }

    /// Removes a key that was deleted from the list of its user.
    pub(super) async fn forget_key_of(
        &self,
        tenant_id: &str,
        user: &UserOf,
        access_key: &str,
    ) -> Result<()> {
        let forget = |keys: &mut Vec<ListedKey>| {
            keys.retain(|key| key.access_key != access_key);
            Ok(())
        };
        self.change_list(tenant_id, user, forget).await
    }

    /// Deletes the list of a user that was deleted.
    pub(super) async fn forget_keys_of(&self, user: &User) -> Result<()> {
        let path = path_of(&user.tenant_id, &user.id);
        match self.documents().delete_document::<KeysOfUser>(&path).await {
            Err(Error::NoSuchAccount(_)) => Ok(()),
            deleted => deleted,
        }
    }

    /// Changes the list of a user's keys by compare-and-set.
    async fn change_list(
        &self,
        tenant_id: &str,
        user: &UserOf,
        mut change: impl FnMut(&mut Vec<ListedKey>) -> Result<()> + Send,
    ) -> Result<()> {
        let decide = |there: Option<Dated<KeysOfUser>>| {
            let before = there.and_then(|it| it.document);
            let mut after = before.clone().unwrap_or_else(|| KeysOfUser {
                tenant_id: tenant_id.to_owned(),
                user_id: user.id.clone(),
                keys: Vec::new(),
            });
            change(&mut after.keys)?;
            Ok((before.as_ref() != Some(&after)).then_some(after))
        };
        self.documents().decide_dated(&path_of(tenant_id, &user.id), decide).await
    }
}

fn add_to(keys: &mut Vec<ListedKey>, access_key: &str, listed_ms: u64) {
    if !keys.iter().any(|key| key.access_key == access_key) {
        keys.push(ListedKey { access_key: access_key.to_owned(), listed_ms });
    }
}

/// Refuses a text that is no access key. The sentence doesn't repeat it.
fn check_name(access_key: &str) -> Result<()> {
    if is_access_key(access_key) {
        return Ok(());
    }
    Err(Error::InvalidArgument("the request names no well-formed access key".into()))
}

impl OwnKeys<'_> {
    /// Keys of the user, in the order of their creation. Reads each of them from a quorum.
    ///
    /// # Errors
    /// Fails if no quorum replies.
    pub async fn list(&self) -> Result<Vec<Key>> {
        let path = path_of(&self.maker.tenant_id, &self.user.id);
        let listed: Option<KeysOfUser> = self.accounts.documents().document(&path).await?;
        let mut names = listed.map(|it| it.keys).unwrap_or_default();
        add_to(&mut names, &self.maker.access_key, 0);
        let documents = self.accounts.documents();
        let reads: Vec<_> =
            names.iter().map(|listed| documents.document::<Key>(&listed.access_key)).collect();
        let found: Vec<Option<Key>> =
            stream::iter(reads).buffered(READS_AT_ONCE).try_collect().await?;
        let mut keys: Vec<Key> =
            found.into_iter().flatten().filter(|key| self.is_own(key)).collect();
        keys.sort_by(|one, other| {
            (one.created_ms, &one.access_key).cmp(&(other.created_ms, &other.access_key))
        });
        Ok(keys)
    }

    /// Returns true if a text could be an access key.
    pub fn is_access_key(text: &str) -> bool {
        is_access_key(text)
    }

    /// Returns a random access key for [`OwnKeys::create`].
    pub fn new_access_key() -> String {
        new_access_key()
    }

    /// Creates the key `access_key` of the user. Returns its secret, which no later call returns.
    ///
    /// # Errors
    /// [`Error::AccountConflict`] if the user has [`OWN_KEYS_MAX`] keys, the maker has a rate of its
    /// own, or no master key can seal the secret; [`Error::InvalidArgument`] for a malformed key.
    pub async fn create(&self, access_key: &str) -> Result<(Key, String)> {
        check_name(access_key)?;
        self.check_rate()?;
        let kept: Vec<String> = self.list().await?.into_iter().map(|key| key.access_key).collect();
        let now_ms = self.accounts.now_ms();
        let change = |keys: &mut Vec<ListedKey>| {
            // A name that was listed lately may be of a key whose creation is under way.
            let is_late = |key: &ListedKey| now_ms.saturating_sub(key.listed_ms) < UNBORN_MS;
            keys.retain(|key| kept.contains(&key.access_key) || is_late(key));
            add_to(keys, &self.maker.access_key, now_ms);
            if keys.len() >= OWN_KEYS_MAX {
                return Err(Error::AccountConflict(format!(
                    "the user {} has {} keys, and makes {OWN_KEYS_MAX} at most: delete one first",
                    self.user.name,
                    keys.len()
                )));
            }
            add_to(keys, access_key, now_ms);
            Ok(())
        };
        self.accounts.change_list(&self.maker.tenant_id, &self.user, change).await?;
        let new = NewKey {
            tenant: self.maker.tenant.clone(),
            user: Some(self.user.name.clone()),
            given: Some((access_key.to_owned(), new_secret())),
            networks: self.maker.networks.clone(),
        };
        let made = self.accounts.keys().create_listed(new, self.maker.view).await?;
        // An operator who limits or disables the maker now may not know of its key. A user of the name
        // may be another one by now: ids differ then.
        if self.is_own(&made.0) && self.check_maker(None).await.is_ok() {
            return Ok(made);
        }
        self.accounts.keys().delete(&made.0.access_key).await?;
        Err(self.changed_meanwhile())
    }

    /// Reads the maker again, and refuses if its key, user or tenant was changed or disabled. The
    /// secret of the maker may have changed if the maker is the `rotated` key.
    async fn check_maker(&self, rotated: Option<&str>) -> Result<()> {
        let mut now = self.accounts.own_keys(&self.maker.access_key).await?.maker;
        if rotated == Some(self.maker.access_key.as_str()) {
            now.secret.clone_from(&self.maker.secret);
            now.rotated_ms = self.maker.rotated_ms;
        }
        if now == self.maker { Ok(()) } else { Err(self.changed_meanwhile()) }
    }

    fn changed_meanwhile(&self) -> Error {
        Error::AccountConflict(format!(
            "the key {} was changed meanwhile: try again",
            self.maker.access_key
        ))
    }

    /// Replaces the secret of a key of the user. Reads the maker before and after: if an operator
    /// changed the maker meanwhile, no caller gets the new secret.
    ///
    /// # Errors
    /// [`Error::NoSuchAccount`] if the user has no such key; [`Error::AccountConflict`] if the maker has
    /// limits that the key doesn't have; [`Error::InvalidArgument`] for a malformed key.
    pub async fn rotate(&self, access_key: &str) -> Result<(Key, String)> {
        check_name(access_key)?;
        self.check_maker(None).await?;
        let check = |key: &Key| self.check_reach(key);
        let rotated = self.accounts.keys().rotate_if(access_key, None, check).await?;
        self.check_maker(Some(access_key)).await?;
        Ok(rotated)
    }

    /// Deletes a key of the user, but not the key of the request.
    ///
    /// # Errors
    /// [`Error::NoSuchAccount`] if the user has no such key; [`Error::AccountConflict`] for the key of
    /// the request, and if the maker has limits that the key doesn't have;
    /// [`Error::InvalidArgument`] for a malformed key.
    pub async fn delete(&self, access_key: &str) -> Result<()> {
        check_name(access_key)?;
        if access_key == self.maker.access_key {
            return Err(Error::AccountConflict(
                "a key can't delete itself: sign in with another key of the user".to_owned(),
            ));
        }
        let key: Option<Key> = self.accounts.documents().document(access_key).await?;
        self.check_reach(&key.ok_or_else(|| missing::<Key>(access_key))?)?;
        self.accounts.keys().delete(access_key).await
    }

    fn is_own(&self, key: &Key) -> bool {
        let is_user = key.user.as_ref().is_some_and(|user| user.id == self.user.id);
        is_user && key.tenant_id == self.maker.tenant_id
    }

    /// Refuses keys of others, and keys without the limits of the maker.
    fn check_reach(&self, key: &Key) -> Result<()> {
        if !self.is_own(key) {
            return Err(missing::<Key>(&key.access_key));
        }
        let limits = |key: &Key| (key.networks.clone(), key.rate, key.view);
        let is_free = limits(&self.maker) == (Vec::new(), Rate::default(), DefaultView::default());
        let is_maker = key.access_key == self.maker.access_key;
        if is_free || is_maker || limits(key) == limits(&self.maker) {
            return Ok(());
        }
        Err(Error::AccountConflict(format!(
            "the key {} has limits that the key {} does not have: use a key without limits",
            self.maker.access_key, key.access_key
        )))
    }

    fn check_rate(&self) -> Result<()> {
        if self.maker.rate == Rate::default() {
            return Ok(());
        }
        Err(Error::AccountConflict(format!(
            "the key {} has a rate of its own, and makes no other key: ask an operator",
            self.maker.access_key
        )))
    }
}
