//! Checks of single reads and pairs of reads: lost writes, undone deletes, values that are old,
//! were never written or were refused, and a later read that saw an older value.
//!
//! Each rule compares pairs and triples of operations of one key. The rules are weaker than the
//! search of [`super::registers`], but linear in the reads, and name the broken promise.

use super::history::{History, Invocation, Operation, Response, Value};
use super::violation::Violation;

/// Scope in which reads may not go back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadScope {
    /// All clients: a value that one client saw is visible to all later reads.
    Everyone,
    /// Each client by itself, as `x-martlet-read-after` promises.
    EachClient,
}

/// Checks every read, listings included.
pub fn check(history: &History) -> Result<(), Violation> {
    invented(history)?;
    older_than_acknowledged(history)?;
    going_back(history, ReadScope::Everyone)
}

/// Checks that no read returns a value that was never written to that key, or whose write failed,
/// was refused or had not been sent.
pub fn invented(history: &History) -> Result<(), Violation> {
    each_read(history, |key, read, value, operations| {
        let Some(value) = value else { return Ok(()) };
        let Some(write) = write_of(operations, value) else {
            let message = format!("{value} was read under {key:?}, where nobody wrote it");
            return Err(Violation::new("invented", message, &[read]));
        };
        if matches!(write.outcome, Response::Refused | Response::Failed) {
            let message = format!("{value} was read, but its write was {}", write.outcome);
            return Err(Violation::new("a refused write was seen", message, &[write, read]));
        }
        if read.precedes(write) {
            let message = format!("{value} was read before it was sent");
            return Err(Violation::new("invented", message, &[write, read]));
        }
        Ok(())
    })
}

/// Checks that no read returns a state older than a write or delete acknowledged before the read
/// began.
pub fn older_than_acknowledged(history: &History) -> Result<(), Violation> {
    each_read(history, |_, read, value, operations| {
        let acknowledged =
            operations.iter().filter(|write| write.is_acknowledged_write() && write.precedes(read));
        // The acknowledged write that was sent last is the strictest bound.
        let Some(last) = acknowledged.max_by_key(|write| write.invoked_at) else { return Ok(()) };
        match value.and_then(|value| write_of(operations, value)) {
            Some(seen) if seen.precedes(last) => Err(older(seen, last, read)),
            Some(_) => Ok(()),
            None if value.is_some() || last.call.deletes() => Ok(()),
            None if may_have_been_deleted(operations, last, read) => Ok(()),
            None => {
                let message =
                    "an acknowledged write is not there, and nobody deleted it".to_owned();
                Err(Violation::new("lost write", message, &[last, read]))
            }
        }
    })
}

fn older(seen: &Operation, last: &Operation, read: &Operation) -> Violation {
    if last.call.deletes() {
        let message = "what was there before an acknowledged delete is back".to_owned();
        return Violation::new("resurrected", message, &[seen, last, read]);
    }
    let message = "a read shows what an acknowledged write had replaced before".to_owned();
    Violation::new("stale read", message, &[seen, last, read])
}

/// Returns true if a delete can have taken effect between a write and a read.
fn may_have_been_deleted(operations: &[&Operation], write: &Operation, read: &Operation) -> bool {
    let between = |it: &&&Operation| {
        it.call.deletes() && it.may_have_written() && !it.precedes(write) && !read.precedes(it)
    };
    operations.iter().any(|it| between(&it))
}

/// Checks that, of two reads one after the other, the later never returns a value whose write ended
/// before the write of the earlier read's value began.
pub fn going_back(history: &History, among: ReadScope) -> Result<(), Violation> {
    let history = history.with_listings_as_reads();
    for operations in history.by_key().values() {
        let seen: Vec<(&Operation, &Operation)> = operations
            .iter()
            .filter_map(|read| match read.outcome {
                Response::Read(Some(value)) => Some((*read, write_of(operations, value)?)),
                _ => None,
            })
            .collect();
        for (later, old) in &seen {
            let earlier = seen.iter().find(|(earlier, new)| {
                let together = among == ReadScope::Everyone || earlier.client == later.client;
                together && earlier.precedes(later) && old.precedes(new)
            });
            if let Some((earlier, new)) = earlier {
                let message = "a later read shows what was replaced before".to_owned();
                let shown = [*old, *new, *earlier, *later];
                return Err(Violation::new("reads go back", message, &shown));
            }
        }
    }
    Ok(())
}

/// Checks that every key with an acknowledged write was read after that write. Histories end with
/// reads of all keys for this purpose.
pub fn census(history: &History) -> Result<(), Violation> {
    let read_at = |operations: &[&Operation]| {
        let reads = operations.iter().filter(|it| matches!(it.outcome, Response::Read(_)));
        reads.map(|read| read.invoked_at).max()
    };
    let expanded = history.with_listings_as_reads();
    for (key, operations) in expanded.by_key() {
        let last_write = operations
            .iter()
            .filter(|it| it.is_acknowledged_write())
            .max_by_key(|write| write.returned_at);
        let Some(last_write) = last_write else { continue };
        if read_at(&operations).is_none_or(|read| read <= last_write.returned_at) {
            let message = format!("nobody looked at {key:?} after its last write");
            return Err(Violation::new("no census", message, &[last_write]));
        }
    }
    older_than_acknowledged(history)
}

fn write_of<'a>(operations: &[&'a Operation], value: Value) -> Option<&'a Operation> {
    operations.iter().find(|operation| operation.call.writes() == Some(value)).copied()
}

fn each_read(
    history: &History,
    check: impl Fn(&str, &Operation, Option<Value>, &[&Operation]) -> Result<(), Violation>,
) -> Result<(), Violation> {
    let history = history.with_listings_as_reads();
    for (key, operations) in history.by_key() {
        for read in &operations {
            if let (Invocation::Get, Response::Read(value)) = (&read.call, &read.outcome) {
                check(key, read, *value, &operations)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
