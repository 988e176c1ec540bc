//! Merge of sorted pages from several devices into one run of names (rule L1). Pure.
//!
//! Invariants:
//! * Names ascend. Each name is returned once, with the entry of the highest order on any page.
//! * Nothing is returned while a device that may have a lower name must be queried. A device that has
//!   passed a name has no lower one left.
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
    /// Names that a device skips after an entry.
    fn skipped_after(&self, name: &Bytes, entry: &Entry) -> Option<SkippedNames> {
        let fold = folded(name, &self.prefix, &self.delimiter);
        let fold = fold.filter(|_| entry.value.is_object())?;
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

    /// Returns true if the device may have a name from `floor` on that is below `head`, the lowest
    /// name on any page.
    fn is_wanting(&self, floor: &Bytes, head: Option<&Bytes>) -> bool {
        let has_passed = || match (head, &self.last) {
            (Some(head), Some(last)) => last >= head,
            _ => false,
        };
        let is_out = self.more && self.page.as_slice().is_empty();
        self.gap(floor).is_some() || is_out && !has_passed()
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
        let (runs, head) = (self.runs.iter().enumerate(), self.head());
        let wanting_runs = runs.filter(|(_, run)| run.is_wanting(&self.floor, head));
        wanting_runs.map(|(at, run)| (at, self.wanted_page(run))).collect()
    }

    /// Returns true if a device must be queried.
    pub(crate) fn is_wanting(&self) -> bool {
        let head = self.head();
        self.runs.iter().any(|run| run.is_wanting(&self.floor, head))
    }

    /// Start of the names that no device has passed, while a device must be queried: a merge that
    /// begins there misses nothing. None before each of these devices has passed a name.
    pub(crate) fn frontier(&self) -> Option<ListStart> {
        let head = self.head();
        let wanting = self.runs.iter().filter(|run| run.is_wanting(&self.floor, head));
        let mut lowest: Option<ListStart> = None;
        for run in wanting {
            let start = self.wanted_page(run).start;
            if start == self.start {
                return None;
            }
            if lowest.as_ref().is_none_or(|lowest| rank(&start) < rank(lowest)) {
                lowest = Some(start);
            }
        }
        lowest
    }

    /// The lowest name on any page.
    fn head(&self) -> Option<&Bytes> {
        self.runs.iter().filter_map(SortedRun::head).min()
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
    pub(crate) fn refill(&mut self, at: usize, mut reply: ListReply) {
        let run = &mut self.runs[at];
        run.folds &= run.gap(&self.floor).is_none();
        (run.is_folded, run.skipped) = (run.folds, None);
        run.more = reply.truncated && !reply.entries.is_empty();
        let position = reply.take_position();
        if let Some(last) = position.as_ref().or(reply.entries.last().map(|(last, _)| last)) {
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
        let name = self.head()?.clone();
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

/// Order of starts: by name, and a name itself before the names above it.
fn rank(start: &ListStart) -> (&[u8], bool) {
    match start {
        ListStart::First => (&[], false),
        ListStart::At(name) => (&name[..], false),
        ListStart::After(name) => (&name[..], true),
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
mod tests;
