//! Operators of conditions: the kind of comparison, negation and quantifiers.

use std::cmp::Ordering;
use std::net::IpAddr;

use martlet_protocol::Network;
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;
use time::{Date, OffsetDateTime};

use super::context::Context;
use super::key::KeyType;
use super::malformed::MalformedPolicy;
use super::template::Template;

/// Bytes of a request's value that are read in one step.
const BYTES_PER_STEP: usize = 16;

/// An operator, with the prefix and suffix of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Operator {
    pub(super) quantifier: Option<Quantifier>,
    pub(super) test: Comparator,
    pub(super) is_negated: bool,
    /// True if a request without a value passes.
    pub(super) if_exists: bool,
}

/// Number of a request's values for which the test must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quantifier {
    Any,
    All,
}

/// Kind of comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparator {
    Text,
    TextInAnyCase,
    Pattern,
    Address,
    Flag,
    Number(Order),
    Date(Order),
    Arn,
    /// True if the request has no value.
    Absent,
}

/// Required order of the request's number relative to the policy's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Equal,
    Less,
    AtMost,
    Greater,
    AtLeast,
}

/// A parsed value of a condition.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ConditionValue {
    Text(Template),
    /// The six parts of an ARN.
    Arn(Vec<Template>),
    Network(Network),
    Flag(bool),
    Number(f64),
    /// Nanoseconds since 1970.
    Date(i128),
}

impl Operator {
    /// Reads the name of an operator.
    pub(super) fn parse(name: &str) -> Result<Self, MalformedPolicy> {
        let unknown = || MalformedPolicy::new(format!("Invalid condition type : {name}"));
        let (quantifier, rest) = match name.split_once(':') {
            None => (None, name),
            Some(("ForAnyValue", rest)) => (Some(Quantifier::Any), rest),
            Some(("ForAllValues", rest)) => (Some(Quantifier::All), rest),
            Some(_) => return Err(unknown()),
        };
        let (base, if_exists) = match rest.strip_suffix("IfExists") {
            Some(base) => (base, true),
            None => (rest, false),
        };
        let (test, is_negated) = test(base).ok_or_else(unknown)?;
        if test == Comparator::Absent && (quantifier.is_some() || if_exists) {
            return Err(unknown());
        }
        Ok(Self { quantifier, test, is_negated, if_exists })
    }

    /// True if the operator accepts keys of this kind. Any value can be compared as text.
    pub(super) fn takes(self, kind: KeyType) -> bool {
        match self.test {
            Comparator::Text
            | Comparator::TextInAnyCase
            | Comparator::Pattern
            | Comparator::Absent => true,
            Comparator::Address => kind == KeyType::Address,
            Comparator::Flag => kind == KeyType::Flag,
            Comparator::Number(_) => kind == KeyType::Number,
            Comparator::Date(_) => kind == KeyType::Date,
            Comparator::Arn => kind == KeyType::Arn,
        }
    }

    /// Reads a value for the operator.
    pub(super) fn expect(
        self,
        text: &str,
        has_variables: bool,
    ) -> Result<ConditionValue, MalformedPolicy> {
        let wrong = || MalformedPolicy::new(format!("Invalid value in a condition: {text}"));
        match self.test {
            Comparator::Text | Comparator::TextInAnyCase | Comparator::Pattern => {
                Template::parse(text, has_variables).map(ConditionValue::Text)
            }
            Comparator::Arn => {
                let parts = arn_parts(text).ok_or_else(wrong)?;
                let parts = parts.iter().map(|part| Template::parse(part, has_variables));
                parts.collect::<Result<_, _>>().map(ConditionValue::Arn)
            }
            Comparator::Address => {
                Network::parse(text).map(ConditionValue::Network).ok_or_else(wrong)
            }
            Comparator::Flag | Comparator::Absent => {
                flag(text).map(ConditionValue::Flag).ok_or_else(wrong)
            }
            Comparator::Number(_) => number(text).map(ConditionValue::Number).ok_or_else(wrong),
            Comparator::Date(_) => date(text).map(ConditionValue::Date).ok_or_else(wrong),
        }
    }

