//! Count of an extent's durable copies (rule X5). Pure.

use martlet_protocol::DeviceId;
use martlet_protocol::extent::ExtentRef;

/// State of an extent's copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Not enough copies yet, but still possible.
    Undecided,
    /// Enough copies, with these contents.
    Enough(ExtentRef),
    /// Enough copies are impossible.
    TooFew,
}

/// Counts the copies of one extent.
///
/// Invariants:
/// * Copies count together only if they are equal, including their hashes. An extent is immutable,
///   so a copy that differs is damaged.
/// * Copies in one failure domain count as one: a node, or a device if the nodes are too few.
#[derive(Debug)]
pub(super) struct CopyTally {
    needed: usize,
    outstanding: usize,
    copies: Vec<Copy>,
}

#[derive(Debug)]
struct Copy {
    device: DeviceId,
    domain: DeviceId,
    extent: ExtentRef,
}

impl CopyTally {
    /// A count of `outstanding` copies, of which `needed` must be in distinct domains.
    pub(super) fn new(outstanding: usize, needed: usize) -> Self {
        Self { needed, outstanding, copies: Vec::new() }
    }

    /// Counts a copy on `device`; `domain` is the representative of its failure domain.
    pub(super) fn written(
        &mut self,
        device: DeviceId,
        domain: DeviceId,
        extent: ExtentRef,
    ) -> Verdict {
        self.outstanding = self.outstanding.saturating_sub(1);
        self.copies.push(Copy { device, domain, extent });
        self.verdict()
    }

    /// Counts a failed copy.
    pub(super) fn failed(&mut self) -> Verdict {
        self.outstanding = self.outstanding.saturating_sub(1);
        self.verdict()
    }

    /// Current state of the copies.
    pub(super) fn verdict(&self) -> Verdict {
        let best = self.copies.iter().map(|copy| (self.domains(&copy.extent), copy.extent));
        match best.max_by_key(|(domains, _)| *domains) {
            Some((domains, extent)) if domains >= self.needed => Verdict::Enough(extent),
            Some((domains, _)) if domains + self.outstanding >= self.needed => Verdict::Undecided,
            None if self.outstanding >= self.needed => Verdict::Undecided,
            _ => Verdict::TooFew,
        }
    }

    /// Copies that differ from `extent`, with their devices.
    pub(super) fn differing(
        &self,
        extent: &ExtentRef,
    ) -> impl Iterator<Item = (DeviceId, ExtentRef)> {
        let differing = self.copies.iter().filter(move |copy| copy.extent != *extent);
        differing.map(|copy| (copy.device, copy.extent))
    }

    /// Returns true if a device has stored its copy.
    pub(super) fn holds(&self, device: DeviceId) -> bool {
        self.copies.iter().any(|copy| copy.device == device)
    }

    /// Returns true if any two copies differ.
    pub(super) fn differ(&self) -> bool {
        self.copies.windows(2).any(|pair| pair[0].extent != pair[1].extent)
    }

    fn domains(&self, extent: &ExtentRef) -> usize {
        let mut domains: Vec<_> =
            self.copies.iter().filter(|c| c.extent == *extent).map(|c| c.domain).collect();
        domains.sort_unstable();
        domains.dedup();
        domains.len()
    }
}

#[cfg(test)]
mod tests {
    use martlet_protocol::ExtentId;

    use super::*;

    fn extent(hash: u8) -> ExtentRef {
        ExtentRef { id: ExtentId([7; 16]), length: 9, blake3: [hash; 32] }
    }

    fn at(tally: &mut CopyTally, device: u32, domain: u32, hash: u8) -> Verdict {
        tally.written(DeviceId(device), DeviceId(domain), extent(hash))
    }

    #[test]
    fn two_of_three_are_enough_and_two_failures_too_many() {
        let mut tally = CopyTally::new(3, 2);
        assert_eq!(at(&mut tally, 1, 1, 0), Verdict::Undecided);
        assert_eq!(tally.failed(), Verdict::Undecided);
        assert_eq!(at(&mut tally, 3, 3, 0), Verdict::Enough(extent(0)));
        let mut tally = CopyTally::new(3, 2);
        tally.failed();
        assert_eq!(tally.failed(), Verdict::TooFew);
    }

    #[test]
    fn two_copies_on_one_node_count_as_one() {
        let mut tally = CopyTally::new(3, 2);
        at(&mut tally, 1, 1, 0);
        assert_eq!(at(&mut tally, 2, 1, 0), Verdict::Undecided);
        assert_eq!(tally.failed(), Verdict::TooFew);
        let mut tally = CopyTally::new(3, 2);
        at(&mut tally, 1, 1, 0);
        at(&mut tally, 2, 1, 0);
        assert_eq!(at(&mut tally, 3, 3, 0), Verdict::Enough(extent(0)));
    }

    #[test]
    fn a_copy_that_differs_does_not_count_and_is_reported() {
        let mut tally = CopyTally::new(3, 2);
        at(&mut tally, 1, 1, 0);
        assert_eq!(at(&mut tally, 2, 2, 9), Verdict::Undecided);
        assert_eq!(at(&mut tally, 3, 3, 0), Verdict::Enough(extent(0)));
        assert_eq!(tally.differing(&extent(0)).collect::<Vec<_>>(), [(DeviceId(2), extent(9))]);
        let mut tally = CopyTally::new(3, 2);
        at(&mut tally, 1, 1, 0);
        at(&mut tally, 2, 2, 1);
        assert_eq!(at(&mut tally, 3, 3, 2), Verdict::TooFew, "three that differ prove nothing");
    }

    #[test]
    fn a_reached_quorum_stays_reached() {
        let mut tally = CopyTally::new(3, 2);
        at(&mut tally, 1, 1, 0);
        at(&mut tally, 2, 2, 0);
        assert_eq!(tally.failed(), Verdict::Enough(extent(0)));
    }
}
