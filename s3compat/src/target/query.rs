//! The query of a request: pairs, decoded once, with their raw bytes.

use std::borrow::Cow;

use super::path::{decode, push_encoded};
use crate::messages;
use crate::refusal::Refusal;

/// A name and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair<'a> {
    /// The pair as it came.
    pub raw: &'a str,
    /// Name, decoded.
    pub name: Cow<'a, str>,
    /// Value, decoded; empty without a `=`.
    pub value: Cow<'a, str>,
}

/// The query of a request. Names are unique.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query<'a>(Vec<Pair<'a>>);

/// Maximum number of pairs: more than any operation takes, hoisted headers included.
const PAIRS_MAX: usize = 128;

impl<'a> Query<'a> {
    /// Parses a raw query.
    pub fn parse(raw: &'a str) -> Result<Self, Refusal> {
        let mut pairs: Vec<Pair<'a>> = Vec::new();
        for raw in raw.split('&').filter(|raw| !raw.is_empty()) {
            let (name, value) = raw.split_once('=').unwrap_or((raw, ""));
            let pair = Pair { raw, name: decode(name, true)?, value: decode(value, true)? };
            if pairs.len() == PAIRS_MAX {
                return Err(messages::QUERY_KEYS.refusal());
            }
            if pairs.iter().any(|other| other.name == pair.name) {
                return Err(messages::QUERY_KEY_TWICE.named(pair.name));
            }
            pairs.push(pair);
        }
        Ok(Self(pairs))
    }

    /// Value of `name`, in exactly this spelling.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.pair(name).map(|pair| &*pair.value)
    }

    fn pair(&self, name: &str) -> Option<&Pair<'a>> {
        self.0.iter().find(|pair| pair.name == name)
    }

    /// All pairs, in the order they came.
    pub fn pairs(&self) -> &[Pair<'a>] {
        &self.0
    }

    /// Keeps only the pairs with names that `is_kept` accepts.
    pub(crate) fn retain(&mut self, is_kept: impl Fn(&str) -> bool) {
        self.0.retain(|pair| is_kept(&pair.name));
    }

    /// The query as it came, without pairs that were removed.
    pub(crate) fn to_raw(&self) -> String {
        let mut raw = String::new();
        for pair in self.pairs() {
            push_separator(&mut raw);
            raw.push_str(pair.raw);
        }
        raw
    }

    /// Appends the canonical form: encoded by S3's rule, sorted, without the signature itself.
    pub(crate) fn push_canonical(&self, out: &mut String) {
        let signed = self.0.iter().filter(|pair| pair.name != "X-Amz-Signature");
        let mut encoded: Vec<(Cow<'_, str>, Cow<'_, str>)> =
            signed.map(|pair| (canonical(&pair.name), canonical(&pair.value))).collect();
        encoded.sort_unstable();
        for (at, (name, value)) in encoded.iter().enumerate() {
            if at > 0 {
                out.push('&');
            }
            out.push_str(name);
            out.push('=');
            out.push_str(value);
        }
    }
}

/// A query whose value of `name` is another.
pub(crate) fn with_pair(query: &Query<'_>, name: &str, value: &str) -> String {
    let mut raw = String::new();
    for pair in query.pairs() {
        push_separator(&mut raw);
        if pair.name == name {
            push_encoded(&mut raw, name);
            raw.push('=');
            push_encoded(&mut raw, value);
        } else {
            raw.push_str(pair.raw);
        }
    }
    raw
}

/// Separates the next pair of a query from those before it.
fn push_separator(raw: &mut String) {
    if !raw.is_empty() {
        raw.push('&');
    }
}

fn canonical(text: &str) -> Cow<'_, str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    if text.bytes().all(is_plain) {
        return Cow::Borrowed(text);
    }
    let mut encoded = String::with_capacity(text.len() * 2);
    push_encoded(&mut encoded, text);
    Cow::Owned(encoded)
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::refusal::Code;

    fn canonical_form(raw: &str) -> String {
        let mut out = String::new();
        Query::parse(raw).unwrap().push_canonical(&mut out);
        out
    }

    #[test]
    fn the_canonical_form_is_sorted_and_encoded() {
        assert_eq!(canonical_form("prefix=J&max-keys=2"), "max-keys=2&prefix=J");
        assert_eq!(canonical_form("lifecycle"), "lifecycle=");
        assert_eq!(canonical_form("b=a+b&a=%7e%2f*"), "a=~%2F%2A&b=a%20b");
        assert_eq!(canonical_form("X-Amz-Signature=f00&a=1&&"), "a=1");
        assert_eq!(canonical_form("a=b=c"), "a=b%3Dc");
        // Sorted by encoded name, not by the pair as one string.
        assert_eq!(canonical_form("a-b=2&a=1"), "a=1&a-b=2");
    }

    #[test]
    fn a_name_comes_once() {
        let refused = Query::parse("list-type=2&list%2Dtype=1").unwrap_err();
        assert_eq!(refused.code, Code::InvalidArgument);
        assert_eq!(Query::parse("a=%ff").unwrap_err().code, Code::InvalidUri);
        let many = (0..200).map(|at| format!("p{at}=")).collect::<Vec<_>>().join("&");
        assert_eq!(Query::parse(&many).unwrap_err().code, Code::InvalidArgument);
    }

    #[test]
    fn pairs_that_are_left_stay_as_they_came() {
        let mut query = Query::parse("x-id=Get&prefix=a%40b&&x&x-id2=").unwrap();
        query.retain(|name| name != "x-id");
        assert_eq!(query.to_raw(), "prefix=a%40b&x&x-id2=");
        query.retain(|_| false);
        assert_eq!(query.to_raw(), "");
    }

    #[test]
    fn one_value_is_replaced_and_the_rest_stays() {
        let query = Query::parse("list-type=2&prefix=a%40b&x").unwrap();
        assert_eq!(with_pair(&query, "prefix", "c d/&"), "list-type=2&prefix=c%20d%2F%26&x");
        assert_eq!(with_pair(&query, "none", "x"), "list-type=2&prefix=a%40b&x");
    }
}
