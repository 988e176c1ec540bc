//! Matching of texts with `*` and `?`.
//!
//! Invariants:
//! * No recursion. The number of steps is linear in the lengths of pattern and text. Only a section
//!   between two `*` that contains `?` costs one step per byte of text and 64 atoms of the section.
//! * A pattern with more ordinary characters than the text has bytes fails after one pass over it.
//! * `?` is one character, however many bytes it has.

use std::collections::HashMap;

/// One element of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Atom {
    /// This byte.
    Byte(u8),
    /// Any one character.
    One,
    /// Any characters, or none.
    Many,
}

/// Atoms of a pattern with `*` and `?`.
pub(super) fn atoms(pattern: &str) -> impl Iterator<Item = Atom> + '_ {
    pattern.bytes().map(|byte| match byte {
        b'*' => Atom::Many,
        b'?' => Atom::One,
        byte => Atom::Byte(byte),
    })
}

/// A compiled pattern. Most patterns of a policy differ from a text within their first bytes, which
/// one comparison finds out.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pattern {
    /// Text before the first wildcard.
    beginning: String,
    /// The first wildcard and all that follows. Empty if the pattern is a plain text.
    rest: Vec<Atom>,
}

impl Pattern {
    /// Compiles atoms of whole characters.
    pub(super) fn new(atoms: &[Atom]) -> Self {
        let plain = atoms.iter().map_while(|atom| match atom {
            Atom::Byte(byte) => Some(*byte),
            Atom::One | Atom::Many => None,
        });
        let plain: Vec<u8> = plain.collect();
        let rest = atoms[plain.len()..].to_vec();
        let beginning = String::from_utf8(plain).expect("wildcards separate whole characters");
        Self { beginning, rest }
    }

    /// Returns true if the pattern matches `text`. Counts the steps behind the plain beginning.
    pub(super) fn matches(&self, text: &str, steps: &mut usize) -> bool {
        let Some(text) = text.strip_prefix(&*self.beginning) else { return false };
        match self.rest[..] {
            [] => text.is_empty(),
            [Atom::Many] => true,
            _ => matches_counting(&self.rest, text, steps),
        }
    }
}

/// Returns true if `pattern` matches `text`.
pub(super) fn matches(pattern: &[Atom], text: &str) -> bool {
    matches_counting(pattern, text, &mut 0)
}

/// As `matches`, for a pattern as text.
pub(super) fn matches_text(pattern: &str, text: &str) -> bool {
    let pattern: Vec<Atom> = atoms(pattern).collect();
    matches(&pattern, text)
}

/// As `matches`, and counts steps. The section before the first `*` must begin the text, and the
/// section after the last one must end it. Each section between is searched behind the one before.
/// The first occurrence is enough, as a later one leaves less text for the rest.
pub(super) fn matches_counting(pattern: &[Atom], text: &str, steps: &mut usize) -> bool {
    *steps += pattern.len();
    let least = pattern.iter().filter(|atom| **atom != Atom::Many).count();
    if least > text.len() {
        return false;
    }
    let mut parts = pattern.split(|atom| *atom == Atom::Many);
    let first = parts.next().unwrap_or_default();
    let Some(rest) = strip_first(first, text.as_bytes()) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    let Some(rest) = strip_last(last, rest) else { return false };
    // Whole characters were removed at both ends.
    let Ok(mut rest) = std::str::from_utf8(rest) else { return false };
    for part in parts.filter(|part| !part.is_empty()) {
        let Some(end) = end_of_first(part, rest, steps) else {
            *steps += rest.len();
            return false;
        };
        *steps += end;
        rest = &rest[end..];
    }
    true
}

/// Rest of `text` behind `part`, if `text` begins with a match of it.
fn strip_first<'a>(part: &[Atom], text: &'a [u8]) -> Option<&'a [u8]> {
    let mut place = 0;
    for atom in part {
        let byte = text.get(place)?;
        place = match atom {
            Atom::Byte(other) if byte != other => return None,
            Atom::Byte(_) => place + 1,
            Atom::One | Atom::Many => next_character(text, place),
        };
    }
    Some(&text[place..])
}

