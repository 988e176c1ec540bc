//! Calls of background workers on a device: garbage, sums, walks, holdings, drops.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::device::{Cell, MemoryDevice, above};
use crate::backend::{
    AgedPage, AgedWalk, AuditResult, Garbage, GarbageId, Holding, RegisterDrop, RegisterView, Walk,
    Want,
};
use crate::entry::Value;
use crate::error::{Error, Result};
use crate::key::RegisterKey;
use crate::stamp::Stamp;
use crate::tree::{BinKey, Span, Sum, TreeKey};

impl MemoryDevice {
    pub(super) fn garbage(&self, before_ms: u64, limit: usize) -> Vec<Garbage> {
        self.garbage_from(0, before_ms, limit)
    }

    pub(super) fn garbage_after(
        &self,
        after: Option<&GarbageId>,
        before_ms: u64,
        limit: usize,
    ) -> Result<Vec<Garbage>> {
        let from = after.map_or(Ok(0), |id| Ok(number_of(id)? + 1))?;
        Ok(self.garbage_from(from, before_ms, limit))
    }

    fn garbage_from(&self, from: u64, before_ms: u64, limit: usize) -> Vec<Garbage> {
        let run = self.garbage.range(from..);
        let old = run.filter(|(_, (at_ms, ..))| *at_ms <= before_ms).take(limit);
        old.map(|(number, (_, key, body))| Garbage {
            id: GarbageId(Bytes::copy_from_slice(&number.to_be_bytes())),
            key: key.clone(),
            body: body.clone(),
        })
        .collect()
    }

    pub(super) fn forget_garbage(&mut self, garbage: &[GarbageId]) -> Result<()> {
        for id in garbage {
            self.garbage.remove(&number_of(id)?);
        }
        Ok(())
    }

    pub(super) fn registers(
        &self,
        after: Option<&RegisterKey>,
        limit: usize,
    ) -> Vec<(RegisterKey, RegisterView)> {
        let run = self.registers.range(above(after)).take(limit);
        let view = |cell: &Cell| cell.view(Want::EntryAndInline, self.floor);
        run.map(|(key, cell)| (key.clone(), view(cell))).collect()
    }

    pub(super) fn sums(&self, spans: &[Span]) -> Vec<Sum> {
        spans.iter().map(|span| self.sum(*span)).collect()
    }

    /// Returns a page of the non-empty bins in a span.
    pub(super) fn bins(
        &self,
        span: Span,
        after: Option<BinKey>,
        limit: usize,
    ) -> Vec<(BinKey, Sum)> {
        let after = after.map(|bin| (bin.placement(), bin));
        let bins = self.bins_of(span).into_iter();
        let above = bins.filter(|(at, _)| after.is_none_or(|after| *at > after));
        above.take(limit).map(|((_, bin), sum)| (bin, sum)).collect()
    }

    /// Returns the non-empty bins in a span, in the order of placements.
    fn bins_of(&self, span: Span) -> BTreeMap<(u64, BinKey), Sum> {
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

    fn sum(&self, span: Span) -> Sum {
        let mut sum = Sum::default();
        self.bins_of(span).into_values().for_each(|bin| sum += bin);
        sum
    }

    pub(super) fn walk(
        &self,
        walk: &Walk,
        after: Option<&RegisterKey>,
        limit: usize,
    ) -> Vec<(RegisterKey, RegisterView)> {
        let run = self.registers.range(above(after)).filter(|(key, cell)| {
            cell.entry.is_some()
                && !self.collectable.contains(key)
                && walk.span.contains(key.placement())
                && walk.bin.is_none_or(|bin| bin == BinKey::of(key))
        });
        let view =
            |(key, cell): (&RegisterKey, &Cell)| (key.clone(), cell.view(walk.want, self.floor));
        run.take(limit).map(view).collect()
    }

    pub(super) fn holdings(&self, keys: &[RegisterKey]) -> Vec<Holding> {
        keys.iter().map(|key| self.holding(key)).collect()
    }

    fn holding(&self, key: &RegisterKey) -> Holding {
        let cell = self.registers.get(key);
        let entry = cell.and_then(|cell| cell.entry.as_ref());
        Holding {
            held: entry.map(|entry| (entry.order, entry.write_id)),
            promise: cell.map_or(Stamp::ZERO, |cell| cell.promise),
            hint: self.hints.get(key).map(|hint| hint.entry.order),
            collectable: self.collectable.contains(key),
        }
    }

    pub(super) fn mark_collectable(&mut self, tombstones: &[(RegisterKey, Stamp)]) {
        for (key, order) in tombstones {
            let entry = self.registers.get(key).and_then(|cell| cell.entry.as_ref());
            let is_it = |entry: &crate::Entry| {
                entry.order == *order && matches!(entry.value, Value::Tombstone)
            };
            if entry.is_some_and(is_it) {
                self.collectable.insert(key.clone());
            }
        }
    }

    pub(super) fn drop_registers(&mut self, drops: &[RegisterDrop]) {
        for drop in drops {
            let Holding { held, promise, collectable, .. } = self.holding(&drop.key);
            let order = held.map_or(Stamp::ZERO, |(order, _)| order);
            if order.max(promise) <= drop.up_to && (collectable || !drop.collectable) {
                self.registers.remove(&drop.key);
                self.collectable.remove(&drop.key);
            }
        }
    }

    pub(super) fn aged(
        &self,
        walk: &AgedWalk,
        after: Option<&RegisterKey>,
        limit: usize,
    ) -> AgedPage {
        let mut page = AgedPage::default();
        for (key, cell) in self.registers.range(above(after)) {
            let held = cell.entry.as_ref().map(|it| (it.order, it.value.is_tombstone()));
            page.visit(walk, key, held, self.collectable.contains(key));
            if page.is_full(limit) {
                page.next = Some(key.clone());
                break;
            }
        }
        page
    }

    pub(super) fn audit_registers(&self, after: Option<BinKey>) -> AuditResult<BinKey> {
        let items = if after.is_none() { self.registers.len() as u64 } else { 0 };
        AuditResult { items, ..AuditResult::default() }
    }
}

fn number_of(id: &GarbageId) -> Result<u64> {
    let number = id.0[..].try_into().map(u64::from_be_bytes);
    number.map_err(|_| Error::invalid("no garbage of mine"))
}
