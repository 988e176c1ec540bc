//! Lifecycle rules from S3's types, validated, and back.
//!
//! Where S3 differs from the test suite for stores that imitate it, both forms are accepted: all
//! parts of a filter must hold, within an And or beside it.

use martlet_protocol::id::random_bytes;
use martlet_protocol::lifecycle::{
    And, Day, Expiration, Filter, Noncurrent, RULES_MAX, Rule, Scope,
};
use martlet_protocol::limits::KEY_BYTES_MAX;
use s3s::dto::{
    AbortIncompleteMultipartUpload, BucketLifecycleConfiguration, ExpirationStatus,
    LifecycleExpiration, LifecycleRule, LifecycleRuleAndOperator, LifecycleRuleFilter,
    NoncurrentVersionExpiration, Tag, Timestamp,
};
use s3s::{S3Error, S3Result};
use time::OffsetDateTime;

use crate::messages;
use crate::tags;

/// Maximum length of a rule's id, in characters.
const ID_CHARS_MAX: usize = 255;
/// Maximum number of newer noncurrent versions that a rule may keep.
const NEWER_MAX: u32 = 100;

/// Parses and validates the rules of a document.
pub(in super::super) fn from_wire(
    document: Option<BucketLifecycleConfiguration>,
) -> S3Result<Vec<Rule>> {
    let rules = document.map(|document| document.rules).unwrap_or_default();
    if rules.is_empty() || rules.len() > RULES_MAX {
        return Err(messages::MALFORMED_XML.error());
    }
    let rules: Vec<Rule> = rules.into_iter().map(rule).collect::<S3Result<_>>()?;
    let mut ids: Vec<&str> = rules.iter().map(|rule| rule.id.as_str()).collect();
    ids.sort_unstable();
    if ids.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(messages::LIFECYCLE_IDS.error());
    }
    Ok(rules)
}

fn rule(rule: LifecycleRule) -> S3Result<Rule> {
    let id = match rule.id.filter(|id| !id.is_empty()) {
        Some(id) if id.chars().count() > ID_CHARS_MAX => {
            return Err(messages::LIFECYCLE_ID.with_subject(ID_CHARS_MAX).into());
        }
        Some(id) => id,
        None => hex::encode(random_bytes::<8>()),
    };
    let is_enabled = match rule.status.as_str() {
        ExpirationStatus::ENABLED => true,
        ExpirationStatus::DISABLED => false,
        _ => return Err(messages::MALFORMED_XML.error()),
    };
    for transition in rule.transitions.iter().flatten() {
        transition.date.as_ref().map(date_ms).transpose()?;
    }
    if rule.transitions.is_some() || rule.noncurrent_version_transitions.is_some() {
        return Err(messages::LIFECYCLE_TRANSITION.error());
    }
    let rule = Rule {
        id,
        is_enabled,
        scope: scope(rule.prefix, rule.filter)?,
        expiration: rule.expiration.map(expiration).transpose()?,
        noncurrent: rule.noncurrent_version_expiration.as_ref().map(noncurrent).transpose()?,
        abort_upload_days: rule
            .abort_incomplete_multipart_upload
            .as_ref()
            .map(abort_days)
            .transpose()?,
    };
    check_actions(&rule)?;
    Ok(rule)
}

/// Refuses rules without an action, and actions that do not support the rule's filter.
fn check_actions(rule: &Rule) -> S3Result<()> {
    if rule.expiration.is_none() && rule.noncurrent.is_none() && rule.abort_upload_days.is_none() {
        return Err(messages::LIFECYCLE_ACTION.error());
    }
    let Scope::Filter(filter) = &rule.scope else { return Ok(()) };
    let and = filter.and.as_ref();
    let has_tags = filter.tag.is_some() || and.is_some_and(|and| !and.tags.is_empty());
    let has_sizes = filter.larger_than.or(filter.smaller_than).is_some()
        || and.is_some_and(|and| and.larger_than.or(and.smaller_than).is_some());
    let is_of_markers = matches!(rule.expiration, Some(Expiration::Marker(_)));
    for (action, is_requested) in [
        ("AbortIncompleteMultipartUpload", rule.abort_upload_days.is_some()),
        ("ExpiredObjectDeleteMarker", is_of_markers),
    ] {
        if is_requested && has_tags {
            return Err(messages::LIFECYCLE_WITH.with_subjects(action, "Tags").into());
        }
        if is_requested && has_sizes {
            return Err(messages::LIFECYCLE_WITH.with_subjects(action, "ObjectSize").into());
        }
    }
    Ok(())
}

