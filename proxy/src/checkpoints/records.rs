//! Record of a set: its generations and their states. Pure; changed by compare-and-set alone.
//!
//! ```text
//!            ┌──────────▶ Pending ──what was missing came──┐
//! marker ────┤                                             ▼
//!            └──complete──────────────────────────────▶ Pinning ──all pinned──▶ Committed
//!                          each of them ──withdrawn──▶ Removing ──unpinned──▶ (gone)
//! ```
//!
//! Invariants:
//! * Numbers are given once, in ascending order.
//! * One version of a marker makes at most one generation.
//! * A generation becomes committed only from `Pinning`, with the manifest that was pinned.
//! * Orders ascend with numbers: a marker that is older than one noted before makes none.
//! * `Removing` is final. No generation is forgotten before it was removing.
//! * While a generation is removed, no earlier one begins to be pinned.

mod withdrawal;

use martlet_protocol::limits::FIRST_HAND_AGE_MS_MAX;
use serde::{Deserialize, Serialize};

pub(crate) use self::withdrawal::{ABANDONED, EMPTIED, ENOUGH, Withdrawal, WithdrawalCause};

/// Age from which an intent is looked at: a live process has written its marker.
pub(super) const INTENT_AGE_MS: u64 = FIRST_HAND_AGE_MS_MAX;
/// Maximum number of generations of a set, in any state.
pub(crate) const GENERATIONS_MAX: usize = 1000;
/// Start of what stands for the marker of an explicit commit.
pub(crate) const EXPLICIT: &str = "commit:";
/// Longest reason in characters: markers may name anything.
const REASON_CHARS_MAX: usize = 300;
/// Maximum number of marker writes of a set at once.
const INTENTS_MAX: usize = 64;

/// State of a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GenerationState {
    /// Something is missing or unclear.
    Pending,
    /// Complete; its versions are being pinned.
    Pinning,
    /// Visible in the view.
    Committed,
    /// Out of the view, and being unpinned.
    Removing,
}

/// A generation of a set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent fact of the record")]
pub struct Generation {
    /// Its number within the set, from 1.
    pub number: u64,
    /// Its state.
    pub state: GenerationState,
    /// Rank among the set's generations: the position of the marker's version, or the stamp of the
    /// request that committed it.
    pub order: u64,
    /// Version of its marker; for an explicit commit, the hash of its objects.
    pub marker: Option<String>,
    /// Token of its manifest; none if it is unclear what was current.
    pub manifest: Option<String>,
    /// Number of its objects.
    pub objects: u64,
    /// Bytes of its objects together.
    pub bytes: u64,
    /// Time at which its objects were noted, in milliseconds since 1970.
    pub noted_ms: u64,
    /// Time of its last change of state, in milliseconds since 1970.
    pub changed_ms: u64,
    /// Reason why it is pending or was withdrawn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// End of the longest hold that a reader took, in milliseconds since 1970; zero for none.
    #[serde(default)]
    pub held_until_ms: u64,
    /// True if its objects are deleted with it.
    #[serde(default)]
    pub deletes_objects: bool,
    /// True if versions may be pinned for it.
    #[serde(default)]
    pub has_pins: bool,
    /// True if its objects lie in another folder than the set's.
    #[serde(default)]
    pub is_published: bool,
    /// True if it must be the set's only committed generation.
    #[serde(default)]
    pub refuses_more: bool,
    /// True once its objects are being deleted.
    #[serde(default)]
    pub is_deleting: bool,
    /// Number of its first objects that are pinned for certain, while it is being pinned.
    #[serde(default)]
    pub pinned: u64,
    /// Cause of its withdrawal; none in earlier records, and for what wasn't withdrawn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cause: Option<WithdrawalCause>,
}

/// A write of a marker that was begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MarkerIntent {
    pub(crate) token: String,
    /// The marker's key.
    pub(crate) key: String,
    /// Current version of the marker before the write.
    pub(crate) before: Option<String>,
    /// Start of the write, in milliseconds since 1970.
    pub(crate) at_ms: u64,
    /// Number of the set's last generation before the write. Intents of earlier versions have none:
    /// they delay each generation, as they did.
    #[serde(default = "after_any")]
    pub(crate) after: u64,
    /// True once its process sends nothing more of the write.
    #[serde(default)]
    pub(crate) is_given_up: bool,
}

fn after_any() -> u64 {
    u64::MAX
}

