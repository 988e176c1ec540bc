//! Names of the files in an index of shards: `model.safetensors.index.json`.
//!
//! Only the values of `weight_map` count. Keys and other members are passed over, not kept, so the memory is
//! that of the distinct names, whose number and length are bounded.

use std::collections::BTreeSet;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};

use super::pickle::{NAME_BYTES_MAX, NAMES_MAX};

/// An index, of which only the files count.
#[derive(Deserialize)]
struct ShardIndex {
    weight_map: ShardNames,
}

/// Distinct values of a map of texts.
struct ShardNames(BTreeSet<String>);

/// Names of the files in an index.
///
/// # Errors
/// The index isn't JSON, has no `weight_map` of texts, or names more than 100,000 files, or one that no
/// object can have.
pub(super) fn shards_in(index: &[u8]) -> Result<BTreeSet<String>, serde_json::Error> {
    let index: ShardIndex = serde_json::from_slice(index)?;
    Ok(index.weight_map.0)
}

impl<'de> Deserialize<'de> for ShardNames {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(WeightMap)
    }
}

struct WeightMap;

impl<'de> Visitor<'de> for WeightMap {
    type Value = ShardNames;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of weights to files")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ShardNames, A::Error> {
        let mut names = BTreeSet::new();
        while map.next_key::<IgnoredAny>()?.is_some() {
            map.next_value_seed(AddName(&mut names))?;
        }
        Ok(ShardNames(names))
    }
}

/// Adds one name to those before.
struct AddName<'a>(&'a mut BTreeSet<String>);

impl<'de> DeserializeSeed<'de> for AddName<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for AddName<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a file")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<(), E> {
        if name.len() > NAME_BYTES_MAX {
            return Err(E::custom(format_args!("a name has more than {NAME_BYTES_MAX} bytes")));
        }
        if !self.0.contains(name) {
            if self.0.len() == NAMES_MAX {
                return Err(E::custom(format_args!("the index names more than {NAMES_MAX} files")));
            }
            self.0.insert(name.to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use proptest::prelude::*;

    use super::*;

    /// An index of so many weights, whose files `name` gives.
    fn index(weights: usize, name: impl Fn(usize) -> String) -> String {
        let mut text =
            r#"{"metadata": {"total_size": [1, {"a": null}]}, "weight_map": {"#.to_owned();
        for at in 0..weights {
            let comma = if at == 0 { "" } else { "," };
            write!(text, r#"{comma}"w{at}":"{}""#, name(at)).unwrap();
        }
        text + "}}"
    }

    fn refusal(text: &str) -> String {
        shards_in(text.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn names_are_the_distinct_values_of_the_map() {
        let names = shards_in(index(5, |at| format!("{}\\u002e\\u0073t", at % 2)).as_bytes());
        assert_eq!(names.unwrap().into_iter().collect::<Vec<_>>(), ["0.st", "1.st"]);
        assert!(shards_in(index(0, |_| String::new()).as_bytes()).unwrap().is_empty());
    }

    #[test]
    fn a_million_weights_of_one_file_are_one_name() {
        let names = shards_in(index(1_000_000, |_| "1.st".into()).as_bytes()).unwrap();
        assert_eq!(names.into_iter().collect::<Vec<_>>(), ["1.st"]);
    }

    #[test]
    fn the_number_and_length_of_names_are_bounded() {
        let whole = index(NAMES_MAX, |at| at.to_string());
        assert_eq!(shards_in(whole.as_bytes()).unwrap().len(), NAMES_MAX);
        let why = refusal(&index(1_000_000, |at| at.to_string()));
        assert!(why.starts_with("the index names more than 100000 files"), "{why}");
        assert!(shards_in(index(1, |_| "x".repeat(NAME_BYTES_MAX)).as_bytes()).is_ok());
        let why = refusal(&index(1, |_| "x".repeat(NAME_BYTES_MAX + 1)));
        assert!(why.starts_with("a name has more than 1024 bytes"), "{why}");
    }

    #[test]
    fn other_documents_are_no_index() {
        for text in [
            "",
            "{}",
            "[]",
            r#"{"weight_map": ["a"]}"#,
            r#"{"weight_map": {"a": 1}}"#,
            r#"{"weight_map": {"a": "b"}"#,
            r#"{"weight_map": {"a": "b"}} x"#,
            r#"{"weight_map": {}, "weight_map": {}}"#,
        ] {
            assert!(shards_in(text.as_bytes()).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_end(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = shards_in(&bytes);
        }
    }
}