    /// True if a request's value meets the expected one, before negation. An unreadable value meets
    /// none. If no step is left, the result is void, and the request is to be denied.
    pub(super) fn meets(self, said: &str, expected: &ConditionValue, context: &Context) -> bool {
        if !context.spend(1 + said.len() / BYTES_PER_STEP) {
            return false;
        }
        match (self.test, expected) {
            (Comparator::Text, ConditionValue::Text(template)) => template.is(said, context),
            (Comparator::TextInAnyCase, ConditionValue::Text(template)) => {
                template.is_in_any_case(said, context)
            }
            (Comparator::Pattern, ConditionValue::Text(template)) => {
                template.matches(said, context)
            }
            (Comparator::Arn, ConditionValue::Arn(templates)) => {
                arn_parts(said).is_some_and(|parts| {
                    let mut pairs = templates.iter().zip(parts);
                    pairs.all(|(template, part)| template.matches(part, context))
                })
            }
            (Comparator::Address, ConditionValue::Network(network)) => {
                said.parse::<IpAddr>().is_ok_and(|address| network.contains(address))
            }
            (Comparator::Flag, ConditionValue::Flag(expected)) => flag(said) == Some(*expected),
            (Comparator::Number(order), ConditionValue::Number(expected)) => {
                let ordering = number(said).and_then(|said| said.partial_cmp(expected));
                ordering.is_some_and(|ordering| order.is(ordering))
            }
            (Comparator::Date(order), ConditionValue::Date(expected)) => {
                date(said).is_some_and(|said| order.is(said.cmp(expected)))
            }
            _ => false,
        }
    }
}

impl Order {
    fn is(self, ordering: Ordering) -> bool {
        match self {
            Self::Equal => ordering.is_eq(),
            Self::Less => ordering.is_lt(),
            Self::AtMost => ordering.is_le(),
            Self::Greater => ordering.is_gt(),
            Self::AtLeast => ordering.is_ge(),
        }
    }
}

/// Test of a name, and true if it is negated.
fn test(name: &str) -> Option<(Comparator, bool)> {
    let plain = |test| Some((test, false));
    let negated = |test| Some((test, true));
    match name {
        // Binary values are base64 in policies and in requests.
        "StringEquals" | "BinaryEquals" => plain(Comparator::Text),
        "StringNotEquals" => negated(Comparator::Text),
        "StringEqualsIgnoreCase" => plain(Comparator::TextInAnyCase),
        "StringNotEqualsIgnoreCase" => negated(Comparator::TextInAnyCase),
        "StringLike" => plain(Comparator::Pattern),
        "StringNotLike" => negated(Comparator::Pattern),
        "IpAddress" => plain(Comparator::Address),
        "NotIpAddress" => negated(Comparator::Address),
        "Bool" => plain(Comparator::Flag),
        "Null" => plain(Comparator::Absent),
        "ArnEquals" | "ArnLike" => plain(Comparator::Arn),
        "ArnNotEquals" | "ArnNotLike" => negated(Comparator::Arn),
        _ => {
            let (kind, order) = match name.strip_prefix("Numeric") {
                Some(order) => (Comparator::Number as fn(Order) -> Comparator, order),
                None => (Comparator::Date as fn(Order) -> Comparator, name.strip_prefix("Date")?),
            };
            let (order, is_negated) = match order {
                "Equals" => (Order::Equal, false),
                "NotEquals" => (Order::Equal, true),
                "LessThan" => (Order::Less, false),
                "LessThanEquals" => (Order::AtMost, false),
                "GreaterThan" => (Order::Greater, false),
                "GreaterThanEquals" => (Order::AtLeast, false),
                _ => return None,
            };
            Some((kind(order), is_negated))
        }
    }
}

