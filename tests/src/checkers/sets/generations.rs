//! Generations, as the replies of a history show them. Two listings with the same objects are of the
//! same generation.

use std::collections::BTreeSet;

use super::operation::{Objects, SetCall, SetHistory, SetOperation, SetReply, SetRules};
use crate::checkers::history::Value;

/// A generation that some reply shows.
#[derive(Clone, Debug)]
pub(super) struct SeenGeneration<'a> {
    pub(super) set: &'a str,
    /// Its objects; none if no client listed it: it is known by its marker alone.
    pub(super) objects: Option<&'a Objects>,
    /// Numbers that replies give it.
    pub(super) numbers: BTreeSet<u64>,
    /// Requests that may have made it.
    pub(super) makers: Vec<&'a SetOperation>,
    /// The earliest reply that shows it in the view.
    pub(super) seen_by: Option<&'a SetOperation>,
    /// Some reply that names it.
    pub(super) named_by: &'a SetOperation,
}

/// All generations of a history.
pub(super) struct Generations<'a> {
    pub(super) rules: &'a SetRules,
    pub(super) operations: &'a [SetOperation],
    pub(super) all: Vec<SeenGeneration<'a>>,
}

impl<'a> SeenGeneration<'a> {
    fn new(operation: &'a SetOperation, objects: Option<&'a Objects>) -> Self {
        Self {
            set: &operation.set,
            objects,
            numbers: BTreeSet::new(),
            makers: Vec::new(),
            seen_by: None,
            named_by: operation,
        }
    }

    fn see(&mut self, operation: &'a SetOperation) {
        if self.seen_by.is_none_or(|earlier| operation.returned_at < earlier.returned_at) {
            self.seen_by = Some(operation);
        }
    }

    /// Returns true if an explicit commit made it.
    pub(super) fn is_explicit(&self) -> bool {
        self.makers.iter().any(|maker| matches!(maker.call, SetCall::Commit(_)))
    }

    /// Time from which it may be in the view.
    pub(super) fn begun_at(&self) -> u64 {
        self.makers.iter().map(|maker| maker.invoked_at).min().unwrap_or_default()
    }

    /// Returns true if it was in the view for certain before this request was sent.
    pub(super) fn is_committed_before(&self, operation: &SetOperation) -> bool {
        self.seen_by.is_some_and(|seen| seen.returned_at < operation.invoked_at)
    }
}

impl<'a> Generations<'a> {
    pub(super) fn of(sets: &'a SetHistory) -> Self {
        let mut all = Self { rules: &sets.rules, operations: &sets.operations, all: Vec::new() };
        for operation in &sets.operations {
            if let (SetCall::List(number), SetReply::Listed(objects)) =
                (&operation.call, &operation.reply)
                && !objects.is_empty()
            {
                let seen = all.with_objects(operation, objects);
                seen.see(operation);
                seen.numbers.extend(number);
            }
        }
        for operation in &sets.operations {
            let number = match operation.reply {
                SetReply::Committed(number) => Some(number),
                SetReply::Pending(number) => number,
                _ => None,
            };
            let made = match &operation.call {
                SetCall::Marker(value) => all.of_marker(operation, *value),
                SetCall::Commit(objects) => Some(all.with_objects(operation, objects)),
                _ => None,
            };
            let Some(made) = made else { continue };
            made.makers.push(operation);
            made.numbers.extend(number);
            if matches!(operation.reply, SetReply::Committed(_)) {
                made.see(operation);
            }
        }
        all
    }

    fn with_objects(
        &mut self,
        operation: &'a SetOperation,
        objects: &'a Objects,
    ) -> &mut SeenGeneration<'a> {
        let is_it =
            |it: &SeenGeneration<'_>| it.set == operation.set && it.objects == Some(objects);
        let at = self.all.iter().position(is_it).unwrap_or_else(|| {
            self.all.push(SeenGeneration::new(operation, Some(objects)));
            self.all.len() - 1
        });
        &mut self.all[at]
    }

    /// The generation of a marker; a new one without objects if no client listed it and it may exist.
    fn of_marker(
        &mut self,
        operation: &'a SetOperation,
        value: Value,
    ) -> Option<&mut SeenGeneration<'a>> {
        let marker = &self.rules.marker;
        let is_it = |it: &SeenGeneration<'_>| {
            it.set == operation.set && it.objects.and_then(|it| it.get(marker)) == Some(&value)
        };
        if let Some(at) = self.all.iter().position(is_it) {
            return Some(&mut self.all[at]);
        }
        if !operation.may_make() {
            return None;
        }
        self.all.push(SeenGeneration::new(operation, None));
        self.all.last_mut()
    }

    /// Generations of a set.
    pub(super) fn of_set<'s>(
        &'s self,
        set: &'s str,
    ) -> impl Iterator<Item = &'s SeenGeneration<'a>> {
        self.all.iter().filter(move |it| it.set == set)
    }
}
