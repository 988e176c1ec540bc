//! Merge of sorted pages from several devices into one run of names (rule L1). Pure.
//!
//! Invariants: names ascend; each name is returned once, with the entry of the highest order on any
//! page. Nothing is returned while a device that may have a lower name must be queried.

use bytes::Bytes;
use martlet_protocol::Entry;
use martlet_protocol::backend::{ListReply, ListStart};

/// Pages of one device so far.
struct SortedRun {
    page: std::vec::IntoIter<(Bytes, Entry)>,
    last: Option<Bytes>,
    more: bool,
}

impl SortedRun {
    fn head(&self) -> Option<&Bytes> {
        self.page.as_slice().first().map(|(name, _)| name)
    }
}

/// A running merge of the pages of several devices.
pub(crate) struct Merge {
    runs: Vec<SortedRun>,
    start: ListStart,
    /// Names below this are skipped.
    floor: Bytes,
    /// Devices that agree on the last returned name.
    agreeing: Vec<usize>,
}

impl Merge {
    /// A merge of `runs` devices without pages yet.
    pub(crate) fn new(runs: usize, start: ListStart) -> Self {
        let run = || SortedRun { page: Vec::new().into_iter(), last: None, more: true };
        let runs = (0..runs).map(|_| run()).collect();
        Self { runs, start, floor: Bytes::new(), agreeing: Vec::new() }
    }

    /// Devices that must be queried next, and the start of each one's page.
    pub(crate) fn wanting(&self) -> Vec<(usize, ListStart)> {
        let wanting = |run: &SortedRun| run.more && run.page.as_slice().is_empty();
        let wanting_runs = self.runs.iter().enumerate().filter(|(_, run)| wanting(run));
        wanting_runs.map(|(at, run)| (at, self.resume(run))).collect()
    }

    /// Returns true if a device must be queried.
    pub(crate) fn is_wanting(&self) -> bool {
        self.runs.iter().any(|run| run.more && run.page.as_slice().is_empty())
    }

    fn resume(&self, run: &SortedRun) -> ListStart {
        match &run.last {
            Some(last) if *last >= self.floor => ListStart::After(last.clone()),
            None if self.floor.is_empty() => self.start.clone(),
            _ => ListStart::At(self.floor.clone()),
        }
    }

    /// Removes a device, and its entries that were not returned yet.
    pub(crate) fn leave_out(&mut self, at: usize) {
        let run = &mut self.runs[at];
        run.more = false;
        run.page = Vec::new().into_iter();
    }

    /// Adds a device's page.
    pub(crate) fn refill(&mut self, at: usize, reply: ListReply) {
        let run = &mut self.runs[at];
        run.more = reply.truncated && !reply.entries.is_empty();
        if let Some((last, _)) = reply.entries.last() {
            run.last = Some(last.clone());
        }
        run.page = reply.entries.into_iter();
    }

    /// Skips all names below `floor`.
    pub(crate) fn skip_to(&mut self, floor: Bytes) {
        self.floor = floor;
        for run in &mut self.runs {
            while run.head().is_some_and(|name| *name < self.floor) {
                run.page.next();
            }
        }
    }

    /// The next name and entry; [`Merge::agreeing`] returns the devices that agree on it. None at
    /// the end, or if a device must be queried.
    pub(crate) fn next(&mut self) -> Option<(Bytes, Entry)> {
        if self.is_wanting() {
            return None;
        }
        self.agreeing.clear();
        if let [run] = self.runs.as_mut_slice() {
            self.agreeing.push(0);
            return run.page.next();
        }
        let name = self.runs.iter().filter_map(SortedRun::head).min()?.clone();
        let mut best: Option<Entry> = None;
        for (at, run) in self.runs.iter_mut().enumerate() {
            if run.head() != Some(&name) {
                continue;
            }
            let Some((_, entry)) = run.page.next() else { continue };
            match &best {
                Some(held) if held.order > entry.order => continue,
                Some(held) if held.order == entry.order => {}
                _ => {
                    self.agreeing.clear();
                    best = Some(entry);
                }
            }
            self.agreeing.push(at);
        }
        best.map(|entry| (name, entry))
    }

    /// Devices that agree on the last returned name.
    pub(crate) fn agreeing(&self) -> &[usize] {
        &self.agreeing
    }
}

/// The lowest name above all names that begin with `prefix`; none if no such name exists.
pub(crate) fn successor(prefix: &[u8]) -> Option<Bytes> {
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut successor = prefix[..=last].to_vec();
    successor[last] += 1;
    Some(successor.into())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use martlet_protocol::entry::Value;
    use martlet_protocol::stamp::WriterId;
    use martlet_protocol::{Stamp, WriteId};
    use proptest::prelude::*;

    use super::*;

    fn entry(time: u64) -> Entry {
        let order = Stamp { time, writer: WriterId(0) };
        Entry { order, write_id: WriteId([0; 16]), value: Value::Tombstone }
    }

    type Replica = BTreeMap<Vec<u8>, u64>;

    fn page(replica: &Replica, start: &ListStart, limit: usize) -> ListReply {
        let after = |name: &[u8]| match start {
            ListStart::First => true,
            ListStart::At(at) => name >= at,
            ListStart::After(after) => name > after,
        };
        let mut run = replica.iter().filter(|(name, _)| after(name));
        let entries: Vec<_> = run
            .by_ref()
            .take(limit)
            .map(|(name, time)| (Bytes::from(name.clone()), entry(*time)))
            .collect();
        ListReply { entries, truncated: run.next().is_some() }
    }

    proptest! {
        #[test]
        fn merged_names_are_those_of_all_replicas(
            replicas in proptest::collection::vec(
                proptest::collection::btree_map(
                    proptest::collection::vec(0u8..4, 1..4), 0u64..5, 0..20,
                ),
                1..4,
            ),
            limit in 1usize..5,
            skip in proptest::option::of(proptest::collection::vec(0u8..4, 1..3)),
        ) {
            let mut union = Replica::new();
            for (name, time) in replicas.iter().flatten() {
                let held = union.entry(name.clone()).or_default();
                *held = (*held).max(*time);
            }
            if let Some(floor) = &skip {
                union.retain(|name, _| name >= floor);
            }
            let mut merge = Merge::new(replicas.len(), ListStart::First);
            if let Some(floor) = skip {
                merge.skip_to(floor.into());
            }
            let mut merged = Replica::new();
            loop {
                for (at, start) in merge.wanting() {
                    let reply = page(&replicas[at], &start, limit);
                    merge.refill(at, reply);
                }
                match merge.next() {
                    Some((name, entry)) => {
                        let holders = replicas
                            .iter()
                            .filter(|replica| replica.get(&name[..]) == Some(&entry.order.time));
                        prop_assert_eq!(holders.count(), merge.agreeing().len());
                        prop_assert!(merged.last_key_value().is_none_or(|(last, _)| last[..] < name[..]));
                        merged.insert(name.to_vec(), entry.order.time);
                    }
                    None if merge.is_wanting() => {}
                    None => break,
                }
            }
            prop_assert_eq!(merged, union);
        }
    }

    #[test]
    fn successors() {
        assert_eq!(successor(b"a/"), Some(Bytes::from_static(b"a0")));
        assert_eq!(successor(b"a\xff"), Some(Bytes::from_static(b"b")));
        assert_eq!(successor(b"\xff"), None);
    }
}
