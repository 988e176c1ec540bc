//! Tests of the evaluation of lifecycle rules.

use proptest::prelude::*;

use super::super::rules::rule;
use super::*;

const DAY_MS: u64 = Day::FULL.ms();
/// Midnight of 15 January 2026 (UTC).
const MIDNIGHT_MS: u64 = 20_468 * DAY_MS;

fn rules(rules: impl IntoIterator<Item = Rule>) -> Lifecycle {
    Lifecycle { rules: rules.into_iter().collect(), transition_minimum: None }
}

fn all() -> Scope {
    Scope::Filter(Filter::default())
}

fn expiring(expiration: Expiration) -> Rule {
    Rule { expiration: Some(expiration), ..rule(all()) }
}

fn tags(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

const NOTHING: Subject<'static> = Subject { key: "k", object: None };
const OBJECT: Subject<'static> = Subject { key: "k", object: Some((5, &[])) };

fn at(
    rules: &Lifecycle,
    subject: &Subject<'_>,
    position: VersionPosition,
    day: Day,
) -> Option<u64> {
    rules.due(subject, position, day).map(|due| due.at_ms)
}

#[test]
fn days_are_counted_up_to_the_next_midnight() {
    let rules = rules([expiring(Expiration::Days(3))]);
    let due =
        |modified_ms| at(&rules, &OBJECT, VersionPosition::Current { modified_ms }, Day::FULL);
    assert_eq!(due(MIDNIGHT_MS + 1), Some(MIDNIGHT_MS + 4 * DAY_MS));
    assert_eq!(due(MIDNIGHT_MS + DAY_MS - 1), Some(MIDNIGHT_MS + 4 * DAY_MS));
    assert_eq!(due(MIDNIGHT_MS), Some(MIDNIGHT_MS + 3 * DAY_MS));
    assert!(due(u64::MAX).is_some(), "nothing overflows");
}

#[test]
fn short_days_are_counted_to_the_millisecond() {
    let rules = rules([expiring(Expiration::Days(3))]);
    let current = VersionPosition::Current { modified_ms: 77 };
    assert_eq!(at(&rules, &OBJECT, current, Day::of_seconds(10)), Some(30_077));
    assert_eq!(Day::of_seconds(0), Day::of_seconds(1));
    assert_eq!(Day::of_seconds(86_400), Day::FULL);
}

#[test]
fn a_date_is_the_same_for_all_and_markers_that_are_not_alone_stay() {
    let current = VersionPosition::Current { modified_ms: 1 };
    let of = |expiration| at(&rules([expiring(expiration)]), &OBJECT, current, Day::FULL);
    assert_eq!(of(Expiration::Date(MIDNIGHT_MS)), Some(MIDNIGHT_MS));
    assert_eq!(of(Expiration::Marker(true)), None);
}

#[test]
fn a_marker_that_is_left_alone_goes_at_once_or_when_it_is_old() {
    let alone = VersionPosition::LoneMarker { modified_ms: 5 };
    let of = |expiration| at(&rules([expiring(expiration)]), &NOTHING, alone, Day::of_seconds(1));
    assert_eq!(of(Expiration::Marker(true)), Some(5));
    assert_eq!(of(Expiration::Marker(false)), None);
    assert_eq!(of(Expiration::Days(2)), Some(2005));
    assert_eq!(of(Expiration::Date(MIDNIGHT_MS)), Some(MIDNIGHT_MS));
}

#[test]
fn noncurrent_versions_go_but_for_the_newest_that_are_kept() {
    let keeping =
        |newer| rules([Rule { noncurrent: Some(Noncurrent { days: 1, newer }), ..rule(all()) }]);
    let position = |newer| VersionPosition::Noncurrent { since_ms: 10, newer };
    let day = Day::of_seconds(1);
    assert_eq!(at(&keeping(None), &OBJECT, position(0), day), Some(1010));
    assert_eq!(at(&keeping(Some(2)), &OBJECT, position(1), day), None);
    assert_eq!(at(&keeping(Some(2)), &OBJECT, position(2), day), Some(1010));
    assert_eq!(at(&keeping(None), &NOTHING, position(0), day), Some(1010), "markers too");
    let current = VersionPosition::Current { modified_ms: 1 };
    assert_eq!(at(&keeping(None), &OBJECT, current, day), None);
}

#[test]
fn uploads_go_by_their_own_rule_and_by_their_key() {
    let rules = rules([Rule { abort_upload_days: Some(2), ..rule(Scope::Prefix("a/".into())) }]);
    let upload = VersionPosition::Upload { initiated_ms: 0 };
    let of = |key| rules.due(&Subject { key, object: None }, upload, Day::of_seconds(1));
    assert_eq!(
        of("a/b"),
        Some(DueAction { at_ms: 2000, action: LifecycleAction::Abort, rule: "r" })
    );
    assert_eq!(of("b"), None);
    assert!(!rules.needs_objects());
}

#[test]
fn all_of_a_filter_holds() {
    let filter = Filter {
        prefix: Some("a/".into()),
        tag: Some(("x".into(), "1".into())),
        larger_than: Some(10),
        smaller_than: None,
        and: Some(And {
            prefix: None,
            tags: tags(&[("y", "2")]),
            larger_than: None,
            smaller_than: Some(20),
        }),
    };
    let rules = rules([Rule { scope: Scope::Filter(filter), ..expiring(Expiration::Days(1)) }]);
    let both = tags(&[("y", "2"), ("x", "1"), ("z", "3")]);
    let is_due = |key, size, tags: &[(String, String)]| {
        let subject = Subject { key, object: Some((size, tags)) };
        at(&rules, &subject, VersionPosition::Current { modified_ms: 0 }, Day::FULL).is_some()
    };
    assert!(is_due("a/k", 11, &both) && is_due("a/k", 19, &both));
    assert!(!is_due("b/k", 11, &both));
    assert!(!is_due("a/k", 10, &both) && !is_due("a/k", 20, &both));
    assert!(!is_due("a/k", 11, &tags(&[("x", "1")])));
    assert!(!is_due("a/k", 11, &tags(&[("x", "2"), ("y", "2")])));
    let alone = VersionPosition::LoneMarker { modified_ms: 0 };
    let marker = Subject { key: "a/k", object: None };
    assert_eq!(at(&rules, &marker, alone, Day::FULL), None, "a marker has no tags and no size");
}

#[test]
fn the_earliest_rule_counts_and_disabled_ones_do_not() {
    let named = |id: &str, days, is_enabled| Rule {
        id: id.into(),
        is_enabled,
        ..expiring(Expiration::Days(days))
    };
    let rules = rules([
        named("off", 1, false),
        named("late", 9, true),
        named("first", 2, true),
        named("second", 2, true),
    ]);
    let due = rules.due(&OBJECT, VersionPosition::Current { modified_ms: 0 }, Day::FULL).unwrap();
    assert_eq!((due.rule, due.at_ms, due.action), ("first", 2 * DAY_MS, LifecycleAction::Expire));
    assert!(rules.needs_objects());
    assert!(!Lifecycle { rules: rules.rules[..1].to_vec(), ..rules }.needs_objects());
}

#[test]
fn rules_have_a_prefix_in_common() {
    let of = |prefixes: &[&str]| {
        let scopes = prefixes.iter().map(|prefix| Scope::Prefix((*prefix).to_owned()));
        let rules = rules(scopes.map(rule));
        rules.common_prefix().to_owned()
    };
    assert_eq!(of(&[]), "");
    assert_eq!(of(&["logs/a"]), "logs/a");
    assert_eq!(of(&["logs/a", "logs/b", "logs/"]), "logs/");
    assert_eq!(of(&["logs/", ""]), "");
    assert_eq!(of(&["\u{e4}x", "\u{e5}x"]), "", "letters are not torn");
    let and = And { prefix: Some("a/b".into()), ..And::default() };
    let filter = Filter { prefix: Some("a/".into()), and: Some(and), ..Filter::default() };
    assert_eq!(rules([rule(Scope::Filter(filter))]).common_prefix(), "a/b");
    let off = Rule { is_enabled: false, ..rule(Scope::Prefix("x".into())) };
    assert_eq!(rules([off, rule(Scope::Prefix("y".into()))]).common_prefix(), "y");
}

prop_compose! {
    fn any_rule()(
        is_enabled: bool,
        prefix in "[ab]{0,2}",
        expiration in proptest::option::of(prop_oneof![
            (0u32..9).prop_map(Expiration::Days),
            (0u64..9).prop_map(|day| Expiration::Date(day * DAY_MS)),
            any::<bool>().prop_map(Expiration::Marker),
        ]),
        noncurrent in proptest::option::of(
            (0u32..9, proptest::option::of(0u32..4)).prop_map(|(days, newer)| Noncurrent { days, newer })
        ),
        abort_upload_days in proptest::option::of(0u32..9),
    ) -> Rule {
        let (id, scope) = ("r".to_owned(), Scope::Prefix(prefix));
        Rule { id, is_enabled, scope, expiration, noncurrent, abort_upload_days }
    }
}

fn any_standing() -> impl Strategy<Value = VersionPosition> {
    let ms = || 0..20 * DAY_MS;
    prop_oneof![
        ms().prop_map(|modified_ms| VersionPosition::Current { modified_ms }),
        ms().prop_map(|modified_ms| VersionPosition::LoneMarker { modified_ms }),
        (ms(), 0u32..5)
            .prop_map(|(since_ms, newer)| VersionPosition::Noncurrent { since_ms, newer }),
        ms().prop_map(|initiated_ms| VersionPosition::Upload { initiated_ms }),
    ]
}

proptest! {
    /// A further rule never delays an expiration, and a disabled rule changes nothing.
    #[test]
    fn rules_only_ever_add(
        some in proptest::collection::vec(any_rule(), 0..5),
        more in any_rule(),
        position in any_standing(),
        key in "[ab]{1,3}",
    ) {
        let subject = Subject { key: &key, object: None };
        let before = at(&rules(some.clone()), &subject, position, Day::FULL);
        let with = rules(some.iter().cloned().chain([more.clone()]));
        let after = at(&with, &subject, position, Day::FULL);
        prop_assert!(after.unwrap_or(u64::MAX) <= before.unwrap_or(u64::MAX));
        if !more.is_enabled {
            prop_assert_eq!(after, before);
        }
        prop_assert!(after.is_none() || key.starts_with(with.common_prefix()));
    }

    /// Times counted in full days fall on a midnight, at or less than a day after the exact time.
    #[test]
    fn full_days_end_at_midnight(since_ms in 0..1u64 << 50, days in 0u32..100_000) {
        let due_ms = Day::FULL.after(since_ms, days);
        let counted_ms = since_ms + DAY_MS * u64::from(days);
        prop_assert!(due_ms.is_multiple_of(DAY_MS));
        prop_assert!(due_ms >= counted_ms && due_ms < counted_ms + DAY_MS);
    }

    /// With more newer noncurrent versions, a version expires no later.
    #[test]
    fn newer_versions_keep_nothing(some in proptest::collection::vec(any_rule(), 0..5), newer in 0u32..5) {
        let rules = rules(some);
        let of = |newer| at(&rules, &OBJECT, VersionPosition::Noncurrent { since_ms: 7, newer }, Day::FULL);
        prop_assert!(of(newer + 1).unwrap_or(u64::MAX) <= of(newer).unwrap_or(u64::MAX));
    }
}