/// Beginning of `text` before `part`, if `text` ends with a match of it.
fn strip_last<'a>(part: &[Atom], text: &'a [u8]) -> Option<&'a [u8]> {
    let mut end = text.len();
    for atom in part.iter().rev() {
        end = end.checked_sub(1)?;
        match atom {
            Atom::Byte(other) if text[end] != *other => return None,
            Atom::Byte(_) => {}
            Atom::One | Atom::Many => {
                while is_within(text[end]) {
                    end = end.checked_sub(1)?;
                }
            }
        }
    }
    Some(&text[..end])
}

/// End of the first match of `part`.
fn end_of_first(part: &[Atom], text: &str, steps: &mut usize) -> Option<usize> {
    if part.contains(&Atom::One) {
        return SectionSearch::new(part).end_in(text.as_bytes(), steps);
    }
    let bytes = part.iter().filter_map(|atom| match atom {
        Atom::Byte(byte) => Some(*byte),
        Atom::One | Atom::Many => None,
    });
    let bytes: Vec<u8> = bytes.collect();
    // This search takes linear time.
    let part = std::str::from_utf8(&bytes).ok()?;
    text.find(part).map(|at| at + part.len())
}

const WORD: usize = 64;

/// Search for a section that contains `?`. All positions in the section that the text may have
/// reached are tracked at once, one bit each.
struct SectionSearch<'a> {
    part: &'a [Atom],
    words: usize,
    /// Positions of each byte. Bytes that don't occur have no entry.
    bytes: HashMap<u8, Vec<u64>>,
    /// Positions of `?`.
    ones: Vec<u64>,
}

impl<'a> SectionSearch<'a> {
    fn new(part: &'a [Atom]) -> Self {
        let words = part.len().div_ceil(WORD);
        let (mut bytes, mut ones) = (HashMap::new(), vec![0; words]);
        for (at, atom) in part.iter().enumerate() {
            let places = match atom {
                Atom::Byte(byte) => bytes.entry(*byte).or_insert_with(|| vec![0; words]),
                Atom::One | Atom::Many => &mut ones,
            };
            places[at / WORD] |= 1 << (at % WORD);
        }
        Self { part, words, bytes, ones }
    }

    fn end_in(&self, text: &[u8], steps: &mut usize) -> Option<usize> {
        let last = self.part.len() - 1;
        let ends_in_any = self.part[last] == Atom::One;
        let mut places = vec![0_u64; self.words];
        for (at, byte) in text.iter().enumerate() {
            *steps += self.words;
            self.read(*byte, &mut places);
            let is_there = places[last / WORD] & (1 << (last % WORD)) != 0;
            let is_whole = !ends_in_any || text.get(at + 1).is_none_or(|next| !is_within(*next));
            if is_there && is_whole {
                return Some(at + 1);
            }
        }
        None
    }

    /// Advances by one byte: to the next position, or within the character of a `?`.
    fn read(&self, byte: u8, places: &mut [u64]) {
        let (named, is_within) = (self.bytes.get(&byte), is_within(byte));
        let mut carried = 1;
        for (word, place) in places.iter_mut().enumerate() {
            let next = (*place << 1) | carried;
            carried = *place >> (WORD - 1);
            let named = named.map_or(0, |named| named[word]);
            let any = self.ones[word];
            *place = if is_within { (next & named) | (*place & any) } else { next & (named | any) };
        }
    }
}

/// Returns true if `pattern` matches some text that is longer than `beginning` and begins with it.
/// All positions in the pattern that reading `beginning` may reach are tracked at once.
pub(super) fn goes_beyond(pattern: &[Atom], beginning: &str) -> bool {
    let mut places = vec![false; pattern.len() + 1];
    places[0] = true;
    pass_stars(pattern, &mut places);
    for byte in beginning.bytes() {
        let mut next = vec![false; pattern.len() + 1];
        for (at, atom) in pattern.iter().enumerate().filter(|(at, _)| places[*at]) {
            match atom {
                Atom::Many => next[at] = true,
                Atom::One => next[at + 1] = true,
                Atom::Byte(other) if *other == byte => next[at + 1] = true,
                Atom::Byte(_) => {}
            }
        }
        pass_stars(pattern, &mut next);
        places = next;
    }
    // Any rest of a pattern matches some text.
    places[..pattern.len()].contains(&true)
}

/// Advances past each star, which may match nothing.
fn pass_stars(pattern: &[Atom], places: &mut [bool]) {
    for (at, atom) in pattern.iter().enumerate() {
        if places[at] && *atom == Atom::Many {
            places[at + 1] = true;
        }
    }
}

