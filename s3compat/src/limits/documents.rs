//! Memory for documents: bodies that are read whole before their operation begins.
//!
//! A document's share of the memory grows as its bytes arrive, and is released when its request
//! ends. Requests never wait for memory: a request that finds none is refused with `SlowDown`.
//!
//! Invariants:
//! * All documents together hold no more than the budget.
//! * One account holds no more than a quarter of the budget, and all anonymous requests together no
//!   more than an eighth. Both bounds allow at least one document.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::meter::Meters;

/// Divisor of the budget for one account.
const ACCOUNT: usize = 4;
/// Divisor of the budget for all anonymous requests.
const ANONYMOUS: usize = 8;
/// Smallest bound of an account in bytes: the longest document, and room for its buffer to grow.
pub(crate) const DOCUMENT_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Memory for the documents of an HTTP service. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Documents(Arc<DocumentsState>);

#[derive(Debug)]
struct DocumentsState {
    bytes_max: usize,
    held: AtomicUsize,
    /// Meters of all anonymous requests.
    anonymous: Meters,
}

/// Memory that one document holds.
#[derive(Debug)]
pub(crate) struct DocumentMemory {
    shared: Arc<DocumentsState>,
    meters: Meters,
    own_bytes_max: usize,
    bytes: usize,
}

impl Documents {
    /// Creates a budget of `bytes_max` for all documents.
    pub(crate) fn new(bytes_max: usize) -> Self {
        let (held, anonymous) = (AtomicUsize::new(0), Meters::default());
        Self(Arc::new(DocumentsState { bytes_max, held, anonymous }))
    }

    /// Begins an empty share for a document of the account with these meters; `None` is an
    /// anonymous request.
    pub(crate) fn begin(&self, whose: Option<&Meters>) -> DocumentMemory {
        let shared = self.0.clone();
        let part = if whose.is_some() { ACCOUNT } else { ANONYMOUS };
        let own_bytes_max = (shared.bytes_max / part).max(DOCUMENT_BYTES_MAX);
        let meters = whose.unwrap_or(&shared.anonymous).clone();
        DocumentMemory { shared, meters, own_bytes_max, bytes: 0 }
    }
}

impl DocumentMemory {
    /// Adds `bytes` to the share. Returns false, with the share unchanged, if the memory is used
    /// up.
    pub(crate) fn grow(&mut self, bytes: usize) -> bool {
        let own = &self.meters.account.document_bytes;
        if !add(own, bytes, self.own_bytes_max) {
            return false;
        }
        if !add(&self.shared.held, bytes, self.shared.bytes_max) {
            own.fetch_sub(bytes, Ordering::AcqRel);
            return false;
        }
        self.bytes += bytes;
        true
    }
}

impl Drop for DocumentMemory {
    fn drop(&mut self) {
        self.meters.account.document_bytes.fetch_sub(self.bytes, Ordering::AcqRel);
        self.shared.held.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

/// Adds to a sum unless the sum would exceed its bound.
fn add(sum: &AtomicUsize, bytes: usize, bytes_max: usize) -> bool {
    let within = |held: usize| held.checked_add(bytes).filter(|sum| *sum <= bytes_max);
    sum.fetch_update(Ordering::AcqRel, Ordering::Acquire, within).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1024 * 1024;

    /// Takes shares of one MiB each until one is refused.
    fn grab(documents: &Documents, whose: Option<&Meters>) -> Vec<DocumentMemory> {
        std::iter::from_fn(|| {
            let mut share = documents.begin(whose);
            share.grow(MIB).then_some(share)
        })
        .collect()
    }

    #[test]
    fn accounts_and_strangers_have_bounds_of_their_own() {
        let documents = Documents::new(64 * MIB);
        let (alice, bob) = (Meters::default(), Meters::default());
        let strangers = grab(&documents, None);
        assert_eq!(strangers.len(), 8);
        let of_alice = grab(&documents, Some(&alice));
        assert_eq!(of_alice.len(), 16);
        assert_eq!(grab(&documents, Some(&bob)).len(), 16, "bob's were given back at once");
        drop(strangers);
        assert_eq!(grab(&documents, None).len(), 8);
        drop(of_alice);
        assert_eq!(documents.0.held.load(Ordering::Acquire), 0);
    }

    #[test]
    fn all_together_stay_within_the_budget_and_one_document_always_fits() {
        let documents = Documents::new(8 * MIB);
        let accounts: Vec<Meters> = (0..3).map(|_| Meters::default()).collect();
        let held: Vec<_> = accounts.iter().map(|one| grab(&documents, Some(one))).collect();
        assert_eq!(held.iter().map(Vec::len).collect::<Vec<_>>(), [4, 4, 0]);
    }
}
