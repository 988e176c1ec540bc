//! Listings: the sorted runs of the requested shards, merged.
//!
//! A heap holds the head of each run. The lowest head is taken, and its run advances. After an
//! object whose name folds, every run skips the names with the folded prefix. It does so by one seek, when
//! it reaches such a name.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use bytes::Bytes;
use martlet_protocol::backend::{ListReply, ListRequest, ListStart, RowSelection};
use martlet_protocol::entry::Entry;
use martlet_protocol::key::PREFIX_BYTES;
use martlet_protocol::limits::LIST_EMPTY_ROWS_MAX;
use martlet_protocol::{RegisterKey, Result};
use rocksdb::DBRawIterator;

use super::database::Database;
use super::family::Family;
use super::options::BLOCK_BYTES;
use super::{hints, rows};

/// Estimated bytes of a row in a table.
const ROW_BYTES: usize = 160;
/// Maximum number of bytes that a run reads ahead.
const AHEAD_BYTES_MAX: usize = 256 * 1024;

/// Source of a listing.
#[derive(Clone, Copy, Debug)]
pub(super) enum ListSource {
    /// The registers of the device.
    Registers,
    /// Hints: writes kept for other devices.
    Hints,
}

impl ListSource {
    fn family(self) -> Family {
        match self {
            Self::Registers => Family::Entries,
            Self::Hints => Family::Hints,
        }
    }

    /// Returns the encoded entry of a row; empty for a row with only a promise.
    fn entry_bytes(self, row: &[u8]) -> Result<&[u8]> {
        match self {
            Self::Registers => rows::entry_bytes(row),
            Self::Hints => hints::entry_bytes(row),
        }
    }
}

/// Returns a page of a listing, and the number of rows visited. The page ends early, at the current
/// name, once [`LIST_EMPTY_ROWS_MAX`] rows were passed over: promises alone, and entries of kinds
/// that aren't selected.
pub(super) fn list(
    database: &Database,
    source: ListSource,
    request: &ListRequest,
    selection: RowSelection,
) -> Result<(ListReply, usize)> {
    let mut merge = Merge::open(database, source, request, selection)?;
    let mut reply = ListReply::default();
    while reply.entries.len() < request.limit {
        match merge.next()? {
            None => return Ok((reply, merge.looked_at)),
            Some(Met::Position(name)) => {
                reply.end_at(name);
                return Ok((reply, merge.looked_at));
            }
            Some(Met::Entry(name, entry)) => {
                if entry.value.is_object() {
                    merge.fold(&name, request);
                }
                reply.entries.push((name, entry));
            }
        }
    }
    reply.truncated = merge.next()?.is_some();
    Ok((reply, merge.looked_at))
}

/// Step of a merge.
enum Met {
    Entry(Bytes, Entry),
    /// The name reached after many rows that were passed over.
    Position(Bytes),
}

/// Merge of the runs of several shards.
struct Merge<'a> {
    database: &'a Database,
    source: ListSource,
    selection: RowSelection,
    runs: Vec<ShardRun<'a>>,
    /// The lowest name of each run that is not exhausted.
    heads: BinaryHeap<Reverse<(Bytes, usize)>>,
    /// Prefix of names that are skipped.
    folded: Option<Bytes>,
    looked_at: usize,
    /// Number of rows that were passed over.
    passed: usize,
}

/// One shard's names, in order.
struct ShardRun<'a> {
    rows: DBRawIterator<'a>,
    prefix: [u8; PREFIX_BYTES],
}