/// Start of the character after the one at `place`.
fn next_character(text: &[u8], place: usize) -> usize {
    let rest = &text[place + 1..];
    place + 1 + rest.iter().take_while(|byte| is_within(**byte)).count()
}

/// Returns true if a byte continues the character before it.
fn is_within(byte: u8) -> bool {
    byte & 0xC0 == 0x80
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Reference implementation of matching.
    fn model(pattern: &[char], text: &[char]) -> bool {
        match (pattern.split_first(), text.split_first()) {
            (None, None) => true,
            (Some(('*', rest)), None) => model(rest, text),
            (Some(('*', rest)), Some((_, others))) => model(rest, text) || model(pattern, others),
            (Some(('?', rest)), Some((_, others))) => model(rest, others),
            (Some((one, rest)), Some((other, others))) => one == other && model(rest, others),
            (None, Some(_)) | (Some(_), None) => false,
        }
    }

    /// Bound of the steps for a pattern and a text, given their lengths in bytes.
    fn bound(pattern: usize, text: usize) -> usize {
        2 * (pattern + text) + 2 * text * pattern.div_ceil(WORD).max(1)
    }

    #[test]
    fn stars_and_question_marks_stand_for_others() {
        for (pattern, text, is_match) in [
            ("", "", true),
            ("*", "", true),
            ("*", "a/b", true),
            ("a*c", "abbc", true),
            ("a*c", "abbcd", false),
            ("a?c", "aüc", true),
            ("a?c", "ac", false),
            ("?", "", false),
            ("*?", "ключ", true),
            ("????", "ключ", true),
            ("???", "ключ", false),
            ("*.jpg", "photos/1.jpg", true),
            ("a**b", "ab", true),
            ("abc", "ABC", false),
        ] {
            assert_eq!(matches_text(pattern, text), is_match, "{pattern} {text}");
        }
    }

    #[test]
    fn hostile_patterns_end_within_their_bound() {
        let text = "a".repeat(1024);
        for pattern in [
            "a*".repeat(500) + "b",
            format!("*{}b", "a".repeat(511)),
            format!("*{}b*", "a".repeat(511)),
            format!("*{}?b*", "a".repeat(511)),
            "*a?".repeat(300),
            "*?".repeat(300) + "b*",
        ] {
            let atoms: Vec<Atom> = atoms(&pattern).collect();
            let mut steps = 0;
            matches_counting(&atoms, &text, &mut steps);
            assert!(steps <= bound(atoms.len(), text.len()), "{steps} for {}", atoms.len());
        }
        let long: Vec<Atom> = atoms(&("*".to_owned() + &"a".repeat(20_000))).collect();
        let mut steps = 0;
        assert!(!matches_counting(&long, &text, &mut steps));
        assert_eq!(steps, long.len());
    }

    #[test]
    fn patterns_for_keys_beyond_the_prefix_are_found() {
        let beyond = |pattern: &str| goes_beyond(&atoms(pattern).collect::<Vec<_>>(), "ab/");
        for pattern in ["ab/c", "ab/*", "*", "a*", "ab/?", "a*/c", "ab*c", "???c", "*/x/y"] {
            assert!(beyond(pattern), "{pattern}");
        }
        for pattern in ["ab", "ab/", "", "b*", "abc*", "???", "a?c/*"] {
            assert!(!beyond(pattern), "{pattern}");
        }
    }

    proptest! {
        #[test]
        fn it_is_the_definition(pattern in "[ab?*é]{0,9}", text in "[abé]{0,9}") {
            let (of, to): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
            prop_assert_eq!(matches_text(&pattern, &text), model(&of, &to));
            let compiled = Pattern::new(&atoms(&pattern).collect::<Vec<_>>());
            prop_assert_eq!(compiled.matches(&text, &mut 0), model(&of, &to));
        }

        #[test]
        fn steps_are_bounded(pattern in "[ab*?]{0,40}", text in "[ab]{0,60}") {
            let atoms: Vec<Atom> = atoms(&pattern).collect();
            let mut steps = 0;
            matches_counting(&atoms, &text, &mut steps);
            prop_assert!(steps <= (atoms.len() + 1) * (text.len() + 1) * 2);
        }
    }
}
