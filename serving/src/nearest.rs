//! Nearest known name of a misspelt one.

use strsim::damerau_levenshtein;

/// Letters of a word from which it may be the beginning of a longer name.
const BEGINNING_MIN: usize = 4;

/// Returns the name nearest to `word`, at most two edits away, or a third of its letters. An edit
/// adds, removes or replaces a letter, or swaps two; all letters that are missing at the end count as
/// two edits. Of equally near names the first wins.
pub fn nearest<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let most = (word.chars().count() / 3).max(2);
    let is_beginning = |name: &str| word.len() >= BEGINNING_MIN && name.starts_with(word);
    let edits = |name: &str| match damerau_levenshtein(word, name) {
        edits if is_beginning(name) => edits.min(2),
        edits => edits,
    };
    let near = names.into_iter().map(|name| (edits(name), name));
    near.filter(|(edits, _)| *edits <= most).min_by_key(|(edits, _)| *edits).map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_finds_its_name_and_another_word_finds_none() {
        let names = ["s3_address", "data_address", "log", "log_format", "memory"];
        let of = |word: &str| nearest(word, names);
        assert_eq!(of("s3_adress"), Some("s3_address"));
        assert_eq!(of("data_addres"), Some("data_address"));
        assert_eq!(of("logg"), Some("log"));
        assert_eq!(of("log_fromat"), Some("log_format"));
        assert_eq!(of("data"), Some("data_address"));
        assert_eq!(of("port"), None);
        assert_eq!(nearest("x", []), None);
    }
}