/// Record of a set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SetRecord {
    /// Name of the set: its folder, with the last slash.
    pub(crate) name: String,
    /// Number of changes, so that no two states of the record are equal.
    pub(crate) revision: u64,
    /// Number of the last generation.
    pub(crate) last: u64,
    pub(crate) intents: Vec<MarkerIntent>,
    pub(crate) generations: Vec<Generation>,
    /// Order of the last generation.
    #[serde(default)]
    last_order: u64,
    /// Highest position of a marker that was noted.
    #[serde(default)]
    last_marker: u64,
    /// Time since which no rule covers the set, in milliseconds since 1970.
    #[serde(default)]
    pub(crate) uncovered_since_ms: Option<u64>,
}

/// Objects that were noted for a generation.
#[derive(Clone, Debug)]
pub(crate) struct Noted {
    pub(crate) order: u64,
    pub(crate) marker: Option<String>,
    pub(crate) manifest: Option<String>,
    pub(crate) objects: u64,
    pub(crate) bytes: u64,
    pub(crate) now_ms: u64,
    /// Reason why the generation isn't complete; none if it is.
    pub(crate) pending: Option<String>,
    /// True if a set with a committed generation takes no further one.
    pub(crate) refuses_more: bool,
    /// True if the objects lie in another folder than the set's.
    pub(crate) is_published: bool,
}

/// Result of noting a generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoteOutcome {
    /// It has this number and state. The manifest is the one that counts.
    Noted(Generation),
    /// It made no generation, for this reason.
    Refused(String),
}

impl SetRecord {
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// Adds the intent to write a marker; returns false if there are too many, or objects of the set
    /// are being deleted. Of many intents that say the same, the oldest makes place.
    pub(crate) fn begin(&mut self, intent: MarkerIntent) -> bool {
        if self.is_deleting() {
            return false;
        }
        if self.intents.len() >= INTENTS_MAX {
            let says_same =
                |it: &&MarkerIntent| (&it.key, &it.before) == (&intent.key, &intent.before);
            if self.intents.iter().filter(says_same).count() < 2 {
                return false;
            }
            if let Some(at) = self.intents.iter().position(|it| says_same(&it)) {
                self.intents.remove(at);
            }
        }
        self.intents.push(MarkerIntent { after: self.last, ..intent });
        true
    }

    /// Notes that nothing more is sent of a marker's write. What was sent may still come.
    pub(crate) fn give_up(&mut self, token: &str) {
        for intent in self.intents.iter_mut().filter(|intent| intent.token == token) {
            intent.is_given_up = true;
        }
    }

    /// Returns true if a later save than this generation is likely to write its marker now. The intent
    /// of a process that died stays for a day, but counts for minutes.
    pub(crate) fn is_marker_coming(&self, number: u64, now_ms: u64) -> bool {
        self.intents.iter().any(|intent| {
            intent.after >= number && !intent.is_given_up && intent.at_ms + INTENT_AGE_MS > now_ms
        })
    }

    /// Removes an intent; returns true if it was there.
    pub(crate) fn end(&mut self, token: &str) -> bool {
        let before = self.intents.len();
        self.intents.retain(|intent| intent.token != token);
        self.intents.len() < before
    }

    /// Adds a generation, or completes the pending one of this marker version.
    pub(crate) fn note(&mut self, noted: Noted) -> NoteOutcome {
        let is_explicit = noted.marker.as_ref().is_some_and(|it| it.starts_with(EXPLICIT));
        // A withdrawn commit may be asked for again; a marker's version never makes another.
        let known = |it: &Generation| {
            it.marker == noted.marker && !(is_explicit && it.state == GenerationState::Removing)
        };
        if let Some(at) = self.generations.iter().position(known) {
            let removing = self.is_removing_above(self.generations[at].number);
            let known = &mut self.generations[at];
            // Noted before by a process that died, without its objects.
            if known.state == GenerationState::Pending && known.manifest.is_none() {
                let wait = || Some("a later generation is being removed".to_owned());
                let pending = noted.pending.clone().or_else(|| removing.then(wait).flatten());
                known.fill(&Noted { pending, ..noted });
            }
            return NoteOutcome::Noted(known.clone());
        }
        if let Some(reason) = self.refusal(&noted, is_explicit) {
            return NoteOutcome::Refused(reason);
        }
        if !is_explicit {
            self.last_marker = noted.order;
        }
        self.last += 1;
        // Clocks of proxies differ: a generation that is noted later ranks above.
        self.last_order = noted.order.max(self.last_order + 1);
        let mut generation = Generation {
            number: self.last,
            state: GenerationState::Pending,
            order: self.last_order,
            marker: noted.marker.clone(),
            manifest: None,
            objects: 0,
            bytes: 0,
            noted_ms: noted.now_ms,
            changed_ms: noted.now_ms,
            reason: None,
            held_until_ms: 0,
            deletes_objects: false,
            has_pins: false,
            is_published: noted.is_published,
            refuses_more: noted.refuses_more,
            is_deleting: false,
            pinned: 0,
            cause: None,
        };
        generation.fill(&noted);
        self.generations.push(generation.clone());
        NoteOutcome::Noted(generation)
    }

