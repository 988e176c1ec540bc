//! Policy document of a form: its expiration, and the fields that its signer allows.

use std::ops::RangeInclusive;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::fields::Fields;
use crate::date::Timestamp;
use crate::messages;
use crate::refusal::Refusal;

/// Fields that no condition needs to name.
const FREE: [&str; 5] = ["awsaccesskeyid", "file", "policy", "signature", "x-amz-signature"];
/// Prefixes of fields that no condition needs to name. A checksum only describes the file, which
/// its sender could choose to match.
const IGNORED: [&str; 2] = ["x-ignore-", "x-amz-checksum-"];

/// Permissions that the signer of a form gives.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FormPolicy {
    expiration: Timestamp,
    conditions: Vec<FormCondition>,
}

#[derive(Debug, PartialEq, Eq)]
enum FormCondition {
    Equals {
        name: String,
        value: String,
    },
    StartsWith {
        name: String,
        start: String,
    },
    /// A condition that names no field: no form fulfils it.
    Never {
        written: String,
    },
    Length(RangeInclusive<u64>),
}

impl FormPolicy {
    /// Parses the field `policy`.
    pub(super) fn parse(encoded: &str) -> Result<Self, Refusal> {
        let encoded: String = encoded.chars().filter(|char| !char.is_ascii_whitespace()).collect();
        let document = STANDARD.decode(encoded).map_err(|_| invalid("it is not base64"))?;
        let document: Map<String, Value> =
            serde_json::from_slice(&document).map_err(|_| invalid("it is not a JSON object"))?;
        if let Some(name) =
            document.keys().find(|name| !["expiration", "conditions"].contains(&name.as_str()))
        {
            return Err(invalid(&format!("Unexpected: '{name}'")));
        }
        let expiration = document.get("expiration").and_then(Value::as_str);
        let expiration = expiration.ok_or_else(|| invalid("Policy missing expiration."))?;
        let expiration = Timestamp::parse_iso(expiration)
            .ok_or_else(|| invalid(&format!("Invalid 'expiration' value: '{expiration}'")))?;
        let conditions = document.get("conditions").and_then(Value::as_array);
        let conditions = conditions.ok_or_else(|| invalid("Policy missing conditions."))?;
        let conditions = conditions.iter().map(FormCondition::parse).collect::<Result<_, _>>()?;
        Ok(Self { expiration, conditions })
    }

    /// Checks the fields at time `now`. Returns the length that the file may have, in bytes.
    pub(super) fn check(
        &self,
        fields: &Fields,
        bucket: &str,
        now: Timestamp,
    ) -> Result<RangeInclusive<u64>, Refusal> {
        if now > self.expiration {
            return Err(denied("Policy expired."));
        }
        let value_of = |name: &str| if name == "bucket" { Some(bucket) } else { fields.get(name) };
        let (mut least, mut most) = (0, u64::MAX);
        for condition in &self.conditions {
            let holds = match condition {
                FormCondition::Equals { name, value } => value_of(name) == Some(value),
                FormCondition::StartsWith { name, start } => {
                    starts_with(name, value_of(name).unwrap_or_default(), start)
                }
                FormCondition::Never { .. } => false,
                FormCondition::Length(range) => {
                    (least, most) = (least.max(*range.start()), most.min(*range.end()));
                    true
                }
            };
            if !holds {
                return Err(denied(&format!("Policy Condition failed: {}", condition.written())));
            }
        }
        // The bucket counts as a field of every form.
        let names = fields.names().chain(["bucket"]);
        let uncovered: Vec<&str> = names.filter(|name| !self.covers(name)).collect();
        if !uncovered.is_empty() {
            return Err(denied(&format!("Extra input fields: {}", uncovered.join(", "))));
        }
        Ok(least..=most)
    }

    fn covers(&self, field: &str) -> bool {
        FREE.contains(&field)
            || IGNORED.iter().any(|start| field.starts_with(start))
            || self.conditions.iter().any(|condition| match condition {
                FormCondition::Equals { name, .. } | FormCondition::StartsWith { name, .. } => {
                    name == field
                }
                FormCondition::Length(_) | FormCondition::Never { .. } => false,
            })
    }
}

