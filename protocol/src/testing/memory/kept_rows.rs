//! Usage of runs, lists of old registers, and buckets: counted anew for each call.

use std::collections::BTreeMap;

use super::device::{Cell, MemoryDevice};
use crate::backend::{
    AgedBucket, Call, HeldBuckets, OldKind, OldList, OldPage, OldPlace, OldRegister, Reply,
};
use crate::entry::Entry;
use crate::error::{Error, Result};
use crate::id::BucketId;
use crate::key::RegisterKey;
use crate::run_usage::{Run, RunUsage, head_of};
use crate::stamp::Stamp;
use crate::term::Term;

impl MemoryDevice {
    fn check_kept(&self) -> Result<()> {
        if self.is_earlier {
            return Err(Error::unavailable("the device keeps no usage and no lists"));
        }
        Ok(())
    }

    /// Answers a call about usage, old registers or held buckets.
    pub(super) fn kept_rows(&self, call: Call<'_>) -> Result<Reply> {
        Ok(match call {
            Call::Usage { runs, term } => self.usage(&runs, term)?.into(),
            Call::OldRegisters { list, after, limit } => {
                self.old_registers(list, after.as_ref(), limit)?.into()
            }
            Call::HeldBuckets { before, after, limit } => {
                self.held_buckets(before, after, limit).into()
            }
            _ => return Err(Error::internal("the call is about other things")),
        })
    }

    fn usage(&self, runs: &[Run], term: Term) -> Result<Vec<RunUsage>> {
        self.check_term(term)?;
        self.check_kept()?;
        let mut usages = vec![RunUsage::default(); runs.len()];
        for (key, cell) in &self.registers {
            let run = Run { bucket: key.bucket, shard: key.shard };
            for (usage, _) in usages.iter_mut().zip(runs).filter(|(_, of)| **of == run) {
                *usage += self.usage_of(key, cell)?;
            }
        }
        Ok(usages)
    }

    fn usage_of(&self, key: &RegisterKey, cell: &Cell) -> Result<RunUsage> {
        let Some(entry) = &cell.entry else { return Ok(RunUsage::default()) };
        if let Some((head, version)) = head_of(key) {
            let head = self.registers.get(&head).and_then(|head| head.entry.as_ref());
            let held = head.and_then(|head| head.value.version());
            if held.is_some_and(|held| held.name() == version) {
                return Ok(RunUsage::default());
            }
        }
        RunUsage::of(key.kind, key.name.len(), &entry.encode())
    }

    fn old_registers(
        &self,
        list: OldList,
        after: Option<&OldPlace>,
        limit: usize,
    ) -> Result<OldPage> {
        self.check_kept()?;
        let place = |key: &RegisterKey, cell: &Cell| {
            let at = match (&cell.entry, list.kind) {
                (Some(entry), OldKind::Tombstones) if entry.value.is_tombstone() => entry.order,
                (None, OldKind::Promises) => cell.promise,
                _ => return None,
            };
            Some(OldPlace { at, key: key.clone() })
        };
        let listed = self.registers.iter().filter_map(|(key, cell)| place(key, cell));
        let mut places: Vec<OldPlace> = listed
            .filter(|it| it.at < list.before && after.is_none_or(|after| it > after))
            .collect();
        places.sort_unstable();
        let next = places.get(..limit).and_then(|page| page.last()).cloned();
        places.truncate(limit);
        let registers = places
            .into_iter()
            .map(|place| OldRegister { collectable: self.collectable.contains(&place.key), place });
        Ok(OldPage { registers: registers.collect(), next })
    }

    fn held_buckets(&self, before: Stamp, after: Option<BucketId>, limit: usize) -> HeldBuckets {
        let mut buckets = BTreeMap::<BucketId, Option<Stamp>>::new();
        for (key, cell) in &self.registers {
            let order = cell.entry.as_ref().map(|Entry { order, .. }| *order);
            let found = buckets.entry(key.bucket).or_default();
            *found = found.or(order.filter(|order| *order < before));
        }
        let above = buckets.into_iter().filter(|(id, _)| after.is_none_or(|after| *id > after));
        let page: Vec<_> = above.take(limit).collect();
        let next = page.last().filter(|_| page.len() == limit).map(|(bucket, _)| *bucket);
        let found = page.into_iter().filter_map(|(bucket, order)| Some((bucket, order?)));
        let buckets = found.map(|(bucket, order)| AgedBucket { bucket, order, entries: 1 });
        HeldBuckets { buckets: buckets.collect(), next }
    }
}
