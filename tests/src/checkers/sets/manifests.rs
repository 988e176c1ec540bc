//! Generations by themselves: each has its number alone, one marker makes one, explicit commits are as
//! asked for, and the others hold what was current when their marker came.

use std::collections::BTreeMap;

use super::generations::{Generations, SeenGeneration};
use super::operation::{Objects, SetCall, SetOperation, SetReply, SetRules, SetViolation};
use crate::checkers::history::{History, Operation, Response, Value};

/// Requests on the objects of a bucket by key.
pub(super) type Keys<'a> = BTreeMap<&'a str, Vec<&'a Operation>>;

/// Checks all generations, beside the requests on the bucket.
pub(super) fn check(generations: &Generations<'_>, bucket: &History) -> Result<(), SetViolation> {
    unchanging(generations)?;
    let keys = bucket.by_key();
    for generation in &generations.all {
        let Some(objects) = generation.objects else { continue };
        if !generation.is_explicit() {
            whole(generations, generation, objects)?;
            of_its_moment(generation, objects, &keys)?;
        }
    }
    Ok(())
}

/// Checks that no two generations of a set share a number, or a marker that was written once.
fn unchanging(generations: &Generations<'_>) -> Result<(), SetViolation> {
    let marker = &generations.rules.marker;
    for (at, one) in generations.all.iter().enumerate() {
        for other in generations.all[at + 1..].iter().filter(|it| it.set == one.set) {
            let both = [one.named_by, other.named_by];
            if let Some(number) = one.numbers.intersection(&other.numbers).next() {
                let message = format!("generation {number} of {:?} has two manifests", one.set);
                return Err(SetViolation::new("changed", message, &both));
            }
            let markers = [one, other].map(|it| it.objects.and_then(|it| it.get(marker)));
            let is_one = markers[0].is_some() && markers[0] == markers[1];
            if is_one && !one.is_explicit() && !other.is_explicit() {
                let message = format!("one marker of {:?} has two manifests", one.set);
                return Err(SetViolation::new("changed", message, &both));
            }
        }
    }
    Ok(())
}

/// Checks that a generation has a marker, and all that the marker names.
fn whole(
    generations: &Generations<'_>,
    generation: &SeenGeneration<'_>,
    objects: &Objects,
) -> Result<(), SetViolation> {
    let rules = generations.rules;
    let mut needed = std::iter::once(&rules.marker).chain(&rules.named);
    match needed.find(|name| !objects.contains_key(*name)) {
        Some(name) => {
            let message = format!("a generation of {:?} lacks {name:?}", generation.set);
            Err(SetViolation::new("torn", message, &[generation.named_by]))
        }
        None => Ok(()),
    }
}

/// Checks the objects of a generation against the bucket: each was written, none was replaced before
/// the marker, none came after a reply `committed`, and none is missing.
fn of_its_moment(
    generation: &SeenGeneration<'_>,
    objects: &Objects,
    keys: &Keys<'_>,
) -> Result<(), SetViolation> {
    let set = generation.set;
    let wrong = |kind, message, maker: Option<&SetOperation>| {
        let all: Vec<_> = std::iter::once(generation.named_by).chain(maker).collect();
        Err(SetViolation::new(kind, message, &all))
    };
    let [maker] = generation.makers[..] else {
        let name = &generation.named_by;
        let message = format!("nobody asked for the generation that {name} shows");
        return wrong("invented", message, None);
    };
    for (rest, value) in objects {
        let operations = of_key(keys, set, rest);
        if let Some((kind, why)) = complaint(*value, operations, maker) {
            return wrong(kind, format!("{value} of {set}{rest} {why}"), Some(maker));
        }
    }
    for (key, operations) in keys.iter().filter(|(key, _)| key.starts_with(set)) {
        let seen_at = generation.seen_by.map_or(u64::MAX, |seen| seen.returned_at);
        let is_listed = objects.contains_key(&key[set.len()..]);
        if !is_listed && let Some(last) = last_until(operations, maker, seen_at) {
            let message = format!("{key} was there before the marker: {last}");
            return wrong("shorter", message, Some(maker));
        }
    }
    Ok(())
}

/// Returns true if a generation that no client listed may hold this object, or may lack it.
pub(super) fn may_hold(
    rules: &SetRules,
    maker: &SetOperation,
    (rest, found): (&str, Option<Value>),
    keys: &Keys<'_>,
) -> bool {
    let operations = of_key(keys, &maker.set, rest);
    match found {
        Some(value) if rest == rules.marker => maker.call == SetCall::Marker(value),
        Some(value) => complaint(value, operations, maker).is_none(),
        None => !must_have(rules, rest) && !was_there(operations, maker),
    }
}

/// Returns true if every generation has an object of this name.
pub(super) fn must_have(rules: &SetRules, rest: &str) -> bool {
    rest == rules.marker || rules.named.iter().any(|name| name == rest)
}

fn of_key<'a>(keys: &'a Keys<'_>, set: &str, rest: &str) -> &'a [&'a Operation] {
    keys.get(format!("{set}{rest}").as_str()).map_or(&[][..], Vec::as_slice)
}

/// Reason why a value can't be that of a key in the generation of a marker: kind and text.
fn complaint(
    value: Value,
    operations: &[&Operation],
    maker: &SetOperation,
) -> Option<(&'static str, String)> {
    let is_own = |it: &&&Operation| it.call.writes() == Some(value) && it.may_have_written();
    let Some(write) = operations.iter().find(is_own) else {
        return Some(("invented", "was never written".to_owned()));
    };
    let is_later = |it: &&&Operation| {
        it.outcome == Response::Done
            && it.call.leaves().is_some()
            && it.returned_at < maker.invoked_at
            && write.precedes(it)
    };
    if let Some(later) = operations.iter().find(is_later) {
        return Some(("stale", format!("was replaced before the marker: {later}")));
    }
    // A pending generation takes objects of other names only.
    let is_closed = match maker.reply {
        SetReply::Committed(_) => true,
        SetReply::Pending(_) => was_there(operations, maker),
        _ => false,
    };
    let is_after = is_closed && write.invoked_at > maker.returned_at;
    is_after.then(|| ("of a later save", "came after the marker's reply".to_owned()))
}

/// Returns true if a key certainly had an object while a marker was written.
fn was_there(operations: &[&Operation], maker: &SetOperation) -> bool {
    last_until(operations, maker, maker.returned_at).is_some()
}

/// The last write that was acknowledged before a marker was sent, unless a delete may have followed by
/// this time.
fn last_until<'a>(
    operations: &[&'a Operation],
    maker: &SetOperation,
    until: u64,
) -> Option<&'a Operation> {
    let is_written = |it: &&&Operation| {
        it.is_acknowledged_write() && !it.call.deletes() && it.returned_at < maker.invoked_at
    };
    let last = *operations.iter().filter(is_written).max_by_key(|it| it.invoked_at)?;
    let may_delete = |it: &&Operation| {
        it.call.deletes() && it.may_have_written() && !it.precedes(last) && it.invoked_at < until
    };
    (!operations.iter().any(may_delete)).then_some(last)
}

/// Returns true if the request is an explicit commit.
pub(super) fn is_explicit(operation: &SetOperation) -> bool {
    matches!(operation.call, SetCall::Commit(_))
}