/// Returns true if a field begins with `start`. A Content-Type may be a list: all items must.
fn starts_with(name: &str, value: &str, start: &str) -> bool {
    if name == "content-type" {
        value.split(',').all(|one| one.trim().starts_with(start))
    } else {
        value.starts_with(start)
    }
}

impl FormCondition {
    fn parse(value: &Value) -> Result<Self, Refusal> {
        match value {
            Value::Object(pair) => Self::parse_pair(pair),
            Value::Array(list) => Self::parse_list(list),
            _ => Err(invalid("a condition is neither a list nor an object")),
        }
    }

    fn parse_pair(pair: &Map<String, Value>) -> Result<Self, Refusal> {
        let mut pairs = pair.iter();
        match (pairs.next(), pairs.next()) {
            (Some((name, Value::String(value))), None) => {
                Ok(Self::Equals { name: name.to_ascii_lowercase(), value: value.clone() })
            }
            _ => Err(invalid("Invalid Simple-Condition: it needs one name and its text")),
        }
    }

    fn parse_list(list: &[Value]) -> Result<Self, Refusal> {
        let [operator, first, second] = list else {
            return Err(invalid("a condition needs an operator and two arguments"));
        };
        let operator = operator.as_str().unwrap_or_default().to_ascii_lowercase();
        if operator == "content-length-range" {
            return match (number(first), number(second)) {
                (Some(least), Some(most)) => Ok(Self::Length(least..=most)),
                _ => Err(invalid("content-length-range needs two numbers")),
            };
        }
        let (Some(name), Some(text)) = (first.as_str(), second.as_str()) else {
            return Err(invalid("a condition needs a field's name after '$', and a text"));
        };
        let field = name.strip_prefix('$');
        let (name, text) = (field.unwrap_or_default().to_ascii_lowercase(), text.to_owned());
        match operator.as_str() {
            "eq" | "starts-with" if field.is_none() => {
                Ok(Self::Never { written: Value::from(list).to_string() })
            }
            "eq" => Ok(Self::Equals { name, value: text }),
            "starts-with" => Ok(Self::StartsWith { name, start: text }),
            _ => Err(invalid("a condition has an unknown operator")),
        }
    }

    /// Condition as in S3's errors.
    fn written(&self) -> String {
        let list = |operator: &str, name: &str, text: &str| {
            Value::from(vec![operator.to_owned(), format!("${name}"), text.to_owned()]).to_string()
        };
        match self {
            Self::Equals { name, value } => list("eq", name, value),
            Self::StartsWith { name, start } => list("starts-with", name, start),
            Self::Never { written } => written.clone(),
            Self::Length(_) => "content-length-range".to_owned(),
        }
    }
}

/// Parses a number, which some clients send as a string.
fn number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

fn invalid(what: &str) -> Refusal {
    messages::FORM_POLICY.with_subject(what)
}

