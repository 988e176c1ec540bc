//! Cache of access keys and roles that were used lately, with the values that the authenticator
//! derived from them.
//!
//! ```text
//! age 0 ──────── half ──────── kept_for ──────────────────────── outage
//!     served from the cache,   looked up by the next request;    refused
//!     refreshed in background  without a quorum: served
//! ```
//!
//! Invariants:
//! * While a quorum replies, no entry older than `kept_for` is served: a change is in force after
//!   that time. A change that was read is never undone by a read that began before it.
//! * Without a quorum, known keys are served until they are `outage` old. Requests with other keys
//!   fail as unavailable, and none is answered that its key does not exist.
//! * Memory is bounded, and missing keys take no room from existing ones. Concurrent lookups of
//!   missing keys are limited, and lookups of known keys don't wait behind them.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use tokio::time::Instant;

use super::admin::Accounts;
use super::principal::Holder;
use crate::error::{Error, Result};
use crate::keyring::Vault;
use crate::latch::Latches;
use crate::store::ObjectStore;

/// Maximum number of cached names, for existing and for missing ones separately.
const KEYS_MAX: usize = 10_000;

/// A principal that the cache can look up by name.
#[async_trait::async_trait]
pub trait CachedPrincipal: Clone + PartialEq + Send + Sync + 'static {
    /// Returns true if `name` is well-formed. Other names are never looked up.
    fn is_name(name: &str) -> bool;

    /// Reads the principal of `name` from a quorum; none if it doesn't exist or is disabled.
    ///
    /// # Errors
    /// Fails if no quorum replies.
    async fn find(store: &ObjectStore, name: &str) -> Result<Option<Self>>;

    /// Its secret, empty if it has none.
    ///
    /// # Errors
    /// The reason why the secret can't be read.
    fn secret(&self, vault: &Vault) -> Result<String, String>;
}

/// Derives the cached value from a principal and its secret.
type Make<T, H> = Box<dyn Fn(&H, &str) -> T + Send + Sync>;

/// Access keys or roles that were used lately. Cheap to clone.
pub struct KeyCache<T, H = Holder>(Arc<Shared<T, H>>);

struct Shared<T, H> {
    accounts: Accounts,
    make: Make<T, H>,
    kept_for: Duration,
    outage: Duration,
    cached: RwLock<HashMap<String, Slot<T, H>>>,
    /// Names that did not exist, and the time of their lookup.
    unknown: RwLock<HashMap<String, Instant>>,
    /// Held during the lookup of a known name.
    again: Latches,
    /// Held during the lookup of any other name.
    first: Latches,
}

struct Slot<T, H> {
    /// Start of the read that found this.
    since: Instant,
    holder: H,
    made: Arc<T>,
    /// Set when no quorum replied lately: the entry is valid until then, unless it is older than
    /// `outage`.
    excused_until: Option<Instant>,
    /// True while a background lookup runs.
    is_refreshing: AtomicBool,
}

impl<T, H> Clone for KeyCache<T, H> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T, H> fmt::Debug for KeyCache<T, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyCache").finish_non_exhaustive()
    }
}

impl<T: Send + Sync + 'static, H: CachedPrincipal> KeyCache<T, H> {
    /// A cache over `accounts` that keeps `make` of each principal and its secret.
    pub fn new(accounts: Accounts, make: impl Fn(&H, &str) -> T + Send + Sync + 'static) -> Self {
        let options = accounts.store.services.options;
        Self(Arc::new(Shared {
            accounts,
            make: Box::new(make),
            kept_for: Duration::from_millis(options.account_cache_ms),
            outage: Duration::from_millis(options.account_outage_ms),
            cached: RwLock::default(),
            unknown: RwLock::default(),
            again: Latches::new(),
            first: Latches::new(),
        }))
    }

    /// The value of a key if the cache may serve it. Looks the key up only in the background.
    pub fn get(&self, access_key: &str) -> Option<Arc<T>> {
        let cached = self.0.cached.read();
        let slot = cached.get(access_key)?;
        let (now, age) = (Instant::now(), slot.since.elapsed());
        let is_excused = || age < self.0.outage && slot.excused_until.is_some_and(|it| now < it);
        if age >= self.0.kept_for && !is_excused() {
            return None;
        }
        let made = slot.made.clone();
        if age >= self.0.kept_for / 2 && !slot.is_refreshing.swap(true, Ordering::Relaxed) {
            drop(cached);
            let (shared, access_key) = (self.0.clone(), access_key.to_owned());
            tokio::spawn(async move { shared.look_up(&access_key).await.map(drop) });
        }
        Some(made)
    }

    /// The value of a key; none if the key is invalid.
    ///
    /// # Errors
    /// Fails if no quorum replies, or if the secret can't be read.
    pub async fn find(&self, access_key: &str) -> Result<Option<Arc<T>>> {
        if !H::is_name(access_key) {
            return Ok(None);
        }
        let shared = &self.0;
        if let Some(made) = self.get(access_key) {
            return Ok(Some(made));
        }
        if shared.is_unknown(access_key) {
            return Ok(None);
        }
        let was_cached = shared.cached.read().contains_key(access_key);
        let latches = if was_cached { &shared.again } else { &shared.first };
        let _turn = latches.lock(access_key).await;
        // An earlier holder of the latch may have looked it up.
        match self.get(access_key) {
            Some(made) => Ok(Some(made)),
            None if shared.is_unknown(access_key) => Ok(None),
            None => shared.look_up(access_key).await,
        }
    }

    /// Numbers of cached names: existing ones, and missing ones.
    #[cfg(test)]
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.0.cached.read().len(), self.0.unknown.read().len())
    }
}