fn scope(prefix: Option<String>, filter: Option<LifecycleRuleFilter>) -> S3Result<Scope> {
    match (prefix, filter) {
        (Some(prefix), None) => Ok(Scope::Prefix(checked_prefix(prefix)?)),
        (None, Some(filter)) => Ok(Scope::Filter(self::filter(filter)?)),
        (Some(_), Some(_)) | (None, None) => Err(messages::MALFORMED_XML.error()),
    }
}

fn filter(filter: LifecycleRuleFilter) -> S3Result<Filter> {
    let LifecycleRuleFilter { and, object_size_greater_than, object_size_less_than, prefix, tag } =
        filter;
    let (larger_than, smaller_than) = sizes(object_size_greater_than, object_size_less_than)?;
    Ok(Filter {
        prefix: prefix.map(checked_prefix).transpose()?,
        tag: match tag {
            Some(tag) => tags::from_xml(vec![tag])?.pop(),
            None => None,
        },
        larger_than,
        smaller_than,
        and: and.map(self::and).transpose()?,
    })
}

fn and(and: LifecycleRuleAndOperator) -> S3Result<And> {
    let LifecycleRuleAndOperator { object_size_greater_than, object_size_less_than, prefix, tags } =
        and;
    let (larger_than, smaller_than) = sizes(object_size_greater_than, object_size_less_than)?;
    let (prefix, tags) = (prefix.map(checked_prefix).transpose()?, tags.unwrap_or_default());
    let and = And { prefix, tags: tags::from_xml(tags)?, larger_than, smaller_than };
    if and == And::default() {
        return Err(messages::MALFORMED_XML.error());
    }
    Ok(and)
}

fn checked_prefix(prefix: String) -> S3Result<String> {
    if prefix.len() > KEY_BYTES_MAX {
        return Err(messages::LIFECYCLE_PREFIX.with_subject(KEY_BYTES_MAX).into());
    }
    Ok(prefix)
}

fn sizes(larger: Option<i64>, smaller: Option<i64>) -> S3Result<(Option<u64>, Option<u64>)> {
    let size = |size: i64| u64::try_from(size).map_err(|_| messages::LIFECYCLE_SIZE.error());
    let (larger, smaller) = (larger.map(size).transpose()?, smaller.map(size).transpose()?);
    match (larger, smaller) {
        (_, Some(0)) => Err(messages::LIFECYCLE_SIZE_MIN.error()),
        (Some(larger), Some(smaller)) if smaller <= larger => {
            Err(messages::LIFECYCLE_SIZES.error())
        }
        sizes => Ok(sizes),
    }
}

fn expiration(expiration: LifecycleExpiration) -> S3Result<Expiration> {
    let LifecycleExpiration { date, days, expired_object_delete_marker } = expiration;
    match (days, date, expired_object_delete_marker) {
        (Some(days), None, None) => {
            Ok(Expiration::Days(positive(days, "'Days' for Expiration action")?))
        }
        (None, Some(date), None) => Ok(Expiration::Date(date_ms(&date)?)),
        (None, None, Some(goes)) => Ok(Expiration::Marker(goes)),
        _ => Err(messages::MALFORMED_XML.error()),
    }
}

