//! Conditions of a statement: all must hold.

use super::connection_needs::ConnectionNeeds;
use super::context::Context;
use super::json::Json;
use super::key::{Key, ValueSource};
use super::malformed::MalformedPolicy;
use super::operator::{Comparator, ConditionValue, Operator, Quantifier};

/// One line of a condition: an operator, a key, and values of which one must match.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Condition {
    operator: Operator,
    key: Key,
    expected: Vec<ConditionValue>,
}

/// Keys that S3 considers a limit on requesters when they are compared with fixed values.
const LIMITING: [&str; 4] = [
    "aws:SourceAccount",
    "aws:SourceArn",
    "aws:userid",
    "s3:x-amz-server-side-encryption-aws-kms-key-id",
];

impl Condition {
    /// Reads the element `Condition` of a statement.
    pub(super) fn parse_all(
        json: &Json,
        has_variables: bool,
    ) -> Result<Vec<Self>, MalformedPolicy> {
        Self::parse_all_by(json, has_variables, &Key::parse)
    }

    /// As [`Self::parse_all`], with keys read by `read_key`.
    pub(super) fn parse_all_by(
        json: &Json,
        has_variables: bool,
        read_key: &dyn Fn(&str) -> Option<Key>,
    ) -> Result<Vec<Self>, MalformedPolicy> {
        let syntax = || MalformedPolicy::new("Invalid policy syntax.");
        let mut conditions = Vec::new();
        for (operator, keys) in json.members().ok_or_else(syntax)? {
            let operator = Operator::parse(operator)?;
            for (key, values) in keys.members().ok_or_else(syntax)? {
                let values = values.scalars().ok_or_else(syntax)?;
                let key = read_key(key);
                conditions.push(Self::parse(operator, key, &values, has_variables)?);
            }
        }
        Ok(conditions)
    }

    fn parse(
        operator: Operator,
        key: Option<Key>,
        values: &[String],
        has_variables: bool,
    ) -> Result<Self, MalformedPolicy> {
        let key = key
            .filter(|key| operator.takes(key.row.kind))
            .ok_or_else(|| MalformedPolicy::new("Policy has an invalid condition key"))?;
        let expected = values.iter().map(|value| operator.expect(value, has_variables));
        Ok(Self { operator, key, expected: expected.collect::<Result<_, _>>()? })
    }

    /// True if the condition holds for a request. For parts of an upload, keys that were judged
    /// when the upload began hold in Allow statements and fail in Deny statements.
    pub(super) fn holds(&self, context: &Context, is_allowing: bool) -> bool {
        if context.is_settled(&self.key) {
            return is_allowing;
        }
        let said = context.get(&self.key);
        let Operator { quantifier, test, is_negated, if_exists } = self.operator;
        if test == Comparator::Absent {
            return self.expected.contains(&ConditionValue::Flag(said.is_empty()));
        }
        if said.is_empty() && if_exists {
            return true;
        }
        let is_met = |said: &String| {
            self.expected.iter().any(|expected| self.operator.meets(said, expected, context))
        };
        match quantifier {
            // Without values, a negated test and `ForAllValues` hold; the other tests fail.
            None if is_negated => !said.iter().any(is_met),
            None => said.iter().any(is_met),
            Some(Quantifier::Any) => said.iter().any(|said| is_met(said) != is_negated),
            Some(Quantifier::All) => said.iter().all(|said| is_met(said) != is_negated),
        }
    }

    /// True if the condition restricts requesters to fixed principals, or to networks that aren't
    /// broad.
    pub(super) fn limits_requesters(&self) -> bool {
        let Operator { quantifier, is_negated, if_exists, .. } = self.operator;
        if is_negated || if_exists || quantifier == Some(Quantifier::All) {
            return false;
        }
        let is_limiting = LIMITING.contains(&self.key.row.name);
        self.expected.iter().all(|expected| match expected {
            ConditionValue::Network(network) => !network.is_broad(),
            ConditionValue::Text(template) => is_limiting && template.is_fixed(),
            _ => false,
        })
    }

    /// True if evaluation needs the tags of the existing object.
    pub(super) fn reads_existing_tags(&self) -> bool {
        self.keys().any(|key| key.row.source == ValueSource::ExistingTag)
    }

    /// Properties of the connection that evaluation needs.
    pub(super) fn connection_needs(&self) -> ConnectionNeeds {
        self.keys().map(ConnectionNeeds::of_key).collect()
    }

    /// The key of the condition, and those in its variables.
    fn keys(&self) -> impl Iterator<Item = &Key> {
        let variables = self.expected.iter().flat_map(|expected| match expected {
            ConditionValue::Text(template) => std::slice::from_ref(template),
            ConditionValue::Arn(templates) => templates.as_slice(),
            _ => &[],
        });
        std::iter::once(&self.key).chain(variables.flat_map(super::template::Template::keys))
    }

    /// True if the condition limits the tags that a request may set.
    pub(super) fn reads_new_tags(&self) -> bool {
        matches!(self.key.row.source, ValueSource::RequestTag | ValueSource::RequestTagKeys)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conditions(text: &str) -> Vec<Condition> {
        Condition::parse_all(&Json::parse(text).unwrap(), true).unwrap()
    }

    fn holds(text: &str, context: &Context) -> bool {
        conditions(text).iter().all(|condition| condition.holds(context, true))
    }

    #[test]
    fn all_must_hold_and_one_value_is_enough() {
        let text = r#"{"StringEquals": {"s3:prefix": ["a/", "b/"], "s3:delimiter": "/"},
                       "NumericLessThanEquals": {"s3:max-keys": 10}}"#;
        let context = Context::default().with("s3:prefix", "b/").with("s3:delimiter", "/");
        assert!(holds(text, &context.clone().with("s3:max-keys", "10")));
        assert!(!holds(text, &context.clone().with("s3:max-keys", "11")));
        assert!(!holds(text, &context));
    }