impl<T, H: CachedPrincipal> Shared<T, H> {
    fn is_unknown(&self, access_key: &str) -> bool {
        let unknown = self.unknown.read();
        unknown.get(access_key).is_some_and(|since| since.elapsed() < self.kept_for)
    }

    async fn look_up(&self, access_key: &str) -> Result<Option<Arc<T>>> {
        let since = Instant::now();
        match H::find(&self.accounts.store, access_key).await {
            Ok(Some(holder)) => self.learn(access_key, since, holder),
            Ok(None) => Ok(self.unlearn(access_key, since)),
            Err(error) => {
                tracing::warn!(%error, "could not look up a key or role");
                self.excuse(access_key).map(Some).ok_or(error)
            }
        }
    }

    /// Stores an existing key. Its value is derived again only if the principal has changed.
    fn learn(&self, access_key: &str, since: Instant, holder: H) -> Result<Option<Arc<T>>> {
        let same = self.cached.read().get(access_key).and_then(|slot| {
            (slot.since > since || slot.holder == holder)
                .then(|| (slot.since.max(since), slot.holder.clone(), slot.made.clone()))
        });
        let (since, holder, made) = if let Some(same) = same {
            same
        } else {
            let made = self.make(&holder)?;
            (since, holder, made)
        };
        let mut cached = self.cached.write();
        if let Some(newer) = cached.get(access_key).filter(|slot| slot.since > since) {
            return Ok(Some(newer.made.clone()));
        }
        if cached.len() >= KEYS_MAX && !cached.contains_key(access_key) {
            self.make_room(&mut cached);
        }
        self.unknown.write().remove(access_key);
        let is_refreshing = AtomicBool::new(false);
        let slot = Slot { since, holder, made: made.clone(), excused_until: None, is_refreshing };
        cached.insert(access_key.to_owned(), slot);
        Ok(Some(made))
    }

    fn make(&self, holder: &H) -> Result<Arc<T>> {
        let secret = holder.secret(&self.accounts.vault).map_err(|_| {
            let message = "the secret of the access key can't be read";
            Error::from(martlet_protocol::Error::unavailable(message))
        })?;
        Ok(Arc::new((self.make)(holder, &secret)))
    }

    /// Stores that a key is invalid, unless a later read found it valid.
    fn unlearn(&self, access_key: &str, since: Instant) -> Option<Arc<T>> {
        let mut cached = self.cached.write();
        if let Some(newer) = cached.get(access_key).filter(|slot| slot.since > since) {
            return Some(newer.made.clone());
        }
        cached.remove(access_key);
        let mut unknown = self.unknown.write();
        if unknown.len() >= KEYS_MAX {
            unknown.clear();
        }
        unknown.insert(access_key.to_owned(), since);
        None
    }

    /// Serves a known key for another `kept_for` without a quorum, unless it is `outage` old.
    fn excuse(&self, access_key: &str) -> Option<Arc<T>> {
        let mut cached = self.cached.write();
        let slot = cached.get_mut(access_key)?;
        if slot.since.elapsed() >= self.outage {
            cached.remove(access_key);
            return None;
        }
        slot.excused_until = Some(Instant::now() + self.kept_for);
        slot.is_refreshing = AtomicBool::new(false);
        Some(slot.made.clone())
    }

    /// Removes entries older than `outage`, or an arbitrary one if none is.
    fn make_room(&self, cached: &mut HashMap<String, Slot<T, H>>) {
        cached.retain(|_, slot| slot.since.elapsed() < self.outage);
        if cached.len() >= KEYS_MAX
            && let Some(any) = cached.keys().next().cloned()
        {
            cached.remove(&any);
        }
    }
}
