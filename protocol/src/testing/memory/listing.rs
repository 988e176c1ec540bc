//! Pages of names: merged over shards, bounded, with delimiters.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;

use crate::backend::{ListReply, ListRequest, ListStart};
use crate::entry::Entry;
use crate::key::RegisterKey;

/// Returns a page of `held` from the requested shards.
pub(super) fn page<T>(
    held: &BTreeMap<RegisterKey, T>,
    entry: impl Fn(&T) -> Option<Entry>,
    request: &ListRequest,
) -> ListReply {
    let mut entries = Vec::new();
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
        entries.extend(of_kind.filter_map(|(key, cell)| Some((key.name.clone(), entry(cell)?))));
    }
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    if let Some(delimiter) = &request.fold {
        fold(&mut entries, &request.prefix, delimiter);
    }
    let truncated = entries.len() > request.limit;
    entries.truncate(request.limit);
    ListReply { entries, truncated }
}

/// Drops names that share a common prefix with an earlier object.
fn fold(entries: &mut Vec<(Bytes, Entry)>, prefix: &[u8], delimiter: &[u8]) {
    let mut folded: Option<Bytes> = None;
    entries.retain(|(name, entry)| {
        if folded.as_ref().is_some_and(|folded| name.starts_with(folded)) {
            return false;
        }
        if entry.value.is_object() {
            let rest = &name[prefix.len()..];
            let found = rest.windows(delimiter.len()).position(|window| window == delimiter);
            folded = found.map(|at| name.slice(..prefix.len() + at + delimiter.len()));
        }
        true
    });
}
