//! Access keys and roles that were used lately, and what whoever authenticates made of them.
//!
//! ```text
//! age 0 ──────── half ──────── kept for ──────────────────────── outage
//!     taken for granted,       asked again by whoever comes;     refused
//!     asked again behind       while no quorum answers: granted
//! ```
//!
//! Invariants:
//! * While a quorum answers, nothing is granted by what is older than `kept_for`: what was changed is in
//!   force when that is over. A change that was read is never taken back by a read that began before it.
//! * Without a quorum, keys that were known go on until they are as old as `outage`; others are refused as
//!   unavailable, and nobody is told that a key does not exist.
//! * Memory is bounded, and keys that don't exist take the place of none that do. So many of them are asked
//!   for at a time, and no more, and those who know their keys do not wait behind them.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use tokio::time::Instant;

use super::desk::Accounts;
use super::holder::Holder;
use super::vault::Vault;
use crate::error::{Error, Result};
use crate::latch::Latches;
use crate::store::ObjectStore;

/// Keys that are remembered at once, of each sort.
const KEYS_MAX: usize = 10_000;

/// What a name stands for, which is remembered for a while.
#[async_trait::async_trait]
pub trait Known: Clone + PartialEq + Send + Sync + 'static {
    /// Whether something could be a name: what can't is asked nobody about.
    fn is_name(name: &str) -> bool;

    /// What a name stands for, by a quorum; nothing, if it opens nothing.
    ///
    /// # Errors
    /// When no quorum answers.
    async fn find(store: &ObjectStore, name: &str) -> Result<Option<Self>>;

    /// Its secret, empty where it has none.
    ///
    /// # Errors
    /// Why it can't be read.
    fn secret(&self, vault: &Vault) -> Result<String, String>;
}

/// What whoever authenticates makes of a holder and its secret.
type Make<T, H> = Box<dyn Fn(&H, &str) -> T + Send + Sync>;

/// Access keys that were used lately, or other names. Cheap to clone.
pub struct KeyCache<T, H = Holder>(Arc<Shared<T, H>>);

struct Shared<T, H> {
    accounts: Accounts,
    make: Make<T, H>,
    kept_for: Duration,
    outage: Duration,
    known: RwLock<HashMap<String, Slot<T, H>>>,
    /// Keys that did not exist, and when that was asked for.
    unknown: RwLock<HashMap<String, Instant>>,
    /// Held while it is asked for a key that was known.
    again: Latches,
    /// Held while it is asked for any other.
    first: Latches,
}

struct Slot<T, H> {
    /// When it was begun to read this.
    since: Instant,
    holder: H,
    made: Arc<T>,
    /// No quorum answered lately: it is granted until then, however old.
    excused_until: Option<Instant>,
    /// Somebody asks behind.
    is_asked: AtomicBool,
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

impl<T: Send + Sync + 'static, H: Known> KeyCache<T, H> {
    /// A cache over `accounts`, of what `make` makes of a holder and its secret.
    pub fn new(accounts: Accounts, make: impl Fn(&H, &str) -> T + Send + Sync + 'static) -> Self {
        let options = accounts.store.inner().options;
        Self(Arc::new(Shared {
            accounts,
            make: Box::new(make),
            kept_for: Duration::from_millis(options.account_cache_ms),
            outage: Duration::from_millis(options.account_outage_ms),
            known: RwLock::default(),
            unknown: RwLock::default(),
            again: Latches::new(),
            first: Latches::new(),
        }))
    }

    /// What was made of a key, if it can be taken for granted. Asks nobody, unless behind.
    pub fn get(&self, access_key: &str) -> Option<Arc<T>> {
        let known = self.0.known.read();
        let slot = known.get(access_key)?;
        let (now, age) = (Instant::now(), slot.since.elapsed());
        let is_excused = || age < self.0.outage && slot.excused_until.is_some_and(|it| now < it);
        if age >= self.0.kept_for && !is_excused() {
            return None;
        }
        let made = slot.made.clone();
        if age >= self.0.kept_for / 2 && !slot.is_asked.swap(true, Ordering::Relaxed) {
            drop(known);
            let (shared, access_key) = (self.0.clone(), access_key.to_owned());
            tokio::spawn(async move { shared.look_up(&access_key).await.map(drop) });
        }
        Some(made)
    }

