//! JSON for policies: a name that occurs twice in one object is an error, as its value would be
//! ambiguous.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// A JSON value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Json {
    Null,
    Text(String),
    /// As text.
    Number(String),
    Flag(bool),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
}

impl Json {
    /// Reads a document.
    ///
    /// # Errors
    /// The document is invalid, or a name occurs twice in an object.
    pub(super) fn parse(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// Texts of a value: one text, or a list of texts that isn't empty.
    pub(super) fn texts(&self) -> Option<Vec<&str>> {
        match self {
            Self::Text(text) => Some(vec![text]),
            Self::List(list) if !list.is_empty() => list
                .iter()
                .map(|item| match item {
                    Self::Text(text) => Some(text.as_str()),
                    _ => None,
                })
                .collect(),
            _ => None,
        }
    }

    /// Values of a condition: texts, numbers and flags, alone or in a list that isn't empty.
    pub(super) fn scalars(&self) -> Option<Vec<String>> {
        match self {
            Self::Text(text) | Self::Number(text) => Some(vec![text.clone()]),
            Self::Flag(flag) => Some(vec![flag.to_string()]),
            Self::List(list) if !list.is_empty() => {
                let items = list.iter().map(|item| match item {
                    Self::List(_) => None,
                    item => item.scalars()?.pop(),
                });
                items.collect()
            }
            _ => None,
        }
    }

    /// Members of an object.
    pub(super) fn members(&self) -> Option<&[(String, Json)]> {
        match self {
            Self::Object(members) => Some(members),
            _ => None,
        }
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(JsonVisitor)
    }
}

struct JsonVisitor;

impl<'de> Visitor<'de> for JsonVisitor {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E: Error>(self, flag: bool) -> Result<Json, E> {
        Ok(Json::Flag(flag))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Json, E> {
        Ok(Json::Number(number.to_string()))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Json, E> {
        Ok(Json::Number(number.to_string()))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Json, E> {
        Ok(Json::Number(number.to_string()))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Json, E> {
        Ok(Json::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Json, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = access.next_element()? {
            list.push(item);
        }
        Ok(Json::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Json, A::Error> {
        let mut members: Vec<(String, Json)> = Vec::new();
        while let Some((name, value)) = access.next_entry::<String, Json>()? {
            if members.iter().any(|(other, _)| *other == name) {
                return Err(A::Error::custom("duplicate name"));
            }
            members.push((name, value));
        }
        Ok(Json::Object(members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_once() {
        assert!(Json::parse(r#"{"a": 1, "a": 2}"#).is_err());
        assert!(Json::parse(r#"[{"b": {"a": 1, "\u0061": 2}}]"#).is_err());
        let members = vec![("a".to_owned(), Json::Null), ("A".to_owned(), Json::Flag(true))];
        assert_eq!(Json::parse(r#"{"a": null, "A": true}"#).unwrap(), Json::Object(members));
    }

    #[test]
    fn one_is_as_good_as_a_list_of_one() {
        let texts = |text: &str| {
            let json = Json::parse(text).unwrap();
            json.texts().map(|texts| texts.join(","))
        };
        assert_eq!(texts(r#""a""#).as_deref(), Some("a"));
        assert_eq!(texts(r#"["a", "b"]"#).as_deref(), Some("a,b"));
        assert_eq!((texts("[]"), texts("1"), texts(r#"["a", 1]"#)), (None, None, None));
        let scalars = |text: &str| Json::parse(text).unwrap().scalars();
        assert_eq!(scalars("[true, 10, \"x\", 1.5]").unwrap(), ["true", "10", "x", "1.5"]);
        assert_eq!((scalars("[[1]]"), scalars("{}"), scalars("null")), (None, None, None));
    }

    #[test]
    fn malformed_or_deeply_nested_json_is_refused() {
        for text in ["", "{", "{} x", "{'a': 1}", "nan"] {
            assert!(Json::parse(text).is_err(), "{text}");
        }
        assert!(Json::parse(&("[".repeat(10_000) + &"]".repeat(10_000))).is_err());
    }
}
