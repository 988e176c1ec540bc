//! Comparison of both buckets, key by key.
//!
//! Sizes and ETags of the listings decide where they can. All other keys, and all differences, are
//! compared once more by HEAD and checksums, so that writes during the comparison count for what
//! they are.

use std::sync::Arc;

use futures::stream::{self, TryStreamExt};

use crate::deep_compare::{Comparison, Stores};
use crate::error::Result;
use crate::etag::{Sameness, compare};
use crate::filter::KeyFilter;
use crate::listing::{KeyRange, Listed, Listing, Pair, PairedListing};
use crate::progress::Counters;
use crate::report::{Fate, Report, ReportLine};

/// Comparison of two buckets.
pub(crate) struct Verifier {
    pub(crate) stores: Stores,
    pub(crate) prefix: String,
    pub(crate) filter: KeyFilter,
    pub(crate) counters: Arc<Counters>,
    pub(crate) report: Arc<Report>,
    /// Ranges that are compared at once.
    pub(crate) ranges: usize,
    /// Keys of a range that are compared by HEAD at once.
    pub(crate) keys: usize,
}

impl Verifier {
    /// Compares the keys of all ranges.
    pub(crate) async fn run(&self, ranges: Vec<KeyRange>) -> Result<()> {
        stream::iter(ranges.into_iter().map(Ok))
            .try_for_each_concurrent(self.ranges, |range| self.compare_range(range))
            .await
    }

    async fn compare_range(&self, range: KeyRange) -> Result<()> {
        let open = |client| Listing::open(client, &self.prefix, range.clone());
        let pairs = PairedListing {
            source: open(self.stores.source.clone()),
            target: open(self.stores.target.clone()),
        };
        stream::try_unfold(pairs, |mut pairs| async move {
            Ok(pairs.next().await?.map(|pair| (pair, pairs)))
        })
        .try_for_each_concurrent(self.keys, |pair| self.compare_pair(pair))
        .await
    }

    async fn compare_pair(&self, pair: Pair) -> Result<()> {
        let (source, target) = match pair {
            Pair::Target(target) => {
                if self.filter.selects(&target.key) {
                    self.counters.only_target.add(target.size);
                }
                return Ok(());
            }
            Pair::Source(source) => (source, None),
            Pair::Both { source, target } => (source, Some(target)),
        };
        if !self.filter.selects(&source.key) {
            return Ok(());
        }
        let opaque = self.stores.has_opaque_etags;
        let is_same = target.is_some_and(|target| {
            compare(source.facts(), target.facts(), opaque) == Sameness::Same
        });
        let comparison =
            if is_same { Comparison::Same } else { self.stores.compare(&source.key).await? };
        self.note(&source, comparison)
    }

    fn note(&self, source: &Listed, comparison: Comparison) -> Result<()> {
        let counters = &self.counters;
        counters.compared.add(source.size);
        let (fate, reason) = match comparison {
            // An object that the source has deleted meanwhile is no difference.
            Comparison::Same | Comparison::NoSource => return Ok(()),
            Comparison::Different => (Fate::Different, "size, ETag or checksum differ"),
            Comparison::NoTarget => (Fate::Missing, "the target has no such object"),
            Comparison::Unknown => (Fate::Unverified, "equal sizes, no checksum in common"),
        };
        let tally = match fate {
            Fate::Unverified => &counters.unverified,
            _ => &counters.different,
        };
        tally.add(source.size);
        self.report.add(&ReportLine { key: &source.key, fate, bytes: source.size, reason })
    }
}