    /// Reason why a new generation isn't taken, if there is one.
    fn refusal(&self, noted: &Noted, is_explicit: bool) -> Option<String> {
        let is_alive = |it: &&Generation| {
            matches!(it.state, GenerationState::Pinning | GenerationState::Committed)
        };
        if noted.refuses_more
            && let Some(other) = self.generations.iter().find(is_alive)
        {
            return Some(format!("generation {} is committed", other.number));
        }
        if self.is_deleting() {
            return Some("objects of an earlier generation are being deleted".to_owned());
        }
        if !is_explicit && noted.order <= self.last_marker {
            return Some("a later write of the marker was noted".to_owned());
        }
        let is_full = self.generations.len() >= GENERATIONS_MAX;
        is_full.then(|| format!("the set has {GENERATIONS_MAX} generations"))
    }

    fn is_deleting(&self) -> bool {
        self.generations.iter().any(|it| it.is_deleting)
    }

    /// Returns true if no write of a marker is under way, and it is clear what generations need.
    pub(crate) fn may_delete(&self) -> bool {
        let is_unclear =
            |it: &Generation| it.state != GenerationState::Removing && it.manifest.is_none();
        self.intents.is_empty() && !self.generations.iter().any(is_unclear)
    }

    /// Begins the deletion of a withdrawn generation's objects, which shuts out new generations.
    /// Returns false if a write of a marker is under way, or it is unclear what another generation
    /// needs, or the objects stay.
    pub(crate) fn begin_deleting(&mut self, number: u64) -> bool {
        if !self.may_delete() {
            return false;
        }
        let is_due =
            |it: &&mut Generation| it.state == GenerationState::Removing && it.deletes_objects;
        let Some(generation) = self.find_mut(number).filter(is_due) else { return false };
        generation.is_deleting = true;
        true
    }

    /// Keeps the objects of a withdrawn generation. Returns false if they are being deleted, or the generation
    /// isn't withdrawn.
    pub(crate) fn spare_objects(&mut self, number: u64) -> bool {
        let may_stay =
            |it: &&mut Generation| it.state == GenerationState::Removing && !it.is_deleting;
        let Some(generation) = self.find_mut(number).filter(may_stay) else { return false };
        generation.deletes_objects = false;
        generation.reason = Some(generation.withdrawn_by().spared_reason().to_owned());
        true
    }

    /// Commits a generation whose versions are all pinned, of this manifest. Returns its state; none
    /// if it is gone.
    pub(crate) fn commit(
        &mut self,
        number: u64,
        manifest: &str,
        now_ms: u64,
    ) -> Option<GenerationState> {
        let other = self.committed().map(|it| it.number).find(|it| *it != number);
        let generation = self.find_mut(number)?;
        if generation.state == GenerationState::Pinning
            && generation.manifest.as_deref() == Some(manifest)
        {
            match other.filter(|_| generation.refuses_more) {
                None => generation.enter(GenerationState::Committed, None, now_ms),
                Some(other) => {
                    let reason = format!("generation {other} is committed");
                    generation.enter(GenerationState::Removing, Some(reason), now_ms);
                }
            }
        }
        Some(generation.state)
    }

    /// Notes how many of the first objects of a manifest are pinned, while its generation is being
    /// pinned.
    pub(crate) fn note_pinned(&mut self, number: u64, manifest: Option<&str>, pinned: u64) {
        let generation = self.find_mut(number).filter(|it| {
            it.state == GenerationState::Pinning && it.manifest.as_deref() == manifest
        });
        if let Some(generation) = generation {
            generation.pinned = generation.pinned.max(pinned);
        }
    }

    /// Gives a pending generation a fuller manifest. Returns false if it isn't pending, has another
    /// manifest than `before`, or must wait for the removal of a later one.
    pub(crate) fn refill(&mut self, number: u64, before: &str, noted: &Noted) -> bool {
        let removing = self.is_removing_above(number);
        let Some(generation) = self.find_mut(number) else { return false };
        let is_same = generation.state == GenerationState::Pending
            && generation.manifest.as_deref() == Some(before)
            && !removing;
        if is_same {
            let noted_ms = generation.noted_ms;
            generation.fill(noted);
            generation.noted_ms = noted_ms;
        }
        is_same
    }

