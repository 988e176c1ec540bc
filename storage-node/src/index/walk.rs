//! Registers in a span of the ring, in the order of their keys.
//!
//! Registers are sorted by bucket and shard, so the runs of one span are scattered among other
//! runs. In a narrow span they are found through the rows of sums, which are sorted by placement:
//! one seek for each run. In a wide span all registers are walked, skipping runs outside the span.

use std::collections::BTreeSet;

use martlet_protocol::backend::{RegisterView, Walk, Want};
use martlet_protocol::id::{BucketId, Shard};
use martlet_protocol::tree::{BinKey, Span};
use martlet_protocol::{RegisterKey, Result};
use rocksdb::Snapshot;

use super::database::Database;
use super::family::Family;
use super::read::RegisterReader;
use super::rows::{self, LAST_KEY};
use super::tree;

/// Share of the ring (a sixteenth) from which on a span is wide.
const WIDE: u64 = u64::MAX / 16;

type BucketShard = (BucketId, Shard);
type ViewPage = Vec<(RegisterKey, RegisterView)>;

/// Returns a page of the registers in a span, above `after`. Blocks.
pub(super) fn page(
    reader: &RegisterReader,
    walk: &Walk,
    after: Option<&RegisterKey>,
    limit: usize,
) -> Result<ViewPage> {
    let snapshot = reader.database.snapshot();
    let walker = Walker { reader, walk, snapshot: &snapshot, limit };
    let mut page = ViewPage::new();
    let from = rows::above(after);
    if let Some(runs) = walker.runs(after)? {
        for run in runs {
            walker.run(run, &from, &mut page)?;
            if page.len() >= limit {
                break;
            }
        }
    } else {
        let mut from = from;
        while let Some(run) = walker.next_run(&from)?.filter(|_| page.len() < limit) {
            if tree::is_within(walk.span, run.0, run.1) {
                walker.run(run, &from, &mut page)?;
            }
            from = tree::above_run(run.0, run.1);
        }
    }
    Ok(page)
}

/// Returns the runs that have rows of sums in a span, from `from` on.
pub(super) fn runs_in(
    database: &Database,
    snapshot: &Snapshot<'_>,
    span: Span,
    from: Option<BucketShard>,
) -> Result<BTreeSet<BucketShard>> {
    let mut runs = BTreeSet::new();
    let [lower, upper] = tree::span_rows(span);
    let mut rows = database.iterate_at(snapshot, Family::Tree, &upper);
    rows.seek(lower);
    while let Some(key) = rows.key() {
        let (_, BinKey { bucket, shard, .. }) = tree::decode_key(key)?;
        if from.is_none_or(|from| (bucket, shard) >= from) {
            runs.insert((bucket, shard));
        }
        rows.seek(tree::run_rows(bucket, shard)[1]);
    }
    database.ended_well(&rows)?;
    Ok(runs)
}

struct Walker<'a> {
    reader: &'a RegisterReader,
    walk: &'a Walk,
    snapshot: &'a Snapshot<'a>,
    limit: usize,
}

impl Walker<'_> {
    /// Returns the runs to visit; none for a wide span, whose runs are found on the way.
    fn runs(&self, after: Option<&RegisterKey>) -> Result<Option<BTreeSet<BucketShard>>> {
        let Walk { span, bin, .. } = *self.walk;
        let from = after.map(|key| (key.bucket, key.shard));
        if let Some(bin) = bin {
            let run = (bin.bucket, bin.shard);
            let there =
                tree::is_within(span, bin.bucket, bin.shard) && from.is_none_or(|from| run >= from);
            return Ok(Some(there.then_some(run).into_iter().collect()));
        }
        if span.last.saturating_sub(span.first) >= WIDE {
            return Ok(None);
        }
        runs_in(&self.reader.database, self.snapshot, span, from).map(Some)
    }

    /// Returns the run of the first register from `from` on.
    fn next_run(&self, from: &[u8]) -> Result<Option<BucketShard>> {
        let database = &self.reader.database;
        let mut rows = database.iterate_at(self.snapshot, Family::Entries, &LAST_KEY);
        rows.seek(from);
        let run = rows.key().map(tree::run_of).transpose()?;
        database.ended_well(&rows)?;
        Ok(run)
    }

    /// Adds the matching registers of a run, from `from` on, until the page is full.
    fn run(&self, run: BucketShard, from: &[u8], page: &mut ViewPage) -> Result<()> {
        let (bucket, shard) = run;
        let database = &self.reader.database;
        let prefix = tree::run_prefix(bucket, shard);
        let upper = tree::above_run(bucket, shard);
        let mut rows = database.iterate_at(self.snapshot, Family::Entries, &upper);
        rows.seek(from.max(&prefix[..]));
        while let Some((key, row)) = rows.item().filter(|_| page.len() < self.limit) {
            let at = RegisterKey::decode(key)?;
            let is_selected = self.walk.bin.is_none_or(|bin| bin == BinKey::of(&at));
            if is_selected && rows::counted(row)?.is_some() {
                let (promise, entry) = self.reader.decode(Some(row))?;
                let inline = match self.walk.want {
                    Want::Entry => None,
                    Want::EntryAndInline => {
                        let bytes = database.get_at(self.snapshot, Family::Inline, key)?;
                        self.reader.inline_beside(entry.as_ref(), bytes.as_deref())?
                    }
                };
                page.push((at, RegisterView { promise, entry, inline }));
            }
            rows.next();
        }
        database.ended_well(&rows)
    }
}
