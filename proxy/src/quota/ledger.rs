//! Usage of one owner's buckets, as known to one proxy.
//!
//! ```text
//! counted, by the last count ─┐
//! written here since it began ├─▶ held
//! under way here ─────────────┘
//! ```
//!
//! Invariants:
//! * Usage written here at or after the start of the last count is added, included in the count or
//!   not. So `held` is never less than what the count and this proxy know of.
//! * Memory is bounded: recent usage is kept in a limited number of time slots, whose length grows.
//! * Usage of an uncounted bucket is dropped after [`UNCOUNTED_MS`]: the bucket may be deleted.

use std::collections::{HashMap, VecDeque};

use martlet_protocol::BucketId;
use martlet_protocol::usage::Usage;

use super::exceeded::{Bounds, Exceeded, Whose};

/// Maximum number of time slots for the recent usage of one bucket.
const SLOTS_MAX: usize = 64;
/// Initial length of a slot, in milliseconds.
const SLOT_MS: u64 = 1000;
/// Time for which usage of an uncounted bucket is kept, in milliseconds.
const UNCOUNTED_MS: u64 = 10 * 60 * 1000;

/// Last count of a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) usage: Usage,
    /// Start of the count, in milliseconds since 1970.
    pub(super) began_ms: u64,
}

/// Usage of one owner's buckets.
#[derive(Debug, Default)]
pub(super) struct Ledger(HashMap<BucketId, Account>);

#[derive(Debug, Default)]
struct Account {
    counted: Option<Counted>,
    recent: Recent,
    under_way: Usage,
}

impl Account {
    fn held(&self) -> Usage {
        let counted = self.counted.map(|counted| counted.usage).unwrap_or_default();
        counted.plus(self.recent.sum()).plus(self.under_way)
    }
}

impl Ledger {
    /// Usage of a bucket.
    pub(super) fn of(&self, bucket: BucketId) -> Usage {
        self.0.get(&bucket).map(Account::held).unwrap_or_default()
    }

    /// Usage of all buckets together.
    pub(super) fn all(&self) -> Usage {
        self.0.values().fold(Usage::default(), |sum, account| sum.plus(account.held()))
    }

    /// Replaces the counts by newer ones.
    pub(super) fn learn(&mut self, counts: Vec<(BucketId, Counted)>, now_ms: u64) {
        for account in self.0.values_mut() {
            account.counted = None;
        }
        for (bucket, counted) in counts {
            let account = self.0.entry(bucket).or_default();
            account.counted = Some(counted);
            account.recent.forget_before(counted.began_ms);
        }
        self.0.retain(|_, account| {
            if account.counted.is_none() {
                account.recent.forget_before(now_ms.saturating_sub(UNCOUNTED_MS));
            }
            account.counted.is_some() || account.held() != Usage::default()
        });
    }

    /// Charges the usage of a write to a bucket, within both quotas.
    pub(super) fn take(
        &mut self,
        bucket: BucketId,
        bounds: &Bounds,
        requested: Usage,
    ) -> Result<(), Exceeded> {
        let exceeded = |whose| move |excess| Exceeded { whose, excess };
        bounds.bucket.check(self.of(bucket), requested).map_err(exceeded(Whose::Bucket))?;
        if !bounds.tenant.is_none() {
            bounds.tenant.check(self.all(), requested).map_err(exceeded(Whose::Tenant))?;
        }
        let account = self.0.entry(bucket).or_default();
        account.under_way = account.under_way.plus(requested);
        Ok(())
    }

    /// Ends a write: removes its charge `taken`, and records the usage `added`.
    pub(super) fn settle(&mut self, bucket: BucketId, taken: Usage, added: Usage, now_ms: u64) {
        let account = self.0.entry(bucket).or_default();
        account.under_way = account.under_way.less(taken);
        if added != Usage::default() {
            account.recent.add(added, now_ms);
        }
    }
}

/// Recently added usage, by time.
#[derive(Debug)]
struct Recent {
    slots: VecDeque<Slot>,
    /// Length of a slot, in milliseconds.
    slot_ms: u64,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    first_ms: u64,
    last_ms: u64,
    usage: Usage,
}

impl Default for Recent {
    fn default() -> Self {
        Self { slots: VecDeque::new(), slot_ms: SLOT_MS }
    }
}

impl Recent {
    fn sum(&self) -> Usage {
        self.slots.iter().fold(Usage::default(), |sum, slot| sum.plus(slot.usage))
    }

    fn add(&mut self, usage: Usage, now_ms: u64) {
        if let Some(last) = self.slots.back_mut()
            && now_ms < last.first_ms.saturating_add(self.slot_ms)
        {
            last.usage = last.usage.plus(usage);
            last.last_ms = last.last_ms.max(now_ms);
            return;
        }
        self.slots.push_back(Slot { first_ms: now_ms, last_ms: now_ms, usage });
        if self.slots.len() > SLOTS_MAX {
            self.join_pairs();
        }
    }

