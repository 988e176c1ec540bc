//! Placements that a walk visits: the bins whose sums differ (rule X7).

use std::collections::BTreeSet;

use martlet_protocol::ExtentId;
use martlet_protocol::extent_sums::{PolicySums, bin_span};
use martlet_protocol::tree::Span;

/// Spans to visit, and the number of extents in them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Visits {
    /// In order, apart from each other.
    spans: Vec<Span>,
    pub(crate) extents: u64,
    /// Peers that count their extents: what they lack is found by a later pass.
    pub(crate) uncompared: u64,
}

/// Position at which a walk goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextVisit {
    /// Behind this extent; none: at the beginning.
    After(Option<ExtentId>),
    /// Nowhere: all spans were visited.
    End,
}

impl Visits {
    /// Visits everything. The number of extents is unknown.
    pub(crate) fn everything() -> Self {
        Self { spans: vec![Span::ALL], ..Self::default() }
    }

    /// Adds some bins of a policy's sums.
    pub(crate) fn add(&mut self, of: &PolicySums, bins: &BTreeSet<u32>) {
        let added = bins.iter().map(|bin| bin_span(*bin, of.power));
        let mut spans: Vec<Span> = self.spans.drain(..).chain(added).collect();
        spans.sort_unstable();
        for span in spans {
            match self.spans.last_mut() {
                Some(last) if span.first <= last.last.saturating_add(1) => {
                    last.last = last.last.max(span.last);
                }
                _ => self.spans.push(span),
            }
        }
        let counted = of.sums.iter().filter(|(at, _)| bins.contains(&at.bin));
        self.extents += counted.map(|(_, sum)| u64::from(sum.count)).sum::<u64>();
    }

    /// Returns true if extents at a placement are visited.
    pub(crate) fn contains(&self, placement: u64) -> bool {
        let at = self.spans.partition_point(|span| span.last < placement);
        self.spans.get(at).is_some_and(|span| span.first <= placement)
    }

    /// Returns the position from which a walk at `after` goes on.
    pub(super) fn next_from(&self, after: Option<ExtentId>) -> NextVisit {
        let placement = after.map_or(0, ExtentId::placement);
        let at = self.spans.partition_point(|span| span.last < placement);
        let Some(span) = self.spans.get(at) else { return NextVisit::End };
        if span.first <= placement && after.is_some() {
            return NextVisit::After(after);
        }
        let below = (u128::from(span.first) << 64).checked_sub(1);
        NextVisit::After(below.map(|below| ExtentId(below.to_be_bytes())))
    }
}

#[cfg(test)]
mod tests {
    use martlet_protocol::PolicyId;

    use super::*;

    fn visits(bins: &[u32], power: u8) -> Visits {
        let of = PolicySums { policy: PolicyId(0), power, sums: Vec::new() };
        let mut visits = Visits::default();
        visits.add(&of, &bins.iter().copied().collect());
        visits
    }

    fn id(placement: u64, rest: u64) -> ExtentId {
        ExtentId((u128::from(placement) << 64 | u128::from(rest)).to_be_bytes())
    }

    #[test]
    fn neighbouring_bins_are_one_span() {
        assert_eq!(visits(&[0, 1], 1), Visits::everything());
        assert_eq!(visits(&[0, 1, 3], 2).spans.len(), 2);
        let mut both = visits(&[5], 3);
        let of = PolicySums { policy: PolicyId(1), power: 4, sums: Vec::new() };
        both.add(&of, &[9, 11, 13].into());
        assert_eq!(both.spans.len(), 2, "{both:?}");
    }

    #[test]
    fn a_walk_passes_over_what_lies_between_spans() {
        let visits = visits(&[1, 3], 2);
        let (first, second) = (1 << 62, 3 << 62);
        let after = |id| NextVisit::After(Some(id));
        assert_eq!(visits.next_from(None), after(id(first - 1, u64::MAX)));
        assert_eq!(visits.next_from(Some(id(first, 7))), after(id(first, 7)));
        let inside = id((2 << 62) - 1, u64::MAX);
        assert_eq!(visits.next_from(Some(inside)), after(inside));
        assert_eq!(visits.next_from(Some(id(2 << 62, 0))), after(id(second - 1, u64::MAX)));
        assert_eq!(visits.next_from(Some(id(u64::MAX, 0))), after(id(u64::MAX, 0)));
        assert!(visits.contains(first) && !visits.contains(first - 1));
        assert!(visits.contains(u64::MAX) && !visits.contains(2 << 62));
        assert_eq!(Visits::default().next_from(None), NextVisit::End);
        assert_eq!(Visits::everything().next_from(None), NextVisit::After(None));
    }
}
