//! Merge of sorted pages from several devices into one run of names (rule L1). Pure.
//!
//! Invariants:
//! * Names ascend. Each name is returned once, with the entry of the highest order on any page.
//! * Nothing is returned while a device that may have a lower name must be queried.
//! * A device that folds skips names. Unless the caller skips these names too, the device is queried
//!   for them before the next name is returned.

use bytes::Bytes;
use martlet_protocol::Entry;
use martlet_protocol::backend::{ListReply, ListStart};

/// Folding by devices: after an object, a device skips the names that share its bytes up to the
/// first delimiter after the prefix.
#[derive(Clone, Debug)]
pub(crate) struct Fold {
    pub(crate) prefix: Bytes,
    pub(crate) delimiter: Bytes,
}

impl Fold {
    /// Names that a device skips after an entry. Devices of earlier versions skip names after delete
    /// markers too.
    fn skipped_after(&self, name: &Bytes, entry: &Entry) -> Option<SkippedNames> {
        let fold = folded(name, &self.prefix, &self.delimiter);
        let fold = fold.filter(|_| !entry.value.is_tombstone())?;
        Some(SkippedNames { after: name.clone(), below: successor(fold) })
    }
}

/// Names that a device left out of a page, between two bounds.
struct SkippedNames {
    after: Bytes,
    /// None if no name is above them.
    below: Option<Bytes>,
}

/// Page that a device must return next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WantedPage {
    pub(crate) start: ListStart,
    /// True if the device may fold.
    pub(crate) folds: bool,
}

/// Pages of one device so far.
struct SortedRun {
    page: std::vec::IntoIter<(Bytes, Entry)>,
    /// True if the device folded the page.
    is_folded: bool,
    /// Names that the device skipped after the last name taken from the page.
    skipped: Option<SkippedNames>,
    /// False once skipped names had to be read: the next page is not folded, so that the names of
    /// many deleted objects cost no page each.
    folds: bool,
    last: Option<Bytes>,
    more: bool,
}

impl SortedRun {
    fn new() -> Self {
        let page = Vec::new().into_iter();
        Self { page, is_folded: false, skipped: None, folds: true, last: None, more: true }
    }

    fn head(&self) -> Option<&Bytes> {
        self.page.as_slice().first().map(|(name, _)| name)
    }

    fn take(&mut self, fold: Option<&Fold>) -> Option<(Bytes, Entry)> {
        let (name, entry) = self.page.next()?;
        let fold = fold.filter(|_| self.is_folded);
        self.skipped = fold.and_then(|fold| fold.skipped_after(&name, &entry));
        Some((name, entry))
    }

    /// Last name before the skipped names, if names at or above `floor` are among them.
    fn gap(&self, floor: &Bytes) -> Option<&Bytes> {
        let skipped = self.skipped.as_ref()?;
        let is_open = skipped.below.as_ref().is_none_or(|below| below > floor);
        is_open.then_some(&skipped.after)
    }

    fn is_wanting(&self, floor: &Bytes) -> bool {
        self.gap(floor).is_some() || self.more && self.page.as_slice().is_empty()
    }
}

/// A running merge of the pages of several devices.
pub(crate) struct Merge {
    runs: Vec<SortedRun>,
    start: ListStart,
    /// Folding by the devices, if requested.
    fold: Option<Fold>,
    /// Names below this are skipped.
    floor: Bytes,
    /// Devices that agree on the last returned name.
    agreeing: Vec<usize>,
}

impl Merge {
    /// A merge of `runs` devices without pages yet.
    pub(crate) fn new(runs: usize, start: ListStart, fold: Option<Fold>) -> Self {
        let runs = (0..runs).map(|_| SortedRun::new()).collect();
        Self { runs, start, fold, floor: Bytes::new(), agreeing: Vec::new() }
    }

    /// Devices that must be queried next, and the page of each one.
    pub(crate) fn wanting(&self) -> Vec<(usize, WantedPage)> {
        let runs = self.runs.iter().enumerate();
        let wanting_runs = runs.filter(|(_, run)| run.is_wanting(&self.floor));
        wanting_runs.map(|(at, run)| (at, self.wanted_page(run))).collect()
    }

    /// Returns true if a device must be queried.
    pub(crate) fn is_wanting(&self) -> bool {
        self.runs.iter().any(|run| run.is_wanting(&self.floor))
    }

    fn wanted_page(&self, run: &SortedRun) -> WantedPage {
        let gap = run.gap(&self.floor);
        let start = match gap.or(run.last.as_ref()) {
            Some(last) if *last >= self.floor => ListStart::After(last.clone()),
            None if self.floor.is_empty() => self.start.clone(),
            _ => ListStart::At(self.floor.clone()),
        };
        WantedPage { start, folds: run.folds && gap.is_none() }
    }

