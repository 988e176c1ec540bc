//! Conditions of reads, writes and deletes, in S3's precedence (that of RFC 9110).

use martlet_protocol::entry::{KeyCondition, Object, Value};

use crate::api::{DeleteConditions, ETagCondition, ReadConditions, WriteConditions};
use crate::error::{Error, Result};

const IF_MATCH: &str = "If-Match";
const IF_MODIFIED: &str = "x-amz-if-match-last-modified-time";
const IF_SIZE: &str = "x-amz-if-match-size";

impl ETagCondition {
    fn holds(&self, object: &Object) -> bool {
        match self {
            Self::Any => true,
            Self::OneOf(tags) => {
                let etag = object.etag.to_string();
                tags.iter().any(|tag| tag.trim_matches('"') == etag)
            }
        }
    }
}

/// Compares whole seconds, as in HTTP dates.
fn modified_since(object: &Object, since_ms: u64) -> bool {
    object.modified_ms / 1000 > since_ms / 1000
}

impl ReadConditions {
    /// Evaluates the conditions of a read. ETag conditions take precedence over dates.
    pub(crate) fn check(&self, object: &Object) -> Result<()> {
        match (&self.if_match, self.if_unmodified_since_ms) {
            (Some(tags), _) if !tags.holds(object) => {
                return Err(Error::PreconditionFailed("If-Match"));
            }
            (None, Some(since_ms)) if modified_since(object, since_ms) => {
                return Err(Error::PreconditionFailed("If-Unmodified-Since"));
            }
            _ => {}
        }
        let is_cached = match (&self.if_none_match, self.if_modified_since_ms) {
            (Some(tags), _) => tags.holds(object),
            (None, Some(since_ms)) => !modified_since(object, since_ms),
            (None, None) => false,
        };
        if is_cached { Err(Error::NotModified(Box::new(object.clone()))) } else { Ok(()) }
    }

    /// Evaluates the conditions of a copy source. "Not modified" counts as a failed precondition.
    pub(crate) fn check_source(&self, object: &Object) -> Result<()> {
        self.check(object).map_err(|error| match error {
            Error::NotModified(_) if self.if_none_match.is_some() => {
                Error::PreconditionFailed("x-amz-copy-source-If-None-Match")
            }
            Error::NotModified(_) => {
                Error::PreconditionFailed("x-amz-copy-source-If-Modified-Since")
            }
            other => other,
        })
    }
}

impl WriteConditions {
    /// Returns true if the request has no conditions.
    pub(crate) fn is_empty(&self) -> bool {
        self.if_match.is_none() && self.if_none_match.is_none()
    }

    /// Evaluates the conditions of a write against the current object.
    pub(crate) fn check(&self, current: Option<&Object>) -> Result<()> {
        if let Some(tags) = &self.if_match {
            let object = current.ok_or(Error::NoSuchKey)?;
            if !tags.holds(object) {
                return Err(Error::PreconditionFailed("If-Match"));
            }
        }
        match (&self.if_none_match, current) {
            (Some(tags), Some(object)) if tags.holds(object) => {
                Err(Error::PreconditionFailed("If-None-Match"))
            }
            _ => Ok(()),
        }
    }

    /// The form stored with an upload.
    pub(crate) fn to_key_condition(&self) -> KeyCondition {
        let tags = |condition: &Option<ETagCondition>| {
            condition.as_ref().map(|condition| match condition {
                ETagCondition::Any => vec!["*".to_owned()],
                ETagCondition::OneOf(tags) => {
                    tags.iter().map(|tag| tag.trim_matches('"').to_owned()).collect()
                }
            })
        };
        KeyCondition { if_match: tags(&self.if_match), if_none_match: tags(&self.if_none_match) }
    }

    /// The inverse of [`WriteConditions::to_key_condition`].
    pub(crate) fn from_key_condition(condition: &KeyCondition) -> Self {
        let tags = |tags: &Option<Vec<String>>| {
            tags.as_ref().map(|tags| match tags.as_slice() {
                [any] if any == "*" => ETagCondition::Any,
                tags => ETagCondition::OneOf(tags.to_vec()),
            })
        };
        Self { if_match: tags(&condition.if_match), if_none_match: tags(&condition.if_none_match) }
    }
}

impl DeleteConditions {
    /// Returns true if the request has no conditions.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Evaluates the conditions of a delete. With no object, only `If-Match: *` fails. A delete
    /// marker fails any condition.
    pub(crate) fn check(&self, current: Option<&Value>) -> Result<()> {
        let failed = match current {
            Some(Value::Object(object)) => self.failed(object),
            Some(Value::DeleteMarker(_)) => self.name(),
            _ => self.if_match.as_ref().filter(|tag| **tag == ETagCondition::Any).map(|_| IF_MATCH),
        };
        failed.map_or(Ok(()), |name| Err(Error::PreconditionFailed(name)))
    }

    /// Header of the first condition that doesn't hold.
    fn failed(&self, object: &Object) -> Option<&'static str> {
        if self.if_match.as_ref().is_some_and(|tag| !tag.holds(object)) {
            return Some(IF_MATCH);
        }
        if self.modified_s.is_some_and(|modified_s| modified_s != object.modified_ms / 1000) {
            return Some(IF_MODIFIED);
        }
        self.size.filter(|size| *size != object.size).map(|_| IF_SIZE)
    }

    /// Header of the first condition of the request.
    fn name(&self) -> Option<&'static str> {
        let etag = self.if_match.as_ref().map(|_| IF_MATCH);
        etag.or(self.modified_s.map(|_| IF_MODIFIED)).or(self.size.map(|_| IF_SIZE))
    }
}