/// The six parts of an ARN. Colons within a variable don't separate parts, and neither do colons
/// after the fifth.
fn arn_parts(text: &str) -> Option<Vec<&str>> {
    let (mut parts, mut start, mut is_inside) = (Vec::with_capacity(6), 0, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' if at > 0 && text.as_bytes()[at - 1] == b'$' => is_inside = true,
            b'}' => is_inside = false,
            b':' if !is_inside && parts.len() < 5 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    (parts.len() == 6).then_some(parts)
}

fn flag(text: &str) -> Option<bool> {
    let is = |word: &str| text.eq_ignore_ascii_case(word);
    (is("true") || is("false")).then(|| is("true"))
}

fn number(text: &str) -> Option<f64> {
    text.trim().parse().ok().filter(|number: &f64| number.is_finite())
}

/// Nanoseconds since 1970 of a time, a day, or a number of seconds since 1970.
fn date(text: &str) -> Option<i128> {
    if let Ok(seconds) = text.parse::<i64>() {
        return Some(i128::from(seconds) * 1_000_000_000);
    }
    let day = format_description!("[year]-[month]-[day]");
    let moment = OffsetDateTime::parse(text, &Rfc3339).ok();
    let moment = moment.or_else(|| Some(Date::parse(text, &day).ok()?.midnight().assume_utc()));
    moment.map(OffsetDateTime::unix_timestamp_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meets(operator: &str, expected: &str, said: &str) -> bool {
        let operator = Operator::parse(operator).unwrap();
        let expected = operator.expect(expected, true).unwrap();
        operator.meets(said, &expected, &Context::default().with("aws:username", "bob"))
    }

    #[test]
    fn names_are_read_with_what_surrounds_them() {
        let operator = Operator::parse("ForAllValues:StringNotLikeIfExists").unwrap();
        assert_eq!(operator.quantifier, Some(Quantifier::All));
        assert_eq!((operator.test, operator.is_negated), (Comparator::Pattern, true));
        assert!(operator.if_exists);
        for name in [
            "stringequals",
            "StringMatches",
            "ForEach:StringLike",
            "NullIfExists",
            "ForAnyValue:Null",
            "BinaryNotEquals",
            "Numeric",
            "DateBefore",
            "BoolNot",
            "",
        ] {
            let error = Operator::parse(name).unwrap_err().to_string();
            assert_eq!(error, format!("Invalid condition type : {name}"));
        }
    }

    #[test]
    fn texts_are_compared() {
        assert!(meets("StringEquals", "a*", "a*") && !meets("StringEquals", "a*", "ab"));
        assert!(!meets("StringEquals", "a", "A"));
        assert!(meets("StringEqualsIgnoreCase", "Ab", "aB"));
        assert!(meets("StringLike", "a*", "ab") && !meets("StringLike", "a*", "Ab"));
        assert!(meets("StringEquals", "x/${aws:username}", "x/bob"));
    }

    #[test]
    fn numbers_dates_and_flags_are_compared() {
        assert!(
            meets("NumericLessThanEquals", "10", "10") && !meets("NumericLessThan", "10", "10")
        );
        assert!(meets("NumericGreaterThan", "1.1", "1.2"));
        assert!(!meets("NumericEquals", "10", "ten"));
        assert!(meets("DateLessThan", "2026-01-02", "2026-01-01T23:59:59Z"));
        assert!(meets("DateGreaterThanEquals", "2026-01-01T00:00:00+01:00", "1767222000"));
        assert!(meets("Bool", "False", "false") && !meets("Bool", "true", "false"));
    }

    #[test]
    fn addresses_and_arns_are_compared() {
        assert!(meets("IpAddress", "192.0.2.0/24", "192.0.2.77"));
        assert!(!meets("IpAddress", "192.0.2.0/24", "nobody"));
        assert!(meets("ArnLike", "arn:aws:iam::*:user/b*", "arn:aws:iam::t:user/bob"));
        assert!(meets(
            "ArnEquals",
            "arn:aws:iam::t:user/${aws:username}",
            "arn:aws:iam::t:user/bob"
        ));
        // A star ends with its part.
        assert!(!meets("ArnLike", "arn:*:x:y:z:bob", "arn:aws:iam::t:user/bob"));
    }

    #[test]
    fn values_that_make_no_sense_are_refused() {
        for (operator, value) in [
            ("IpAddress", "10.0.0.0/99"),
            ("Bool", "yes"),
            ("Null", ""),
            ("NumericEquals", "NaN"),
            ("DateEquals", "tomorrow"),
            ("ArnLike", "*"),
            ("StringLike", "${aws:unheard}"),
        ] {
            assert!(Operator::parse(operator).unwrap().expect(value, true).is_err(), "{operator}");
        }
    }
}
