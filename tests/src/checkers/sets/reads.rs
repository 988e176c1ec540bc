//! Reads of the view in their order: each is of a generation that may be shown at that time.
//!
//! A generation may be shown from the request that makes it until it may be certain that it was
//! withdrawn, or that a later one took its place. Nothing may be shown instead of a generation that
//! was committed, unless that may have been withdrawn.

use super::generations::{Generations, SeenGeneration};
use super::manifests::{Keys, is_explicit, may_hold, must_have};
use super::operation::{Objects, SetCall, SetOperation, SetReply, SetViolation};
use crate::checkers::history::History;

/// Checks every read of the view.
pub(super) fn check(generations: &Generations<'_>, bucket: &History) -> Result<(), SetViolation> {
    let view = View { generations, keys: bucket.by_key() };
    for read in generations.operations {
        match (&read.call, &read.reply) {
            (SetCall::List(None), SetReply::Listed(objects)) => view.listed(read, objects)?,
            (SetCall::Get { rest, generation: None }, SetReply::Found(_) | SetReply::Absent) => {
                view.read(read, rest)?;
            }
            (SetCall::List(Some(number)), SetReply::Listed(objects)) => {
                view.numbered(read, *number, objects.is_empty(), |_| true)?;
            }
            (SetCall::Get { rest, generation: Some(number) }, SetReply::Absent) => {
                let has_it = |objects: Option<&Objects>| match objects {
                    Some(objects) => objects.contains_key(rest),
                    None => must_have(generations.rules, rest),
                };
                view.numbered(read, *number, true, has_it)?;
            }
            (SetCall::Get { rest, generation: Some(number) }, SetReply::Found(value)) => {
                view.numbered(read, *number, false, |_| true)?;
                view.found_in(read, *number, |objects| objects.get(rest) == Some(value))?;
            }
            _ => {}
        }
    }
    Ok(())
}

struct View<'a> {
    generations: &'a Generations<'a>,
    /// Requests on the objects of the bucket.
    keys: Keys<'a>,
}

