//! Texts with `*` and `?`.
//!
//! Invariants:
//! * No recursion, and no more steps than the length of the pattern times that of the text. A
//!   pattern with more ordinary characters than the text has is turned away before the first step,
//!   so that a long pattern costs no more than a text is long, squared.
//! * `?` is one character, however many bytes it has.

/// A piece of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Atom {
    /// This byte.
    Byte(u8),
    /// Any one character.
    One,
    /// Any characters, or none.
    Many,
}

/// The pieces of a text in which `*` and `?` stand for others.
pub(super) fn atoms(pattern: &str) -> impl Iterator<Item = Atom> + '_ {
    pattern.bytes().map(|byte| match byte {
        b'*' => Atom::Many,
        b'?' => Atom::One,
        byte => Atom::Byte(byte),
    })
}

/// Whether `text` is one that `pattern` stands for.
pub(super) fn matches(pattern: &[Atom], text: &str) -> bool {
    matches_counting(pattern, text, &mut 0)
}

/// The same for a pattern that is written out.
pub(super) fn matches_text(pattern: &str, text: &str) -> bool {
    let pattern: Vec<Atom> = atoms(pattern).collect();
    matches(&pattern, text)
}

/// The same, with the steps that it took. After each `*` the shortest run that lets the rest match
/// is found by moving on a character at a time; a later `*` settles what came before it for good.
fn matches_counting(pattern: &[Atom], text: &str, steps: &mut usize) -> bool {
    let least = pattern.iter().filter(|atom| **atom != Atom::Many).count();
    if least > text.len() {
        return false;
    }
    let text = text.as_bytes();
    let (mut at, mut place) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while place < text.len() {
        *steps += 1;
        match pattern.get(at) {
            Some(Atom::Byte(byte)) if *byte == text[place] => (at, place) = (at + 1, place + 1),
            Some(Atom::One) => (at, place) = (at + 1, next_character(text, place)),
            Some(Atom::Many) => {
                star = Some((at + 1, place));
                at += 1;
            }
            _ => {
                let Some((after, from)) = star else { return false };
                let from = next_character(text, from);
                star = Some((after, from));
                (at, place) = (after, from);
            }
        }
    }
    pattern[at..].iter().all(|atom| *atom == Atom::Many)
}

/// Whether some text that begins with `beginning`, and goes on, is one that `pattern` stands for.
/// All the places in the pattern that reading `beginning` may lead to are kept at once.
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
    // Whatever the rest of a pattern is, some text is what it stands for.
    places[..pattern.len()].contains(&true)
}

/// A star may stand for nothing.
fn pass_stars(pattern: &[Atom], places: &mut [bool]) {
    for (at, atom) in pattern.iter().enumerate() {
        if places[at] && *atom == Atom::Many {
            places[at + 1] = true;
        }
    }
}

/// Where the character after the one at `place` begins.
fn next_character(text: &[u8], place: usize) -> usize {
    let rest = &text[place + 1..];
    place + 1 + rest.iter().take_while(|byte| **byte & 0xC0 == 0x80).count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What matching means, by its definition.
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
        for pattern in ["a*".repeat(500) + "b", format!("*{}b", "a".repeat(511)), "*a?".repeat(300)]
        {
            let atoms: Vec<Atom> = atoms(&pattern).collect();
            let mut steps = 0;
            matches_counting(&atoms, &text, &mut steps);
            assert!(steps <= atoms.len() * (text.len() + 1), "{steps} for {}", atoms.len());
        }
        let long: Vec<Atom> = atoms(&("*".to_owned() + &"a".repeat(20_000))).collect();
        let mut steps = 0;
        assert!(!matches_counting(&long, &text, &mut steps));
        assert_eq!(steps, 0);
    }

    #[test]
    fn texts_that_go_on_are_told() {
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
        }

        #[test]
        fn steps_are_bounded(pattern in "[ab*?]{0,40}", text in "[ab]{0,60}") {
            let atoms: Vec<Atom> = atoms(&pattern).collect();
            let mut steps = 0;
            matches_counting(&atoms, &text, &mut steps);
            prop_assert!(steps <= (atoms.len() + 1) * (text.len() + 1));
        }
    }
}
