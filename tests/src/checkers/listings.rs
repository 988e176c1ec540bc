//! Checks of listings (rules R5 and L1). Keys are in order, each once, within the listing's bounds.
//! Every key is listed if its write was acknowledged before the listing began and no delete can
//! have followed. No key is listed that was never written, or whose delete was acknowledged before
//! and that no write can have restored.

use super::history::{History, Invocation, ListedKey, Listing, Operation, Response};
use super::violation::Violation;

/// Checks every listing.
pub fn check(history: &History) -> Result<(), Violation> {
    let keys = history.by_key();
    for operation in &history.operations {
        let (Invocation::List, Response::Listed(listing)) = (&operation.call, &operation.outcome)
        else {
            continue;
        };
        shape(operation, listing)?;
        for found in &listing.found {
            let writes = keys.get(found.key.as_str()).map_or(&[][..], Vec::as_slice);
            may_be_there(operation, found, writes)?;
        }
        for (key, operations) in &keys {
            let is_in_range = key.starts_with(&operation.key) && listing.covers(key);
            if is_in_range && listing.of(key).is_none() {
                may_be_absent(operation, key, operations)?;
            }
        }
    }
    Ok(())
}

/// Checks that keys are strictly ascending, above the listing's start and within its prefix.
fn shape(operation: &Operation, listing: &Listing) -> Result<(), Violation> {
    let wrong = |kind, message| Err(Violation::new(kind, message, &[operation]));
    for pair in listing.found.windows(2) {
        let (one, next) = (&pair[0].key, &pair[1].key);
        if one == next {
            return wrong("listed twice", format!("{one:?} comes twice"));
        }
        if one > next {
            return wrong("out of order", format!("{next:?} comes after {one:?}"));
        }
    }
    let outside = |found: &&ListedKey| {
        !found.key.starts_with(&operation.key) || found.key.as_str() <= listing.after.as_str()
    };
    match listing.found.iter().find(outside) {
        Some(found) => wrong("out of bounds", format!("{:?} was not asked for", found.key)),
        None => Ok(()),
    }
}

fn may_be_there(
    listing: &Operation,
    found: &ListedKey,
    operations: &[&Operation],
) -> Result<(), Violation> {
    let key = &found.key;
    let wrote = |it: &&&Operation| it.call.writes().is_some() && it.may_have_written();
    let mut writes = operations.iter().filter(wrote).filter(|write| !listing.precedes(write));
    if writes.clone().next().is_none() {
        let message = format!("{key:?} is listed, but nobody wrote it");
        return Err(Violation::new("invented", message, &[listing]));
    }
    let deletes = operations
        .iter()
        .filter(|it| it.call.deletes() && it.outcome == Response::Done && it.precedes(listing));
    let Some(last) = deletes.max_by_key(|delete| delete.invoked_at) else { return Ok(()) };
    if writes.all(|write| write.precedes(last)) {
        let message = format!("{key:?} is listed after its delete was acknowledged");
        return Err(Violation::new("resurrected", message, &[last, listing]));
    }
    Ok(())
}

fn may_be_absent(
    listing: &Operation,
    key: &str,
    operations: &[&Operation],
) -> Result<(), Violation> {
    let before = operations.iter().filter(|write| {
        write.call.writes().is_some() && write.is_acknowledged_write() && write.precedes(listing)
    });
    let Some(last) = before.max_by_key(|write| write.invoked_at) else { return Ok(()) };
    let may_delete = |it: &&Operation| {
        it.call.deletes() && it.may_have_written() && !it.precedes(last) && !listing.precedes(it)
    };
    if operations.iter().any(may_delete) {
        return Ok(());
    }
    let message = format!("{key:?} is not listed, though its write was acknowledged before");
    Err(Violation::new("missing from a listing", message, &[last, listing]))
}

#[cfg(test)]
mod tests;