impl View<'_> {
    /// Checks a listing of the newest generation.
    fn listed(&self, read: &SetOperation, objects: &Objects) -> Result<(), SetViolation> {
        if objects.is_empty() {
            return self.nothing(read);
        }
        let shown = self.generations.of_set(&read.set).find(|it| it.objects == Some(objects));
        let shown = shown.expect("it was gathered from this reply");
        self.shown(read, shown)
    }

    /// Checks a read of the newest generation: of any generation that explains it.
    fn read(&self, read: &SetOperation, rest: &str) -> Result<(), SetViolation> {
        let found = match read.reply {
            SetReply::Found(value) => Some(value),
            _ => None,
        };
        let set = &read.set;
        let rules = self.generations.rules;
        let explains = |it: &&SeenGeneration<'_>| match it.objects {
            Some(objects) => objects.get(rest).copied() == found,
            None => it.makers.iter().any(|maker| may_hold(rules, maker, (rest, found), &self.keys)),
        };
        let mut why = None;
        for generation in self.generations.of_set(set).filter(explains) {
            match self.shown(read, generation) {
                Ok(()) => return Ok(()),
                Err(violation) => why = Some(violation),
            }
        }
        match found {
            None => self.nothing(read),
            Some(value) => Err(why.unwrap_or_else(|| {
                let message = format!("{value} of {set}{rest} is in no generation");
                SetViolation::new("invented", message, &[read])
            })),
        }
    }

    /// Checks that a read may show a generation as the newest.
    fn shown(&self, read: &SetOperation, shown: &SeenGeneration<'_>) -> Result<(), SetViolation> {
        let set = &read.set;
        if shown.begun_at() > read.returned_at {
            let message = format!("{set:?} shows a generation before its marker was sent");
            return Err(SetViolation::new("from the future", message, &[shown.named_by, read]));
        }
        if let Some(withdrawal) = self.certainly_withdrawn(shown, read) {
            let message = format!("{set:?} shows a generation that was withdrawn");
            return Err(SetViolation::new("came back", message, &[withdrawal, read]));
        }
        let is_later = |it: &&SeenGeneration<'_>| {
            it.is_committed_before(read) && ranks_above(it, shown) && !self.may_be_out(it, read)
        };
        match self.generations.of_set(set).find(is_later) {
            Some(later) => {
                let message = format!("{set:?} shows an older generation than was committed");
                Err(SetViolation::new("older", message, &[later.named_by, read]))
            }
            None => Ok(()),
        }
    }

    /// Checks that a read may show no generation at all.
    fn nothing(&self, read: &SetOperation) -> Result<(), SetViolation> {
        let is_there =
            |it: &&SeenGeneration<'_>| it.is_committed_before(read) && !self.may_be_out(it, read);
        match self.generations.of_set(&read.set).find(is_there) {
            Some(lost) => {
                let message = format!("{:?} shows nothing, and was committed", read.set);
                Err(SetViolation::new("lost", message, &[lost.named_by, read]))
            }
            None => Ok(()),
        }
    }

    /// Checks a read of a generation by its number, which was found absent or not.
    fn numbered(
        &self,
        read: &SetOperation,
        number: u64,
        is_absent: bool,
        has_it: impl Fn(Option<&Objects>) -> bool,
    ) -> Result<(), SetViolation> {
        let (set, all) = (&read.set, self.generations);
        let of_number = |it: &&SeenGeneration<'_>| it.numbers.contains(&number);
        let Some(generation) = all.of_set(set).find(of_number) else { return Ok(()) };
        let has_it = has_it(generation.objects);
        if is_absent
            && has_it
            && generation.is_committed_before(read)
            && !self.may_be_out(generation, read)
        {
            let message = format!("generation {number} of {set:?} is absent, and was committed");
            return Err(SetViolation::new("lost", message, &[generation.named_by, read]));
        }
        match self.certainly_withdrawn(generation, read).filter(|_| !is_absent) {
            Some(withdrawal) => {
                let message = format!("generation {number} of {set:?} was withdrawn");
                Err(SetViolation::new("came back", message, &[withdrawal, read]))
            }
            None => Ok(()),
        }
    }

    fn found_in(
        &self,
        read: &SetOperation,
        number: u64,
        has_it: impl Fn(&Objects) -> bool,
    ) -> Result<(), SetViolation> {
        let mut of_set = self.generations.of_set(&read.set);
        let Some(generation) = of_set.find(|it| it.numbers.contains(&number)) else {
            return Ok(());
        };
        if generation.objects.is_none_or(has_it) {
            return Ok(());
        }
        let message = format!("generation {number} of {:?} has two manifests", read.set);
        Err(SetViolation::new("changed", message, &[generation.named_by, read]))
    }

    /// The withdrawal after which a generation can't be in the view any more.
    fn certainly_withdrawn(
        &self,
        generation: &SeenGeneration<'_>,
        read: &SetOperation,
    ) -> Option<&SetOperation> {
        // A commit that is asked for again makes another generation of the same objects.
        let [maker] = generation.makers[..] else { return None };
        self.generations.operations.iter().find(|it| {
            let is_of_it = match it.call {
                SetCall::Withdraw(Some(number)) => generation.numbers.contains(&number),
                SetCall::Withdraw(None) => generation.is_committed_before(it) && maker.precedes(it),
                _ => false,
            };
            is_of_it
                && it.set == generation.set
                && it.reply == SetReply::Done
                && it.returned_at < read.invoked_at
        })
    }

    /// Returns true if a generation may have been withdrawn before a read ended.
    fn may_be_out(&self, generation: &SeenGeneration<'_>, read: &SetOperation) -> bool {
        let until = read.returned_at;
        let is_withdrawal = |it: &SetOperation| {
            let is_of_it = match it.call {
                SetCall::Withdraw(Some(number)) => {
                    generation.numbers.is_empty() || generation.numbers.contains(&number)
                }
                SetCall::Withdraw(None) => true,
                _ => false,
            };
            is_of_it && it.set == generation.set && it.invoked_at < until
        };
        self.generations.operations.iter().any(is_withdrawal)
            || self.may_be_retired(generation, until)
            || (!generation.is_explicit() && self.may_be_empty(generation, until))
    }

    /// Returns true if the rule may have withdrawn a generation: enough others may rank above it.
    fn may_be_retired(&self, generation: &SeenGeneration<'_>, until: u64) -> bool {
        let series = series_of(generation.set);
        let Some(keep) = self.generations.rules.keep.get(series) else { return false };
        let is_hold = |it: &&SetOperation| {
            it.set == generation.set
                && it.reply == SetReply::Done
                && matches!(it.call, SetCall::Hold(number) if generation.numbers.contains(&number))
        };
        if self.generations.operations.iter().any(|it| is_hold(&it)) {
            return false;
        }
        // An earlier marker of the same set ranks below.
        let is_below = |it: &SetOperation| {
            it.set == generation.set
                && !is_explicit(it)
                && generation.makers.iter().all(|maker| it.precedes(maker) || it == *maker)
        };
        let may_be_above = |it: &&SetOperation| {
            it.may_make() && series_of(&it.set) == series && it.invoked_at < until && !is_below(it)
        };
        self.generations.operations.iter().filter(may_be_above).count() >= *keep
    }

    /// Returns true if all objects of a set's folder may have been deleted before: those of the
    /// generation at least.
    fn may_be_empty(&self, generation: &SeenGeneration<'_>, until: u64) -> bool {
        let marker = [self.generations.rules.marker.clone()];
        let names: Vec<&String> = match generation.objects {
            Some(objects) => objects.keys().collect(),
            None => marker.iter().collect(),
        };
        names.into_iter().all(|name| {
            let key = format!("{}{name}", generation.set);
            let operations = self.keys.get(key.as_str()).map_or(&[][..], Vec::as_slice);
            operations
                .iter()
                .any(|it| it.call.deletes() && it.may_have_written() && it.invoked_at < until)
        })
    }
}

/// Returns true if a generation certainly ranks above another one of its set.
fn ranks_above(one: &SeenGeneration<'_>, other: &SeenGeneration<'_>) -> bool {
    let number = |it: &SeenGeneration<'_>| match it.numbers.len() {
        1 => it.numbers.first().copied(),
        _ => None,
    };
    if let (Some(one), Some(other)) = (number(one), number(other)) {
        return one > other;
    }
    // Without numbers, the order of their markers.
    match (&one.makers[..], &other.makers[..]) {
        ([one], [other]) => !is_explicit(one) && !is_explicit(other) && other.precedes(one),
        _ => false,
    }
}

/// Parent folder of a set.
fn series_of(set: &str) -> &str {
    let folder = set.strip_suffix('/').unwrap_or(set);
    folder.rfind('/').map_or("", |at| &set[..=at])
}