    /// Joins pairs of slots into slots of twice the length.
    fn join_pairs(&mut self) {
        self.slot_ms = self.slot_ms.saturating_mul(2);
        let pairs: Vec<Slot> = self.slots.drain(..).collect();
        self.slots.extend(pairs.chunks(2).map(|pair| {
            let (first, last) = (pair[0], pair[pair.len() - 1]);
            let usage = pair.iter().fold(Usage::default(), |sum, slot| sum.plus(slot.usage));
            Slot { first_ms: first.first_ms, last_ms: last.last_ms, usage }
        }));
    }

    /// Removes the slots that ended before `at_ms`.
    fn forget_before(&mut self, at_ms: u64) {
        self.slots.retain(|slot| slot.last_ms >= at_ms);
        if self.slots.is_empty() {
            self.slot_ms = SLOT_MS;
        }
    }
}

#[cfg(test)]
mod tests {
    use martlet_protocol::usage::{Excess, Quota};

    use super::*;

    const A: BucketId = BucketId([1; 16]);
    const B: BucketId = BucketId([2; 16]);

    fn usage(bytes: u64, objects: u64) -> Usage {
        Usage { bytes, objects, index: 0 }
    }

    fn counted(bytes: u64, objects: u64, began_ms: u64) -> Counted {
        Counted { usage: usage(bytes, objects), began_ms }
    }

    fn bounds(bucket: u64, tenant: u64) -> Bounds {
        let bytes = |bytes| Quota { bytes: Some(bytes), ..Quota::default() };
        Bounds { bucket: bytes(bucket), tenant: bytes(tenant) }
    }

    fn write(ledger: &mut Ledger, bucket: BucketId, bytes: u64, now_ms: u64) {
        ledger.take(bucket, &Bounds::default(), usage(bytes, 1)).unwrap();
        ledger.settle(bucket, usage(bytes, 1), usage(bytes, 1), now_ms);
    }

    #[test]
    fn reserved_usage_counts_until_its_return() {
        let mut ledger = Ledger::default();
        ledger.learn(vec![(A, counted(90, 1, 5))], 5);
        let bounds = bounds(100, 1000);
        ledger.take(A, &bounds, usage(6, 1)).unwrap();
        let refused = ledger.take(A, &bounds, usage(5, 1)).unwrap_err();
        assert_eq!(refused, Exceeded { whose: Whose::Bucket, excess: Excess::Bytes(100) });
        ledger.take(A, &bounds, usage(4, 1)).unwrap();
        ledger.settle(A, usage(6, 1), Usage::default(), 7);
        assert_eq!(ledger.of(A), usage(94, 2), "the one that failed has added nothing");
        ledger.take(A, &bounds, usage(6, 1)).unwrap();
    }

    #[test]
    fn a_tenants_quota_is_over_all_its_buckets() {
        let mut ledger = Ledger::default();
        ledger.learn(vec![(A, counted(60, 1, 5)), (B, counted(30, 1, 5))], 5);
        let refused = ledger.take(A, &bounds(1000, 100), usage(11, 1)).unwrap_err();
        assert_eq!(refused, Exceeded { whose: Whose::Tenant, excess: Excess::Bytes(100) });
        ledger.take(B, &bounds(1000, 100), usage(10, 1)).unwrap();
        assert_eq!(ledger.all(), usage(100, 3));
    }

    #[test]
    fn writes_before_a_count_are_part_of_the_count() {
        let mut ledger = Ledger::default();
        write(&mut ledger, A, 10, 5_000);
        write(&mut ledger, A, 20, 7_000);
        assert_eq!(ledger.of(A), usage(30, 2), "before the first count");
        ledger.learn(vec![(A, counted(10, 1, 6_000))], 9_000);
        assert_eq!(ledger.of(A), usage(30, 2));
        ledger.learn(vec![(A, counted(25, 1, 8_000))], 9_000);
        assert_eq!(ledger.of(A), usage(25, 1), "one was deleted meanwhile");
    }

    #[test]
    fn deleted_buckets_are_forgotten_at_once_and_uncounted_usage_after_a_while() {
        let mut ledger = Ledger::default();
        write(&mut ledger, A, 10, 5_000);
        ledger.learn(vec![(B, counted(7, 1, 6_000))], 9_000);
        assert_eq!(ledger.all(), usage(17, 2));
        ledger.learn(Vec::new(), 9_000);
        assert_eq!(ledger.all(), usage(10, 1));
        ledger.learn(Vec::new(), 5_001 + UNCOUNTED_MS);
        assert_eq!((ledger.all(), ledger.0.len()), (Usage::default(), 0));
    }

    #[test]
    fn memory_is_bounded_and_nothing_is_forgotten_too_early() {
        let mut ledger = Ledger::default();
        for second in 0..10_000 {
            write(&mut ledger, A, 1, second * 1000);
        }
        assert!(ledger.0[&A].recent.slots.len() <= SLOTS_MAX);
        assert_eq!(ledger.of(A), usage(10_000, 10_000));
        ledger.learn(vec![(A, counted(0, 0, 9_000_000))], 10_000_000);
        let left = ledger.of(A).bytes;
        assert!((1_000..1_600).contains(&left), "{left}");
        ledger.learn(vec![(A, counted(0, 0, 10_000_000))], 10_000_000);
        assert_eq!(ledger.of(A), Usage::default());
    }
}