impl From<&WriteConditions> for DeleteConditions {
    fn from(conditions: &WriteConditions) -> Self {
        Self { if_match: conditions.if_match.clone(), ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use martlet_protocol::entry::{Attributes, Body, DeleteMarker, ETag};

    use super::*;

    fn object() -> Object {
        Object {
            size: 0,
            etag: ETag::Md5([0xaa; 16]),
            modified_ms: 10_500,
            attributes: Attributes::default(),
            checksums: Vec::new(),
            upload: None,
            body: Body::Empty,
            version: None,
        }
    }

    fn tag(matches: bool) -> ETagCondition {
        let tag = if matches { "aa".repeat(16) } else { "bb".repeat(16) };
        ETagCondition::OneOf(vec!["cc".into(), tag])
    }

    /// Returns `ok`, `412` or `304`.
    fn outcome(conditions: &ReadConditions) -> &'static str {
        match conditions.check(&object()) {
            Ok(()) => "ok",
            Err(Error::PreconditionFailed(_)) => "412",
            Err(Error::NotModified(_)) => "304",
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn tags_outweigh_dates() {
        let (before, after) = (Some(9000), Some(11_000));
        let none = ReadConditions::default();
        let cases = [
            (ReadConditions { if_match: Some(tag(true)), ..none.clone() }, "ok"),
            (ReadConditions { if_match: Some(tag(false)), ..none.clone() }, "412"),
            (ReadConditions { if_unmodified_since_ms: before, ..none.clone() }, "412"),
            (ReadConditions { if_unmodified_since_ms: after, ..none.clone() }, "ok"),
            (
                ReadConditions {
                    if_match: Some(tag(true)),
                    if_unmodified_since_ms: before,
                    ..none.clone()
                },
                "ok",
            ),
            (ReadConditions { if_none_match: Some(tag(true)), ..none.clone() }, "304"),
            (ReadConditions { if_none_match: Some(tag(false)), ..none.clone() }, "ok"),
            (ReadConditions { if_modified_since_ms: after, ..none.clone() }, "304"),
            (ReadConditions { if_modified_since_ms: before, ..none.clone() }, "ok"),
            (
                ReadConditions {
                    if_none_match: Some(tag(false)),
                    if_modified_since_ms: after,
                    ..none.clone()
                },
                "ok",
            ),
            (
                ReadConditions {
                    if_match: Some(tag(false)),
                    if_none_match: Some(tag(true)),
                    ..none.clone()
                },
                "412",
            ),
            (none, "ok"),
        ];
        for (conditions, expected) in cases {
            assert_eq!(outcome(&conditions), expected, "{conditions:?}");
        }
    }

    #[test]
    fn dates_are_compared_by_seconds() {
        let same_second =
            ReadConditions { if_modified_since_ms: Some(10_000), ..ReadConditions::default() };
        assert_eq!(outcome(&same_second), "304");
    }

    #[test]
    fn writes_are_refused_by_what_is_there() {
        let object = object();
        let create = WriteConditions { if_none_match: Some(ETagCondition::Any), if_match: None };
        assert!(create.check(None).is_ok());
        assert!(matches!(create.check(Some(&object)), Err(Error::PreconditionFailed(_))));
        let replace = WriteConditions { if_match: Some(tag(true)), if_none_match: None };
        assert!(replace.check(Some(&object)).is_ok());
        assert!(matches!(replace.check(None), Err(Error::NoSuchKey)));
        let other = WriteConditions { if_match: Some(tag(false)), if_none_match: None };
        assert!(matches!(other.check(Some(&object)), Err(Error::PreconditionFailed(_))));
    }

    #[test]
    fn a_delete_is_refused_by_an_object_that_is_another() {
        let value = Value::Object(Box::new(object()));
        let marker =
            Value::DeleteMarker(Box::new(DeleteMarker { modified_ms: 10_500, version: None }));
        let any = Some(ETagCondition::Any);
        let none = DeleteConditions::default();
        let conditions =
            |if_match, modified_s, size| DeleteConditions { if_match, modified_s, size };
        for (conditions, over_object, over_nothing) in [
            (conditions(Some(tag(true)), None, None), None, None),
            (conditions(Some(tag(false)), Some(10), Some(0)), Some(IF_MATCH), None),
            (conditions(None, Some(10), None), None, None),
            (conditions(None, Some(11), Some(0)), Some(IF_MODIFIED), None),
            (conditions(any.clone(), Some(10), Some(1)), Some(IF_SIZE), Some(IF_MATCH)),
            (conditions(any, None, Some(0)), None, Some(IF_MATCH)),
        ] {
            let failed = |current| match conditions.check(current) {
                Ok(()) => None,
                Err(Error::PreconditionFailed(name)) => Some(name),
                Err(other) => panic!("{other}"),
            };
            assert_eq!(failed(Some(&value)), over_object, "{conditions:?}");
            assert_eq!(failed(None), over_nothing, "{conditions:?}");
            assert_eq!(failed(Some(&Value::Tombstone)), over_nothing, "{conditions:?}");
            assert!(failed(Some(&marker)).is_some() && none.check(Some(&marker)).is_ok());
        }
    }

    #[test]
    fn an_upload_remembers_conditions_as_they_were() {
        for if_match in [None, Some(tag(true)), Some(ETagCondition::Any)] {
            let conditions = WriteConditions { if_match, if_none_match: Some(ETagCondition::Any) };
            let kept = conditions.to_key_condition();
            assert_eq!(WriteConditions::from_key_condition(&kept), conditions);
        }
    }
}