    #[test]
    fn missing_keys_are_not_equal() {
        let none = Context::default();
        assert!(!holds(r#"{"StringEquals": {"s3:x-amz-acl": "private"}}"#, &none));
        assert!(holds(r#"{"StringNotEquals": {"s3:x-amz-acl": "private"}}"#, &none));
        assert!(holds(r#"{"StringEqualsIfExists": {"s3:x-amz-acl": "private"}}"#, &none));
        assert!(!holds(r#"{"Bool": {"aws:SecureTransport": true}}"#, &none));
        assert!(holds(r#"{"NotIpAddress": {"aws:SourceIp": "10.0.0.0/8"}}"#, &none));
        let null = |flag: &str| format!(r#"{{"Null": {{"s3:x-amz-acl": "{flag}"}}}}"#);
        assert!(holds(&null("true"), &none) && !holds(&null("false"), &none));
        let acl = Context::default().with("s3:x-amz-acl", "private");
        assert!(holds(&null("false"), &acl) && !holds(&null("true"), &acl));
        // None of several, not one of several.
        assert!(!holds(r#"{"StringNotEquals": {"s3:x-amz-acl": ["x", "private"]}}"#, &acl));
    }

    #[test]
    fn set_operators_need_all_or_any_values() {
        let mut context = Context::default();
        context.set_tags([("a", "1"), ("b", "2")]);
        let keys = |operator: &str, keys: &str| {
            format!(r#"{{"{operator}": {{"s3:RequestObjectTagKeys": {keys}}}}}"#)
        };
        assert!(holds(&keys("ForAllValues:StringEquals", r#"["a", "b", "c"]"#), &context));
        assert!(!holds(&keys("ForAllValues:StringEquals", r#"["a"]"#), &context));
        assert!(holds(&keys("ForAnyValue:StringEquals", r#"["a"]"#), &context));
        assert!(!holds(&keys("ForAnyValue:StringEquals", r#"["c"]"#), &context));
        assert!(holds(&keys("ForAnyValue:StringNotEquals", r#"["a"]"#), &context));
        assert!(!holds(&keys("ForAllValues:StringNotEquals", r#"["a"]"#), &context));
        let none = Context::default();
        assert!(holds(&keys("ForAllValues:StringEquals", r#"["a"]"#), &none));
        assert!(!holds(&keys("ForAnyValue:StringEquals", r#"["a"]"#), &none));
    }

    #[test]
    fn parts_of_an_upload_were_judged_when_it_began() {
        let [condition] = &conditions(r#"{"StringEquals": {"s3:x-amz-acl": "private"}}"#)[..]
        else {
            panic!("one condition")
        };
        let mut part = Context::default();
        assert!(!condition.holds(&part, true));
        part.set_part();
        assert!(condition.holds(&part, true) && !condition.holds(&part, false));
    }

    #[test]
    fn conditions_that_cannot_be_evaluated_are_refused() {
        for text in [
            r#"{"StringEquals": {"aws:SourceVpc": "vpc-1"}}"#,
            r#"{"NumericEquals": {"s3:prefix": "1"}}"#,
            r#"{"IpAddress": {"aws:UserAgent": "10.0.0.0/8"}}"#,
            r#"{"Bool": {"aws:SourceIp": "true"}}"#,
            r#"{"StringEquals": {"s3:prefix": []}}"#,
            r#"{"StringEquals": {"s3:prefix": {}}}"#,
            r#"{"StringEquals": "s3:prefix"}"#,
            r#"{"StringGuess": {"s3:prefix": "a"}}"#,
            "[]",
        ] {
            assert!(Condition::parse_all(&Json::parse(text).unwrap(), true).is_err(), "{text}");
        }
        assert!(conditions("{}").is_empty());
    }

    #[test]
    fn restricting_conditions_differ_from_those_that_any_request_meets() {
        let limits = |text: &str| conditions(text).iter().any(Condition::limits_requesters);
        assert!(limits(r#"{"IpAddress": {"aws:SourceIp": ["10.0.0.0/8", "192.0.2.1"]}}"#));
        assert!(limits(r#"{"StringLike": {"aws:userid": "bob"}}"#));
        for text in [
            r#"{"IpAddress": {"aws:SourceIp": ["10.0.0.0/8", "0.0.0.0/0"]}}"#,
            r#"{"NotIpAddress": {"aws:SourceIp": "10.0.0.0/8"}}"#,
            r#"{"IpAddressIfExists": {"aws:SourceIp": "10.0.0.0/8"}}"#,
            r#"{"ForAllValues:StringEquals": {"aws:userid": "bob"}}"#,
            r#"{"StringLike": {"aws:userid": "b*"}}"#,
            r#"{"StringEquals": {"aws:userid": "${aws:username}"}}"#,
            r#"{"StringEquals": {"aws:Referer": "https://example.com"}}"#,
        ] {
            assert!(!limits(text), "{text}");
        }
    }

    #[test]
    fn requested_tag_keys_are_found() {
        let of = |text: &str| {
            let all = conditions(text);
            let existing = all.iter().any(Condition::reads_existing_tags);
            (existing, all.iter().any(Condition::reads_new_tags))
        };
        assert_eq!(of(r#"{"StringEquals": {"s3:ExistingObjectTag/a": "1"}}"#), (true, false));
        assert_eq!(of(r#"{"StringEquals": {"s3:RequestObjectTag/a": "1"}}"#), (false, true));
        let variable = r#"{"StringEquals": {"aws:username": "${s3:ExistingObjectTag/owner}"}}"#;
        assert_eq!(of(variable), (true, false));
    }
}