impl<'a> Merge<'a> {
    fn open(
        database: &'a Database,
        source: ListSource,
        request: &ListRequest,
        selection: RowSelection,
    ) -> Result<Self> {
        let mut merge = Self {
            database,
            source,
            selection,
            runs: Vec::with_capacity(request.shards.len()),
            heads: BinaryHeap::with_capacity(request.shards.len()),
            folded: None,
            looked_at: 0,
            passed: 0,
        };
        let (start, ahead) = (first_name(request), bytes_ahead(request));
        for &shard in &request.shards {
            let prefix = RegisterKey::prefix(request.bucket, shard, request.kind);
            let upper = rows::successor(&[&prefix[..], &request.prefix].concat());
            let rows = database.iterate_run(source.family(), &upper, ahead);
            let mut run = ShardRun { rows, prefix };
            run.seek(&start);
            merge.runs.push(run);
            merge.push_head(merge.runs.len() - 1)?;
        }
        Ok(merge)
    }

    /// Returns the next selected entry with its name, or the position reached after
    /// [`LIST_EMPTY_ROWS_MAX`] rows without one.
    fn next(&mut self) -> Result<Option<Met>> {
        while let Some(Reverse((name, index))) = self.heads.pop() {
            if self.skip_folded(&name, index)? {
                continue;
            }
            let run = &mut self.runs[index];
            let row = run.rows.value().expect("the run was read at this head");
            let entry = match self.source.entry_bytes(row)? {
                [] => None,
                entry => self.selection.decode(entry)?,
            };
            run.rows.next();
            self.push_head(index)?;
            if let Some(entry) = entry {
                return Ok(Some(Met::Entry(name, entry)));
            }
            self.passed += 1;
            if self.passed == LIST_EMPTY_ROWS_MAX {
                return Ok(Some(Met::Position(name)));
            }
        }
        Ok(None)
    }

    /// Skips the names that share an object's name up to its delimiter, if it has one.
    fn fold(&mut self, name: &Bytes, request: &ListRequest) {
        let Some(delimiter) = request.fold.as_ref().filter(|fold| !fold.is_empty()) else { return };
        let rest = &name[request.prefix.len()..];
        let found = rest.windows(delimiter.len()).position(|window| window == delimiter);
        if let Some(at) = found {
            self.folded = Some(name.slice(..request.prefix.len() + at + delimiter.len()));
        }
    }

    fn skip_folded(&mut self, name: &[u8], index: usize) -> Result<bool> {
        let Some(folded) = self.folded.as_ref().filter(|folded| name.starts_with(folded)) else {
            return Ok(false);
        };
        let above = rows::successor(folded);
        if !above.is_empty() {
            self.runs[index].seek(&above);
            self.push_head(index)?;
        }
        Ok(true)
    }

    fn push_head(&mut self, index: usize) -> Result<()> {
        let run = &self.runs[index];
        match run.rows.key() {
            Some(key) => {
                self.looked_at += 1;
                let name = Bytes::copy_from_slice(&key[PREFIX_BYTES..]);
                self.heads.push(Reverse((name, index)));
                Ok(())
            }
            None => self.database.ended_well(&run.rows),
        }
    }
}

impl ShardRun<'_> {
    fn seek(&mut self, name: &[u8]) {
        self.rows.seek([&self.prefix[..], name].concat());
    }
}

/// Returns the bytes to read ahead in each run: about those of its share of the page. A listing that
/// folds skips an unknown number of names, so it reads nothing ahead.
fn bytes_ahead(request: &ListRequest) -> usize {
    if request.fold.as_ref().is_some_and(|fold| !fold.is_empty()) {
        return 0;
    }
    let share = request.limit / request.shards.len().max(1);
    let bytes = share.saturating_mul(ROW_BYTES);
    // The first block is read anyway.
    if bytes < BLOCK_BYTES { 0 } else { bytes.min(AHEAD_BYTES_MAX) }
}

/// Returns the first name of the listing, for every run.
fn first_name(request: &ListRequest) -> Vec<u8> {
    let from = match &request.start {
        ListStart::First => Vec::new(),
        ListStart::At(name) => name.to_vec(),
        ListStart::After(name) => [&name[..], &[0]].concat(),
    };
    from.max(request.prefix.to_vec())
}
