//! Calls of background workers on a device: sums, walks, holdings, drops.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::device::MemoryDevice;
use crate::backend::{Holding, RegisterDrop, RegisterView, Walk};
use crate::entry::Value;
use crate::key::RegisterKey;
use crate::stamp::Stamp;
use crate::tree::{BinKey, Span, Sum, TreeKey};

impl MemoryDevice {
    /// Returns the non-empty bins in a span, in the order of placements.
    pub(super) fn bins(&self, span: Span) -> BTreeMap<(u64, BinKey), Sum> {
        let mut bins = BTreeMap::new();
        for (key, cell) in &self.registers {
            let bin = BinKey::of(key);
            let placement = bin.placement();
            if !span.contains(placement) || self.collectable.contains(key) {
                continue;
            }
            if let Some(entry) = &cell.entry {
                let leaf = Sum::leaf(&TreeKey::default(), key, entry.order, entry.write_id);
                *bins.entry((placement, bin)).or_default() += leaf;
            }
        }
        bins
    }

    pub(super) fn sum(&self, span: Span) -> Sum {
        let mut sum = Sum::default();
        self.bins(span).into_values().for_each(|bin| sum += bin);
        sum
    }

    pub(super) fn walk(
        &self,
        walk: &Walk,
        after: Option<&RegisterKey>,
        limit: usize,
    ) -> Vec<(RegisterKey, RegisterView)> {
        let from = after.map_or(Bound::Unbounded, |key| Bound::Excluded(key.clone()));
        let run = self.registers.range((from, Bound::Unbounded)).filter(|(key, cell)| {
            cell.entry.is_some()
                && !self.collectable.contains(key)
                && walk.span.contains(key.placement())
                && walk.bin.is_none_or(|bin| bin == BinKey::of(key))
        });
        let view = |(key, cell): (&RegisterKey, &super::device::Cell)| {
            (key.clone(), cell.view(walk.want, self.floor))
        };
        run.take(limit).map(view).collect()
    }

    pub(super) fn holding(&self, key: &RegisterKey) -> Holding {
        let cell = self.registers.get(key);
        let entry = cell.and_then(|cell| cell.entry.as_ref());
        Holding {
            held: entry.map(|entry| (entry.order, entry.write_id)),
            promise: cell.map_or(Stamp::ZERO, |cell| cell.promise),
            hint: self.hints.get(key).map(|hint| hint.entry.order),
            collectable: self.collectable.contains(key),
        }
    }

    pub(super) fn mark_collectable(&mut self, key: &RegisterKey, order: Stamp) {
        let entry = self.registers.get(key).and_then(|cell| cell.entry.as_ref());
        let is_it =
            |entry: &crate::Entry| entry.order == order && matches!(entry.value, Value::Tombstone);
        if entry.is_some_and(is_it) {
            self.collectable.insert(key.clone());
        }
    }

    pub(super) fn drop_register(&mut self, drop: &RegisterDrop) {
        let Holding { held, promise, collectable, .. } = self.holding(&drop.key);
        let order = held.map_or(Stamp::ZERO, |(order, _)| order);
        if order.max(promise) <= drop.up_to && (collectable || !drop.collectable) {
            self.registers.remove(&drop.key);
            self.collectable.remove(&drop.key);
        }
    }
}
