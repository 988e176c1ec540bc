//! Listings: the sorted runs of the requested shards, merged.
//!
//! A heap holds the head of each run. The lowest head is taken, and its run advances. After an
//! object whose name folds, every run skips the names with the folded prefix. It does so by one seek, when
//! it reaches such a name.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use bytes::Bytes;
use martlet_protocol::backend::{ListReply, ListRequest, ListStart};
use martlet_protocol::entry::{Entry, Value};
use martlet_protocol::key::PREFIX_BYTES;
use martlet_protocol::limits::LIST_EMPTY_ROWS_MAX;
use martlet_protocol::{RegisterKey, Result, Stamp, WriteId};
use rocksdb::DBRawIterator;

use super::database::Database;
use super::family::Family;
use super::{hints, rows};

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

    fn entry(self, row: &[u8]) -> Result<Option<Entry>> {
        match self {
            Self::Registers => Ok(rows::decode_register(row)?.1),
            Self::Hints => hints::entry_of(row),
        }
    }
}

/// Returns a page of a listing, and the number of rows visited. The page ends early, with the
/// current name, once [`LIST_EMPTY_ROWS_MAX`] rows held nothing but promises.
pub(super) fn list(
    database: &Database,
    source: ListSource,
    request: &ListRequest,
) -> Result<(ListReply, usize)> {
    let mut merge = Merge::open(database, source, request)?;
    let mut reply = ListReply::default();
    while reply.entries.len() < request.limit {
        let Some((name, entry)) = merge.next()? else { return Ok((reply, merge.looked_at)) };
        if entry.value.is_object() {
            merge.fold(&name, request);
        }
        reply.entries.push((name, entry));
        if merge.empty >= LIST_EMPTY_ROWS_MAX {
            reply.truncated = true;
            return Ok((reply, merge.looked_at));
        }
    }
    reply.truncated = merge.has_more()?;
    Ok((reply, merge.looked_at))
}

/// Merge of the runs of several shards.
struct Merge<'a> {
    database: &'a Database,
    source: ListSource,
    runs: Vec<ShardRun<'a>>,
    /// The lowest name of each run that is not exhausted.
    heads: BinaryHeap<Reverse<(Bytes, usize)>>,
    /// Prefix of names that are skipped.
    folded: Option<Bytes>,
    looked_at: usize,
    /// Number of rows without an entry.
    empty: usize,
}

/// One shard's names, in order.
struct ShardRun<'a> {
    rows: DBRawIterator<'a>,
    prefix: [u8; PREFIX_BYTES],
}

impl<'a> Merge<'a> {
    fn open(database: &'a Database, source: ListSource, request: &ListRequest) -> Result<Self> {
        let mut merge = Self {
            database,
            source,
            runs: Vec::with_capacity(request.shards.len()),
            heads: BinaryHeap::with_capacity(request.shards.len()),
            folded: None,
            looked_at: 0,
            empty: 0,
        };
        let start = first_name(request);
        for &shard in &request.shards {
            let prefix = RegisterKey::prefix(request.bucket, shard, request.kind);
            let upper = rows::successor(&[&prefix[..], &request.prefix].concat());
            let mut run = ShardRun { rows: database.iterate_run(source.family(), &upper), prefix };
            run.seek(&start);
            merge.runs.push(run);
            merge.push_head(merge.runs.len() - 1)?;
        }
        Ok(merge)
    }

    /// Returns the next name and its entry.
    fn next(&mut self) -> Result<Option<(Bytes, Entry)>> {
        while let Some(Reverse((name, index))) = self.heads.pop() {
            if self.skip_folded(&name, index)? {
                continue;
            }
            let run = &mut self.runs[index];
            let row = run.rows.value().expect("the run was read at this head");
            let entry = self.source.entry(row)?;
            run.rows.next();
            self.push_head(index)?;
            if let Some(entry) = entry {
                return Ok(Some((name, entry)));
            }
            self.empty += 1;
            if self.empty == LIST_EMPTY_ROWS_MAX {
                return Ok(Some((name, nothing())));
            }
        }
        Ok(None)
    }

    /// Returns true if another name holds an entry.
    fn has_more(&mut self) -> Result<bool> {
        Ok(self.next()?.is_some())
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

/// A tombstone below all others, for a name without an entry. It ends a page that visited many such
/// names, so that the reader can continue after it.
fn nothing() -> Entry {
    Entry { order: Stamp::ZERO, write_id: WriteId([0; 16]), value: Value::Tombstone }
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