    /// Changes the reason why a generation is pending.
    pub(crate) fn explain(&mut self, number: u64, reason: &str) {
        let generation = self.find_mut(number);
        if let Some(generation) = generation.filter(|it| it.state == GenerationState::Pending) {
            generation.reason = Some(cut(reason));
        }
    }

    /// Takes a generation out of the view; returns false if it was out already, or is held.
    pub(crate) fn withdraw(&mut self, number: u64, why: Withdrawal<'_>, now_ms: u64) -> bool {
        let Some(generation) = self.find_mut(number) else { return false };
        let is_held = why.waits_for_holds && generation.held_until_ms > now_ms;
        if generation.state == GenerationState::Removing || is_held {
            return false;
        }
        generation.enter(GenerationState::Removing, Some(why.reason.to_owned()), now_ms);
        (generation.deletes_objects, generation.cause) = (why.deletes_objects, Some(why.cause));
        true
    }

    /// Takes a hold on a committed generation; returns false if it isn't committed. A shorter hold
    /// than the present one changes nothing.
    pub(crate) fn hold(&mut self, number: u64, until_ms: u64) -> bool {
        let generation = self.find_mut(number);
        let Some(generation) = generation.filter(|it| it.state == GenerationState::Committed)
        else {
            return false;
        };
        generation.held_until_ms = generation.held_until_ms.max(until_ms);
        true
    }

    /// Forgets a generation that was removed.
    pub(crate) fn forget(&mut self, number: u64) {
        self.generations.retain(|it| it.number != number || it.state != GenerationState::Removing);
    }

    /// Returns true if pins of a later generation are being released: a removal must not miss an
    /// earlier generation that begins to need the same versions.
    pub(crate) fn is_removing_above(&self, number: u64) -> bool {
        self.generations
            .iter()
            .any(|it| it.number > number && it.state == GenerationState::Removing && it.has_pins)
    }

    /// Generations before a number whose versions are pinned or being pinned.
    pub(crate) fn pinned_below(&self, number: u64) -> impl Iterator<Item = &Generation> {
        self.generations.iter().filter(move |it| {
            it.number < number
                && matches!(it.state, GenerationState::Pinning | GenerationState::Committed)
        })
    }

    /// Generations before a number that need their versions, with their manifests: what a removal of that number
    /// leaves pinned.
    pub(crate) fn needs_below(&self, number: u64) -> Vec<(u64, Option<&str>)> {
        self.pinned_below(number).map(|it| (it.number, it.manifest.as_deref())).collect()
    }

    pub(crate) fn find(&self, number: u64) -> Option<&Generation> {
        self.generations.iter().find(|it| it.number == number)
    }

    fn find_mut(&mut self, number: u64) -> Option<&mut Generation> {
        self.generations.iter_mut().find(|it| it.number == number)
    }

    /// Committed generations, the newest first.
    pub(crate) fn committed(&self) -> impl Iterator<Item = &Generation> {
        let mut committed: Vec<&Generation> =
            self.generations.iter().filter(|it| it.state == GenerationState::Committed).collect();
        committed.sort_by_key(|it| std::cmp::Reverse((it.order, it.number)));
        committed.into_iter()
    }

    /// The generation that the view shows.
    pub(crate) fn newest(&self) -> Option<&Generation> {
        self.committed().next()
    }
}

impl Generation {
    fn fill(&mut self, noted: &Noted) {
        let state = match noted.pending {
            Some(_) => GenerationState::Pending,
            None => GenerationState::Pinning,
        };
        self.manifest.clone_from(&noted.manifest);
        self.pinned = 0;
        (self.objects, self.bytes, self.noted_ms) = (noted.objects, noted.bytes, noted.now_ms);
        self.enter(state, noted.pending.clone(), noted.now_ms);
    }

    fn enter(&mut self, state: GenerationState, reason: Option<String>, now_ms: u64) {
        let reason = reason.map(|text| cut(&text));
        (self.state, self.reason, self.changed_ms) = (state, reason, now_ms);
        self.has_pins |= state == GenerationState::Pinning;
    }
}

/// A reason of at most so many characters as a record keeps.
pub(super) fn cut(reason: &str) -> String {
    reason.chars().take(REASON_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests;
