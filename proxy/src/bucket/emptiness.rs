//! Search for contents of a bucket that is to be deleted.
//!
//! A bucket may hold millions of tombstones, and the request that deletes it may be cut off. So the
//! search notes how far it found nothing, and a later request continues there. It does so under the
//! same circumstances alone: the same generation and term, and fences or not as before.
//!
//! A generation under which a bucket is closed and fenced ends with its reopening. So while it
//! lasts no first-hand write arrives, and an empty part stays empty. Without fences writes arrive in
//! every part: such a search decides nothing but an early refusal.

use std::collections::HashMap;

use martlet_protocol::backend::{Detail, ListStart, RowKinds, RowSelection};
use martlet_protocol::entry::Bucket;
use martlet_protocol::{BucketId, Level, RegisterKind, Term};
use parking_lot::Mutex;

use crate::context::RequestContext;
use crate::error::Result;
use crate::index::RegisterClient;
use crate::walk::{Bound, Paths, SEEN_MAX, Walk};

/// Most buckets whose progress is kept.
const BUCKETS_MAX: usize = 64;

/// Circumstances of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Search {
    pub(super) generation: u64,
    pub(super) term: Term,
    /// True if all devices are fenced.
    pub(super) is_fenced: bool,
}

/// Kind of registers that a search has reached, and the start of its next page.
type Position = (RegisterKind, ListStart);

/// Kinds of registers that hold data of a bucket, in the order of a search. A version without a head
/// has no row among the objects.
const KINDS: [RegisterKind; 2] = [RegisterKind::Object, RegisterKind::Version];

/// Positions up to which buckets were found empty.
#[derive(Default)]
pub(super) struct SearchProgress {
    by_bucket: Mutex<HashMap<BucketId, (Search, Position)>>,
}

impl SearchProgress {
    /// Start of a search.
    fn start(&self, bucket: BucketId, search: Search) -> Position {
        let by_bucket = self.by_bucket.lock();
        let noted = by_bucket.get(&bucket).filter(|(before, _)| *before == search);
        noted.map_or((KINDS[0], ListStart::First), |(_, position)| position.clone())
    }

    fn note(&self, bucket: BucketId, search: Search, position: Position) {
        let mut by_bucket = self.by_bucket.lock();
        if by_bucket.len() >= BUCKETS_MAX && !by_bucket.contains_key(&bucket) {
            // A search without its progress begins anew.
            let other = by_bucket.keys().next().copied();
            if let Some(other) = other {
                by_bucket.remove(&other);
            }
        }
        by_bucket.insert(bucket, (search, position));
    }

    pub(super) fn forget(&self, bucket: BucketId) {
        self.by_bucket.lock().remove(&bucket);
    }

    /// Returns true if a quorum of every shard holds nothing but tombstones.
    pub(super) async fn is_empty(
        &self,
        registers: &RegisterClient,
        context: &RequestContext,
        bucket: &Bucket,
        search: Search,
    ) -> Result<bool> {
        let (begun, start) = self.start(bucket.id, search);
        let kinds = KINDS.into_iter().skip_while(|kind| *kind != begun);
        let starts = std::iter::once(start).chain(std::iter::repeat(ListStart::First));
        for (kind, start) in kinds.zip(starts) {
            if !self.holds_nothing(registers, context, bucket, search, (kind, start)).await? {
                self.forget(bucket.id);
                return Ok(false);
            }
        }
        if !search.is_fenced {
            self.forget(bucket.id);
        }
        Ok(true)
    }

    /// Returns true if a quorum of every shard holds nothing but tombstones of a kind.
    async fn holds_nothing(
        &self,
        registers: &RegisterClient,
        context: &RequestContext,
        bucket: &Bucket,
        search: Search,
        (kind, start): Position,
    ) -> Result<bool> {
        let paths = Paths::all(bucket, kind);
        let mut walk = Walk::new(registers, context, &paths, start, 100, Level::Strict)?;
        walk.selection = RowSelection { detail: Detail::Summary, kinds: RowKinds::Live };
        walk.meter.pause_at(Bound::Rows(SEEN_MAX));
        loop {
            match walk.next().await? {
                Some((_, entry)) if entry.value.is_tombstone() => {}
                Some(_) => return Ok(false),
                None => {
                    let Some(position) = walk.paused() else { return Ok(true) };
                    self.note(bucket.id, search, (kind, position));
                    walk.meter.go_on();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_holds_under_the_same_circumstances_alone() {
        let progress = SearchProgress::default();
        let bucket = BucketId([1; 16]);
        let search = Search { generation: 3, term: Term(4), is_fenced: true };
        let first = || (RegisterKind::Object, ListStart::First);
        let position = || (RegisterKind::Version, ListStart::After("m".into()));
        assert_eq!(progress.start(bucket, search), first());
        progress.note(bucket, search, position());
        assert_eq!(progress.start(bucket, search), position());
        for other in [
            Search { generation: 4, ..search },
            Search { term: Term(5), ..search },
            Search { is_fenced: false, ..search },
        ] {
            assert_eq!(progress.start(bucket, other), first());
        }
        assert_eq!(progress.start(BucketId([2; 16]), search), first());
        progress.forget(bucket);
        assert_eq!(progress.start(bucket, search), first());
    }

    #[test]
    fn progress_is_kept_of_so_many_buckets() {
        let progress = SearchProgress::default();
        let search = Search { generation: 3, term: Term::NONE, is_fenced: false };
        let middle = || (RegisterKind::Object, ListStart::At("m".into()));
        for at in 0..=255 {
            progress.note(BucketId([at; 16]), search, middle());
            assert_eq!(progress.start(BucketId([at; 16]), search), middle());
        }
        assert_eq!(progress.by_bucket.lock().len(), BUCKETS_MAX);
    }
}