    /// Removes a device, and its entries that were not returned yet.
    pub(crate) fn leave_out(&mut self, at: usize) {
        let run = &mut self.runs[at];
        (run.more, run.skipped) = (false, None);
        run.page = Vec::new().into_iter();
    }

    /// Adds the page that a device had to return.
    pub(crate) fn refill(&mut self, at: usize, reply: ListReply) {
        let run = &mut self.runs[at];
        run.folds &= run.gap(&self.floor).is_none();
        (run.is_folded, run.skipped) = (run.folds, None);
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
            run.folds = true;
            while run.head().is_some_and(|name| *name < self.floor) {
                run.take(self.fold.as_ref());
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
            return run.take(self.fold.as_ref());
        }
        let name = self.runs.iter().filter_map(SortedRun::head).min()?.clone();
        let mut best: Option<Entry> = None;
        for (at, run) in self.runs.iter_mut().enumerate() {
            if run.head() != Some(&name) {
                continue;
            }
            let Some((_, entry)) = run.take(self.fold.as_ref()) else { continue };
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

/// Prefix of `name` up to and including the first delimiter after `prefix`; none without a
/// delimiter.
pub(crate) fn folded<'a>(name: &'a [u8], prefix: &[u8], delimiter: &[u8]) -> Option<&'a [u8]> {
    if delimiter.is_empty() {
        return None;
    }
    let rest = name.strip_prefix(prefix)?;
    let at = match delimiter {
        [byte] => rest.iter().position(|found| found == byte)?,
        longer => rest.windows(longer.len()).position(|found| found == longer)?,
    };
    Some(&name[..prefix.len() + at + delimiter.len()])
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
    use std::collections::{BTreeMap, BTreeSet};

    use martlet_protocol::entry::{DeleteMarker, Value};
    use martlet_protocol::stamp::WriterId;
    use martlet_protocol::{Stamp, WriteId};
    use proptest::prelude::*;

    use super::*;

    /// An object if the time is even, a tombstone if it is odd.
    fn entry(time: u64) -> Entry {
        let order = Stamp { time, writer: WriterId(0) };
        let value = match time % 2 {
            0 => Value::DeleteMarker(Box::new(DeleteMarker { modified_ms: 0, version: None })),
            _ => Value::Tombstone,
        };
        Entry { order, write_id: WriteId([0; 16]), value }
    }

    fn is_live(time: u64) -> bool {
        time.is_multiple_of(2)
    }

    type Replica = BTreeMap<Vec<u8>, u64>;

    /// A device's page. A device that folds skips the names behind the first live one that share
    /// its bytes up to the delimiter.
    fn page(replica: &Replica, start: &ListStart, limit: usize, fold: Option<&Fold>) -> ListReply {
        let after = |name: &[u8]| match start {
            ListStart::First => true,
            ListStart::At(at) => name >= at,
            ListStart::After(after) => name > after,
        };
        let (mut entries, mut skipped) = (Vec::new(), None::<Vec<u8>>);
        for (name, time) in replica.iter().filter(|(name, _)| after(name)) {
            if skipped.as_ref().is_some_and(|skipped| name.starts_with(skipped)) {
                continue;
            }
            if entries.len() == limit {
                return ListReply { entries, truncated: true };
            }
            let fold = fold.filter(|_| is_live(*time));
            skipped =
                fold.and_then(|fold| folded(name, &fold.prefix, &fold.delimiter)).map(Vec::from);
            entries.push((Bytes::from(name.clone()), entry(*time)));
        }
        ListReply { entries, truncated: false }
    }

    fn any_replicas() -> impl Strategy<Value = Vec<Replica>> {
        let name = proptest::collection::vec(0u8..4, 1..4);
        proptest::collection::vec(proptest::collection::btree_map(name, 0u64..6, 0..20), 1..4)
    }

    fn union(replicas: &[Replica]) -> Replica {
        let mut union = Replica::new();
        for (name, time) in replicas.iter().flatten() {
            let held = union.entry(name.clone()).or_default();
            *held = (*held).max(*time);
        }
        union
    }

    proptest! {
        #[test]
        fn merged_names_are_those_of_all_replicas(
            replicas in any_replicas(),
            limit in 1usize..5,
            skip in proptest::option::of(proptest::collection::vec(0u8..4, 1..3)),
        ) {
            let mut union = union(&replicas);
            if let Some(floor) = &skip {
                union.retain(|name, _| name >= floor);
            }
            let mut merge = Merge::new(replicas.len(), ListStart::First, None);
            if let Some(floor) = skip {
                merge.skip_to(floor.into());
            }
            let mut merged = Replica::new();
            loop {
                for (at, wanted) in merge.wanting() {
                    merge.refill(at, page(&replicas[at], &wanted.start, limit, None));
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

        #[test]
        fn folded_pages_hide_no_live_name(
            replicas in any_replicas(),
            limit in 1usize..5,
            prefix in proptest::collection::vec(0u8..4, 0..2),
        ) {
            let fold = Fold { prefix: prefix.clone().into(), delimiter: Bytes::from_static(&[2]) };
            let folded = |name: &[u8]| {
                folded(name, &fold.prefix, &fold.delimiter).map(<[u8]>::to_vec)
            };
            let of_prefix = |replica: &Replica| -> Replica {
                let names = replica.iter().filter(|(name, _)| name.starts_with(&prefix));
                names.map(|(name, time)| (name.clone(), *time)).collect()
            };
            let replicas: Vec<Replica> = replicas.iter().map(of_prefix).collect();
            let live = union(&replicas).into_iter().filter(|(_, time)| is_live(*time));
            let expected: BTreeSet<Vec<u8>> =
                live.map(|(name, _)| folded(&name).unwrap_or(name)).collect();
            let mut merge = Merge::new(replicas.len(), ListStart::First, Some(fold.clone()));
            let mut listed = BTreeSet::new();
            loop {
                for (at, wanted) in merge.wanting() {
                    let fold = Some(&fold).filter(|_| wanted.folds);
                    merge.refill(at, page(&replicas[at], &wanted.start, limit, fold));
                }
                match merge.next() {
                    Some((_, entry)) if !is_live(entry.order.time) => {}
                    Some((name, _)) => match folded(&name) {
                        None => prop_assert!(listed.insert(name.to_vec())),
                        Some(fold) => {
                            if let Some(next) = successor(&fold) {
                                merge.skip_to(next);
                            }
                            prop_assert!(listed.insert(fold), "each prefix once");
                        }
                    },
                    None if merge.is_wanting() => {}
                    None => break,
                }
            }
            prop_assert_eq!(listed, expected);
        }
    }

    #[test]
    fn names_skipped_before_a_deleted_object_are_read_unfolded() {
        let replica = |names: &[(&str, u64)]| -> Replica {
            names.iter().map(|(name, time)| (name.as_bytes().to_vec(), *time)).collect()
        };
        let stale = replica(&[("a/1", 0), ("a/2", 0), ("a/3", 0), ("b/1", 0)]);
        let deleted = replica(&[("a/1", 1), ("a/2", 1), ("a/3", 1), ("b/1", 0)]);
        let fold = Fold { prefix: Bytes::new(), delimiter: Bytes::from_static(b"/") };
        let mut merge = Merge::new(2, ListStart::First, Some(fold.clone()));
        let (mut live, mut pages) = (Vec::new(), Vec::new());
        loop {
            for (at, wanted) in merge.wanting() {
                let replica = [&stale, &deleted][at];
                pages.push((at, wanted.folds));
                let fold = Some(&fold).filter(|_| wanted.folds);
                merge.refill(at, page(replica, &wanted.start, 100, fold));
            }
            match merge.next() {
                Some((name, entry)) if is_live(entry.order.time) => live.push(name),
                Some(_) => {}
                None if merge.is_wanting() => {}
                None => break,
            }
        }
        assert_eq!(live, ["b/1"]);
        assert_eq!(pages[..3], [(0, true), (1, true), (0, false)], "one page for all of a/");
    }

    #[test]
    fn names_fold_at_the_first_delimiter_beyond_the_prefix() {
        let fold = |name: &'static str, prefix: &str, delimiter: &str| {
            folded(name.as_bytes(), prefix.as_bytes(), delimiter.as_bytes())
                .map(|fold| std::str::from_utf8(fold).unwrap())
        };
        assert_eq!(fold("a/b/c", "", "/"), Some("a/"));
        assert_eq!(fold("a/b/c", "a/", "/"), Some("a/b/"));
        assert_eq!(fold("a/b/c", "a", "/"), Some("a/"));
        assert_eq!(fold("a/b/c", "a/b/", "/"), None);
        assert_eq!(fold("a/b/c", "x", "/"), None);
        assert_eq!(fold("a--b", "", "--"), Some("a--"));
        assert_eq!(fold("a-b", "", "--"), None);
        assert_eq!(fold("a/b", "", ""), None);
    }

    #[test]
    fn successors() {
        assert_eq!(successor(b"a/"), Some(Bytes::from_static(b"a0")));
        assert_eq!(successor(b"a\xff"), Some(Bytes::from_static(b"b")));
        assert_eq!(successor(b"\xff"), None);
    }
}
