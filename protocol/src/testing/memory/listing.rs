//! Pages of names: merged over shards, bounded, with delimiters.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;

use crate::backend::{ListReply, ListRequest, ListStart, RowSelection};
use crate::entry::Entry;
use crate::key::RegisterKey;
use crate::limits::LIST_EMPTY_ROWS_MAX;

/// Returns a page of `held` from the requested shards.
pub(super) fn page<T>(
    held: &BTreeMap<RegisterKey, T>,
    entry: impl Fn(&T) -> Option<Entry>,
    request: &ListRequest,
) -> ListReply {
    let mut reply = ListReply::default();
    let mut folding = Folding { request, folded: None };
    let rows = rows(held, request).into_iter();
    for (name, entry) in rows.filter_map(|(name, held)| Some((name, entry(held)?))) {
        if folding.skips(&name) {
            continue;
        }
        if reply.entries.len() == request.limit {
            reply.truncated = true;
            break;
        }
        folding.pass(&name, &entry);
        reply.entries.push((name, entry));
    }
    reply
}

/// Returns a page of selected rows. It ends after many rows that it passed over.
pub(super) fn selected<T>(
    held: &BTreeMap<RegisterKey, T>,
    entry: impl Fn(&T) -> Option<Entry>,
    request: &ListRequest,
    selection: RowSelection,
) -> ListReply {
    let mut reply = ListReply::default();
    let mut folding = Folding { request, folded: None };
    let mut passed = 0;
    for (name, held) in rows(held, request) {
        if folding.skips(&name) {
            continue;
        }
        if reply.entries.len() == request.limit {
            reply.truncated = true;
            break;
        }
        let Some(entry) = entry(held).and_then(|entry| selection.select(entry)) else {
            passed += 1;
            if passed == LIST_EMPTY_ROWS_MAX {
                reply.end_at(name);
                break;
            }
            continue;
        };
        folding.pass(&name, &entry);
        reply.entries.push((name, entry));
    }
    reply
}

/// Returns the requested rows in the order of their names.
fn rows<'a, T>(held: &'a BTreeMap<RegisterKey, T>, request: &ListRequest) -> Vec<(Bytes, &'a T)> {
    let mut rows = Vec::new();
    for shard in &request.shards {
        let from = match &request.start {
            ListStart::First => Bound::Included(request.prefix.clone()),
            ListStart::At(name) => Bound::Included(name.max(&request.prefix).clone()),
            ListStart::After(name) if *name < request.prefix => {
                Bound::Included(request.prefix.clone())
            }
            ListStart::After(name) => Bound::Excluded(name.clone()),
        };
        let at = |name: Bytes| RegisterKey {
            bucket: request.bucket,
            shard: *shard,
            kind: request.kind,
            name,
        };
        let run = held.range((from.map(at), Bound::Unbounded));
        let of_kind = run.take_while(|(key, _)| {
            (key.bucket, key.shard, key.kind) == (request.bucket, *shard, request.kind)
                && key.name.starts_with(&request.prefix)
        });
        rows.extend(of_kind.map(|(key, held)| (key.name.clone(), held)));
    }
    rows.sort_by(|a, b| a.0.cmp(&b.0));
    rows
}

/// Folding of names that share a common prefix with an earlier object.
struct Folding<'a> {
    request: &'a ListRequest,
    folded: Option<Bytes>,
}

impl Folding<'_> {
    fn skips(&self, name: &[u8]) -> bool {
        self.folded.as_ref().is_some_and(|folded| name.starts_with(folded))
    }

    /// Folds the names behind an entry that is returned.
    fn pass(&mut self, name: &Bytes, entry: &Entry) {
        let Some(delimiter) = self.request.fold.as_ref().filter(|_| entry.value.is_object()) else {
            return;
        };
        let prefix = self.request.prefix.len();
        let rest = &name[prefix..];
        let found = rest.windows(delimiter.len()).position(|window| window == delimiter);
        self.folded = found.map(|at| name.slice(..prefix + at + delimiter.len()));
    }
}