fn denied(what: &str) -> Refusal {
    messages::FORM_DENIED.with_subject(what)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::refusal::Code;

    fn parse(document: &Value) -> Result<FormPolicy, Code> {
        FormPolicy::parse(&STANDARD.encode(document.to_string())).map_err(|refusal| refusal.code)
    }

    fn with(conditions: &Value) -> Result<FormPolicy, Code> {
        parse(&json!({"expiration": "2100-01-01T00:00:00.000Z", "conditions": conditions}))
    }

    fn check(conditions: &Value, form: &[(&str, &str)]) -> Result<RangeInclusive<u64>, Code> {
        let mut fields = Fields::default();
        for (name, value) in form {
            fields.push(name, value.as_bytes()).unwrap();
        }
        with(conditions)?
            .check(&fields, "b", Timestamp::from_unix_ms(0))
            .map_err(|refusal| refusal.code)
    }

    #[test]
    fn conditions_have_three_forms_and_no_case() {
        let conditions = json!([
            {"bUcKeT": "b"},
            ["StArTs-WiTh", "$KeY", "u/"],
            ["eq", "$Content-Type", "text/plain"],
            ["content-length-range", 1, "1024"],
        ]);
        let form = [("kEy", "u/k"), ("content-TYPE", "text/plain"), ("policy", "x")];
        assert_eq!(check(&conditions, &form), Ok(1..=1024));
        let other = [("key", "U/k"), ("content-type", "text/plain")];
        assert_eq!(check(&conditions, &other), Err(Code::AccessDenied), "values have case");
        assert_eq!(check(&conditions, &form[..1]), Err(Code::AccessDenied), "a field is missing");
    }

    #[test]
    fn every_field_must_be_spoken_of_and_so_must_the_bucket() {
        let conditions = json!([{"bucket": "b"}, ["starts-with", "$key", ""]]);
        let form = [
            ("key", "k"),
            ("x-ignore-me", "1"),
            ("x-amz-checksum-sha256", "c"),
            ("signature", "s"),
        ];
        assert!(check(&conditions, &form).is_ok());
        let more = [("key", "k"), ("acl", "private")];
        assert_eq!(check(&conditions, &more), Err(Code::AccessDenied));
        assert_eq!(check(&json!([["eq", "$key", "k"]]), &[("key", "k")]), Err(Code::AccessDenied));
        let elsewhere = json!([{"bucket": "other"}, {"key": "k"}]);
        let said = [("key", "k"), ("bucket", "other")];
        assert_eq!(check(&elsewhere, &said), Err(Code::AccessDenied), "the URL names the bucket");
    }

    #[test]
    fn any_text_may_be_none() {
        let with = |last: Value| json!([{"bucket": "b"}, {"key": "k"}, last]);
        let form = [("key", "k")];
        assert!(check(&with(json!(["starts-with", "$acl", ""])), &form).is_ok());
        for needed in [json!(["starts-with", "$acl", "p"]), json!(["eq", "$acl", ""])] {
            assert_eq!(check(&with(needed), &form), Err(Code::AccessDenied));
        }
    }

    #[test]
    fn a_list_of_types_holds_as_a_whole_and_a_name_without_a_sign_never() {
        let conditions =
            json!([{"bucket": "b"}, {"key": "k"}, ["starts-with", "$content-type", "text/"]]);
        let form = |types| [("key", "k"), ("content-type", types)];
        assert!(check(&conditions, &form("text/plain, text/html")).is_ok());
        assert_eq!(check(&conditions, &form("text/plain,image/png")), Err(Code::AccessDenied));
        let nameless = json!([{"bucket": "b"}, {"key": "k"}, ["eq", "key", "k"]]);
        assert_eq!(check(&nameless, &[("key", "k")]), Err(Code::AccessDenied));
    }

    #[test]
    fn of_several_lengths_all_must_hold() {
        let conditions = json!([
            {"bucket": "b"},
            ["content-length-range", 0, 10],
            ["content-length-range", 5, 20],
        ]);
        assert_eq!(check(&conditions, &[]), Ok(5..=10));
    }

    #[test]
    fn a_policy_expires() {
        let policy =
            parse(&json!({"expiration": "1970-01-01T00:00:01Z", "conditions": [{"bucket": "b"}]}));
        let at = |ms| {
            policy.as_ref().unwrap().check(&Fields::default(), "b", Timestamp::from_unix_ms(ms))
        };
        assert!(at(1000).is_ok());
        assert_eq!(at(1001).unwrap_err().code, Code::AccessDenied);
    }

    #[test]
    fn documents_that_are_none_are_refused() {
        let date = "2100-01-01T00:00:00Z";
        for document in [
            json!([]),
            json!({"conditions": []}),
            json!({"expiration": date}),
            json!({"EXPIRATION": date, "conditions": []}),
            json!({"expiration": date, "CONDITIONS": []}),
            json!({"expiration": "2100-01-01 00:00:00+00:00", "conditions": []}),
            json!({"expiration": 4_102_444_800_u64, "conditions": []}),
        ] {
            assert_eq!(parse(&document), Err(Code::InvalidPolicyDocument), "{document}");
        }
        for condition in [
            json!({}),
            json!({"a": 1}),
            json!({"a": "1", "b": "2"}),
            json!("a"),
            json!(["like", "$key", "k"]),
            json!(["content-length-range", 0]),
            json!(["content-length-range", -1, 0]),
        ] {
            assert_eq!(with(&json!([condition])), Err(Code::InvalidPolicyDocument), "{condition}");
        }
        assert_eq!(FormPolicy::parse("%").unwrap_err().code, Code::InvalidPolicyDocument);
    }
}
