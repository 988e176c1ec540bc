//! Tests of lifecycle rules: accepted rules are returned unchanged, others are refused by S3's
//! codes.

use s3s::dto::{NoncurrentVersionTransition, TimestampFormat, Transition, TransitionStorageClass};

use super::*;

fn given(id: &str) -> LifecycleRule {
    LifecycleRule {
        abort_incomplete_multipart_upload: None,
        expiration: Some(LifecycleExpiration { days: Some(1), ..Default::default() }),
        filter: None,
        id: Some(id.to_owned()),
        noncurrent_version_expiration: None,
        noncurrent_version_transitions: None,
        prefix: Some("a/".to_owned()),
        status: ExpirationStatus::from_static(ExpirationStatus::ENABLED),
        transitions: None,
    }
}

fn take(rules: Vec<LifecycleRule>) -> S3Result<Vec<Rule>> {
    from_wire(Some(BucketLifecycleConfiguration { rules }))
}

/// Error code of a changed rule.
fn refusal(change: impl FnOnce(&mut LifecycleRule)) -> String {
    let mut rule = given("r");
    change(&mut rule);
    take(vec![rule]).unwrap_err().code().as_str().to_owned()
}

fn date(text: &str) -> Timestamp {
    Timestamp::parse(TimestampFormat::DateTime, text).unwrap()
}

fn tag(key: &str) -> Tag {
    Tag { key: Some(key.to_owned()), value: Some("v".to_owned()) }
}

fn of_filter(filter: LifecycleRuleFilter) -> impl FnOnce(&mut LifecycleRule) {
    move |rule| (rule.prefix, rule.filter) = (None, Some(filter))
}

#[test]
fn rules_come_back_as_they_were_given() {
    let and = LifecycleRuleAndOperator {
        object_size_greater_than: Some(0),
        object_size_less_than: Some(i64::MAX),
        prefix: Some(String::new()),
        tags: Some(vec![tag("x"), tag("y")]),
    };
    let full = LifecycleRuleFilter {
        and: Some(and),
        object_size_greater_than: Some(1),
        object_size_less_than: None,
        prefix: Some("p".into()),
        tag: Some(tag("k")),
    };
    let mut rules = vec![given("one"), given("two"), given("three"), given("four")];
    (rules[1].prefix, rules[1].filter) = (None, Some(full));
    rules[1].noncurrent_version_expiration = Some(NoncurrentVersionExpiration {
        newer_noncurrent_versions: Some(100),
        noncurrent_days: Some(i32::MAX),
    });
    (rules[2].prefix, rules[2].filter) = (None, Some(LifecycleRuleFilter::default()));
    rules[2].expiration = Some(LifecycleExpiration {
        expired_object_delete_marker: Some(true),
        ..Default::default()
    });
    rules[2].abort_incomplete_multipart_upload =
        Some(AbortIncompleteMultipartUpload { days_after_initiation: Some(7) });
    rules[3].expiration = Some(LifecycleExpiration {
        date: Some(date("2030-01-01T00:00:00Z")),
        ..Default::default()
    });
    rules[3].status = ExpirationStatus::from_static(ExpirationStatus::DISABLED);
    let taken = take(rules.clone()).unwrap();
    assert_eq!(taken.into_iter().map(to_wire).collect::<Vec<_>>(), rules);
}

#[test]
fn rules_without_an_id_get_one_each() {
    let nameless = || LifecycleRule { id: None, ..given("") };
    let taken = take(vec![nameless(), nameless(), given("")]).unwrap();
    assert!(taken.iter().all(|rule| rule.id.len() == 16), "{taken:?}");
}

#[test]
fn documents_have_one_to_a_thousand_rules_of_different_names() {
    let code = |outcome: S3Result<Vec<Rule>>| outcome.unwrap_err().code().as_str().to_owned();
    let named = |count: usize| (0..count).map(|at| given(&at.to_string())).collect::<Vec<_>>();
    assert_eq!(code(from_wire(None)), "MalformedXML");
    assert_eq!(code(take(Vec::new())), "MalformedXML");
    assert_eq!(take(named(RULES_MAX)).unwrap().len(), RULES_MAX);
    assert_eq!(code(take(named(RULES_MAX + 1))), "MalformedXML");
    assert_eq!(code(take(vec![given("a"), given("b"), given("a")])), "InvalidArgument");
    assert_eq!(refusal(|rule| rule.id = Some("x".repeat(256))), "InvalidArgument");
    assert!(take(vec![given(&"x".repeat(255))]).is_ok());
}