fn noncurrent(noncurrent: &NoncurrentVersionExpiration) -> S3Result<Noncurrent> {
    let name = "'NoncurrentDays' for NoncurrentVersionExpiration action";
    let days = positive(noncurrent.noncurrent_days.unwrap_or_default(), name)?;
    let newer = noncurrent.newer_noncurrent_versions.map(|newer| {
        let newer = positive(newer, "'NewerNoncurrentVersions'")?;
        if newer > NEWER_MAX {
            return Err(S3Error::from(messages::LIFECYCLE_NEWER.with_subject(NEWER_MAX)));
        }
        Ok(newer)
    });
    Ok(Noncurrent { days, newer: newer.transpose()? })
}

fn abort_days(abort: &AbortIncompleteMultipartUpload) -> S3Result<u32> {
    let days = abort.days_after_initiation.unwrap_or_default();
    positive(days, "'DaysAfterInitiation' for AbortIncompleteMultipartUpload action")
}

fn positive(number: i32, name: &str) -> S3Result<u32> {
    u32::try_from(number)
        .ok()
        .filter(|number| *number > 0)
        .ok_or_else(|| messages::LIFECYCLE_NUMBER.with_subject(name).into())
}

/// Parses a date, which must be midnight UTC. Returns milliseconds.
fn date_ms(date: &Timestamp) -> S3Result<u64> {
    let ns = OffsetDateTime::from(date.clone()).unix_timestamp_nanos();
    let ms = u64::try_from(ns / 1_000_000).ok();
    ms.filter(|ms| ms.is_multiple_of(Day::FULL.ms()))
        .ok_or_else(|| messages::LIFECYCLE_DATE.error())
}

/// Converts a rule to S3's type.
pub(in super::super) fn to_wire(rule: Rule) -> LifecycleRule {
    let (prefix, filter) = match rule.scope {
        Scope::Prefix(prefix) => (Some(prefix), None),
        Scope::Filter(filter) => (None, Some(wire_filter(filter))),
    };
    let status =
        if rule.is_enabled { ExpirationStatus::ENABLED } else { ExpirationStatus::DISABLED };
    LifecycleRule {
        abort_incomplete_multipart_upload: rule.abort_upload_days.map(|days| {
            AbortIncompleteMultipartUpload { days_after_initiation: Some(wire_number(days)) }
        }),
        expiration: rule.expiration.map(wire_expiration),
        filter,
        id: Some(rule.id),
        noncurrent_version_expiration: rule.noncurrent.map(|Noncurrent { days, newer }| {
            NoncurrentVersionExpiration {
                newer_noncurrent_versions: newer.map(wire_number),
                noncurrent_days: Some(wire_number(days)),
            }
        }),
        noncurrent_version_transitions: None,
        prefix,
        status: ExpirationStatus::from_static(status),
        transitions: None,
    }
}

fn wire_filter(filter: Filter) -> LifecycleRuleFilter {
    let Filter { prefix, tag, larger_than, smaller_than, and } = filter;
    LifecycleRuleFilter {
        and: and.map(|And { prefix, tags, larger_than, smaller_than }| LifecycleRuleAndOperator {
            object_size_greater_than: larger_than.map(wire_size),
            object_size_less_than: smaller_than.map(wire_size),
            prefix,
            tags: (!tags.is_empty()).then(|| tags::to_xml(&tags)),
        }),
        object_size_greater_than: larger_than.map(wire_size),
        object_size_less_than: smaller_than.map(wire_size),
        prefix,
        tag: tag.map(|(key, value)| Tag { key: Some(key), value: Some(value) }),
    }
}

fn wire_expiration(expiration: Expiration) -> LifecycleExpiration {
    let mut wire = LifecycleExpiration::default();
    match expiration {
        Expiration::Days(days) => wire.days = Some(wire_number(days)),
        Expiration::Date(at_ms) => wire.date = Some(crate::attributes::wire_time(at_ms)),
        Expiration::Marker(goes) => wire.expired_object_delete_marker = Some(goes),
    }
    wire
}

/// Converts back a number that was parsed from an `i32`.
fn wire_number(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// Converts back a size that was parsed from an `i64`.
fn wire_size(size: u64) -> i64 {
    i64::try_from(size).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