    /// What was made of a key; none if it opens nothing.
    ///
    /// # Errors
    /// When no quorum answers, or its secret can't be read.
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
        let was_known = shared.known.read().contains_key(access_key);
        let latches = if was_known { &shared.again } else { &shared.first };
        let _turn = latches.lock(access_key).await;
        // Whoever came before may have found out.
        match self.get(access_key) {
            Some(made) => Ok(Some(made)),
            None if shared.is_unknown(access_key) => Ok(None),
            None => shared.look_up(access_key).await,
        }
    }

    /// Keys that are remembered: those that exist, and those that don't.
    #[cfg(test)]
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.0.known.read().len(), self.0.unknown.read().len())
    }
}

impl<T, H: Known> Shared<T, H> {
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
                tracing::warn!(%error, "a key or role could not be looked up");
                self.excuse(access_key).map(Some).ok_or(error)
            }
        }
    }

    /// A key is there. What was made of it is made again only if it has changed.
    fn learn(&self, access_key: &str, since: Instant, holder: H) -> Result<Option<Arc<T>>> {
        let same = self.known.read().get(access_key).and_then(|slot| {
            (slot.since > since || slot.holder == holder)
                .then(|| (slot.since.max(since), slot.holder.clone(), slot.made.clone()))
        });
        let (since, holder, made) = if let Some(same) = same {
            same
        } else {
            let made = self.make(&holder)?;
            (since, holder, made)
        };
        let mut known = self.known.write();
        if let Some(newer) = known.get(access_key).filter(|slot| slot.since > since) {
            return Ok(Some(newer.made.clone()));
        }
        if known.len() >= KEYS_MAX && !known.contains_key(access_key) {
            self.make_room(&mut known);
        }
        self.unknown.write().remove(access_key);
        let is_asked = AtomicBool::new(false);
        let slot = Slot { since, holder, made: made.clone(), excused_until: None, is_asked };
        known.insert(access_key.to_owned(), slot);
        Ok(Some(made))
    }

    fn make(&self, holder: &H) -> Result<Arc<T>> {
        let secret = holder.secret(&self.accounts.vault).map_err(|_| {
            let message = "the secret of the access key can't be read";
            Error::from(martlet_protocol::Error::unavailable(message))
        })?;
        Ok(Arc::new((self.make)(holder, &secret)))
    }

    /// A key opens nothing, unless that was known before it did.
    fn unlearn(&self, access_key: &str, since: Instant) -> Option<Arc<T>> {
        let mut known = self.known.write();
        if let Some(newer) = known.get(access_key).filter(|slot| slot.since > since) {
            return Some(newer.made.clone());
        }
        known.remove(access_key);
        let mut unknown = self.unknown.write();
        if unknown.len() >= KEYS_MAX {
            unknown.clear();
        }
        unknown.insert(access_key.to_owned(), since);
        None
    }

    /// No quorum answers: what is known is granted for the moment, if it is not too old.
    fn excuse(&self, access_key: &str) -> Option<Arc<T>> {
        let mut known = self.known.write();
        let slot = known.get_mut(access_key)?;
        if slot.since.elapsed() >= self.outage {
            known.remove(access_key);
            return None;
        }
        slot.excused_until = Some(Instant::now() + self.kept_for);
        slot.is_asked = AtomicBool::new(false);
        Some(slot.made.clone())
    }

    /// Forgets what can't be granted any more; if that is nothing, some key.
    fn make_room(&self, known: &mut HashMap<String, Slot<T, H>>) {
        known.retain(|_, slot| slot.since.elapsed() < self.outage);
        if known.len() >= KEYS_MAX
            && let Some(any) = known.keys().next().cloned()
        {
            known.remove(&any);
        }
    }
}