#[test]
fn rules_have_filters_actions_and_times() {
    for status in ["enabled", "disabled", "invalid", ""] {
        let refused = refusal(|rule| rule.status = ExpirationStatus::from(status.to_owned()));
        assert_eq!(refused, "MalformedXML", "{status}");
    }
    assert_eq!(refusal(|rule| rule.expiration = None), "InvalidRequest");
    assert_eq!(refusal(|rule| rule.prefix = None), "MalformedXML");
    let filter = || Some(LifecycleRuleFilter::default());
    assert_eq!(refusal(|rule| rule.filter = filter()), "MalformedXML");
    assert_eq!(refusal(|rule| rule.prefix = Some("x".repeat(1025))), "InvalidRequest");
    let expiration = |days, date, marker| {
        let expired_object_delete_marker = marker;
        let expiration = LifecycleExpiration { date, days, expired_object_delete_marker };
        refusal(|rule| rule.expiration = Some(expiration))
    };
    assert_eq!(expiration(Some(0), None, None), "InvalidArgument");
    assert_eq!(expiration(Some(-1), None, None), "InvalidArgument");
    assert_eq!(expiration(None, Some(date("2030-01-01T00:00:01Z")), None), "InvalidArgument");
    assert_eq!(expiration(None, Some(date("1970-08-22T19:08:21Z")), None), "InvalidArgument");
    assert_eq!(expiration(None, None, None), "MalformedXML");
    assert_eq!(expiration(Some(1), Some(date("2030-01-01T00:00:00Z")), None), "MalformedXML");
    assert_eq!(expiration(Some(1), None, Some(true)), "MalformedXML");
    for (days, newer) in
        [(None, Some(1)), (Some(0), None), (Some(1), Some(0)), (Some(1), Some(101))]
    {
        let refused = refusal(|rule| {
            rule.noncurrent_version_expiration = Some(NoncurrentVersionExpiration {
                newer_noncurrent_versions: newer,
                noncurrent_days: days,
            });
        });
        assert_eq!(refused, "InvalidArgument", "{days:?} {newer:?}");
    }
    for days in [None, Some(0)] {
        let abort = Some(AbortIncompleteMultipartUpload { days_after_initiation: days });
        let refused = refusal(|rule| rule.abort_incomplete_multipart_upload = abort);
        assert_eq!(refused, "InvalidArgument");
    }
}

#[test]
fn filters_that_make_no_sense_are_refused() {
    let none = LifecycleRuleFilter::default;
    let sizes = |larger, smaller| LifecycleRuleFilter {
        object_size_greater_than: larger,
        object_size_less_than: smaller,
        ..none()
    };
    assert_eq!(refusal(of_filter(sizes(Some(10), Some(10)))), "InvalidRequest");
    assert_eq!(refusal(of_filter(sizes(Some(-1), None))), "InvalidRequest");
    assert_eq!(refusal(of_filter(sizes(None, Some(0)))), "InvalidRequest");
    let and = LifecycleRuleAndOperator::default();
    assert_eq!(
        refusal(of_filter(LifecycleRuleFilter { and: Some(and), ..none() })),
        "MalformedXML"
    );
    let twice =
        LifecycleRuleAndOperator { tags: Some(vec![tag("x"), tag("x")]), ..Default::default() };
    assert_eq!(
        refusal(of_filter(LifecycleRuleFilter { and: Some(twice), ..none() })),
        "InvalidTag"
    );
    // Uploads and delete markers have neither tags nor sizes, so that filters cannot select them.
    let tagged = || LifecycleRuleFilter { tag: Some(tag("x")), ..none() };
    for filter in [tagged(), sizes(Some(1), None)] {
        let refused = refusal(|rule| {
            of_filter(filter.clone())(rule);
            rule.abort_incomplete_multipart_upload =
                Some(AbortIncompleteMultipartUpload { days_after_initiation: Some(1) });
        });
        assert_eq!(refused, "InvalidRequest");
        let refused = refusal(|rule| {
            of_filter(filter)(rule);
            rule.expiration = Some(LifecycleExpiration {
                expired_object_delete_marker: Some(true),
                ..Default::default()
            });
        });
        assert_eq!(refused, "InvalidRequest");
    }
}

#[test]
fn classes_are_not_changed() {
    let class = || Some(TransitionStorageClass::from_static(TransitionStorageClass::GLACIER));
    let transition = |date, days| Some(vec![Transition { date, days, storage_class: class() }]);
    assert_eq!(refusal(|rule| rule.transitions = transition(None, Some(0))), "NotImplemented");
    let odd = transition(Some(date("2030-01-01T00:00:01Z")), None);
    assert_eq!(refusal(|rule| rule.transitions = odd), "InvalidArgument");
    let noncurrent = NoncurrentVersionTransition {
        newer_noncurrent_versions: None,
        noncurrent_days: Some(1),
        storage_class: class(),
    };
    let refused = refusal(|rule| rule.noncurrent_version_transitions = Some(vec![noncurrent]));
    assert_eq!(refused, "NotImplemented");
}
