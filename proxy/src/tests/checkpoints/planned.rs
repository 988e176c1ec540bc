//! Dry run of the worker: parts of a bucket, pages, and buckets whose rules were removed.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::join_all;
use martlet_protocol::Clock;
use martlet_protocol::backend::CallKind;

use super::*;
use crate::PlannedWithdrawal;

const KEEP_ONE: &str =
    r#"{"rules": [{"pattern": "run-*/step-*/", "profile": "dcp", "keep": 1, "min_age": 600}]}"#;
const DAY_MS: u64 = 24 * 60 * MINUTE_MS;

fn named(plan: &[PlannedWithdrawal]) -> Vec<String> {
    plan.iter().map(|it| format!("{}@{}", it.set, it.number)).collect()
}

/// Withdrawals of all pages, and the number of pages.
async fn pages(store: &ObjectStore, prefix: &str) -> (Vec<String>, usize) {
    let (mut found, mut after, mut count) = (Vec::new(), None::<String>, 0);
    loop {
        let page = store.checkpoints().plan("b", prefix, after.as_deref()).await.unwrap();
        found.extend(named(&page.0));
        count += 1;
        after = page.1;
        if after.is_none() {
            return (found, count);
        }
    }
}

#[tokio::test]
async fn a_prefix_selects_sets_of_a_series() {
    let (harness, clock) = ruled(KEEP_ONE).await;
    let store = &harness.store;
    let mut saved_ms = Vec::new();
    for step in 1..=3 {
        save_set(store, &format!("run-1/step-{step}/"), b"one").await;
        saved_ms.push(clock.now_ms());
        clock.advance_ms(MINUTE_MS);
    }
    save_set(store, "run-2/step-1/", b"alone in its series").await;
    let sets = store.checkpoints();
    let (plan, next) = sets.plan("b", "run-1/step-2/", None).await.unwrap();
    assert_eq!((named(&plan), next), (vec!["run-1/step-2/@1".to_owned()], None));
    assert_eq!(plan[0].due_ms, saved_ms[1] + 10 * MINUTE_MS, "its age counts from its commit");
    assert!(plan[0].deletes_objects);
    for prefix in ["run-1/step-3/", "run-2/", "nothing/"] {
        assert_eq!(sets.plan("b", prefix, None).await.unwrap(), (Vec::new(), None), "{prefix}");
    }
    let all = ["run-1/step-1/@1".to_owned(), "run-1/step-2/@1".to_owned()];
    assert_eq!(pages(store, "").await, (all.to_vec(), 1));
    // A start before the prefix begins with the prefix, and one behind it finds nothing.
    let early = sets.plan("b", "run-1/", Some("a/")).await.unwrap().0;
    assert_eq!(named(&early), all);
    assert_eq!(sets.plan("b", "run-1/", Some("z/")).await.unwrap(), (Vec::new(), None));
    assert!(matches!(sets.plan("none", "", None).await, Err(Error::NoSuchBucket)));
    // Nothing was changed.
    assert_eq!(view(store, "run-1/step-1/__0_0.distcp").await.unwrap(), "one");
}

#[tokio::test]
async fn pages_together_name_each_withdrawal_once() {
    let (harness, clock) = ruled(KEEP_ONE).await;
    let store = &harness.store;
    let mut expected = Vec::new();
    // Series longer than a page, and many short ones.
    for set in (10..35).map(|step| format!("run-1/step-{step}/")) {
        save_set(store, &set, b"one").await;
        expected.push(format!("{set}@1"));
        clock.advance_ms(1);
    }
    expected.pop();
    for run in 20..35 {
        for step in [1, 2] {
            save_set(store, &format!("run-{run}/step-{step}/"), b"one").await;
            clock.advance_ms(1);
        }
        expected.push(format!("run-{run}/step-1/@1"));
    }
    expected.sort();
    let (mut found, count) = pages(store, "").await;
    assert_eq!(count, 3, "of 20 sets each");
    found.sort();
    assert_eq!(found, expected);
    let (found, count) = pages(store, "run-2").await;
    assert_eq!((found.len(), count), (10, 1));
}

/// A page has the withdrawals of its own sets, however long a series is.
#[tokio::test]
async fn pages_of_a_long_series_are_bounded() {
    let (harness, clock) = ruled(KEEP_ONE).await;
    let store = &harness.store;
    // Names don't follow commits: the newest is the second by name.
    for step in (10..45).chain([11]) {
        save_set(store, &format!("run-1/step-{step}/"), format!("{step}").as_bytes()).await;
        clock.advance_ms(1);
    }
    let (first, next) = store.checkpoints().plan("b", "", None).await.unwrap();
    assert_eq!(first.len(), 20, "{:?}", named(&first));
    assert_eq!(next.as_deref(), Some("run-1/step-29/"));
    assert_eq!(first.iter().filter(|it| it.set == "run-1/step-11/").count(), 1, "its first");
    let (found, count) = pages(store, "").await;
    assert_eq!((found.len(), count), (35, 2));
    let (mut of_series, mut after, mut lengths) = (Vec::new(), None::<String>, Vec::new());
    loop {
        let sets = store.checkpoints();
        let page = sets.would_retire("b", "run-1/step-10/", after.as_deref()).await.unwrap();
        of_series.extend(named(&page.0));
        lengths.push(page.0.len());
        after = page.1;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(of_series, found);
    assert_eq!(lengths, [10, 10, 10, 5]);
}

#[tokio::test]
async fn sets_that_no_rule_covers_are_planned_too() {
    let (harness, clock) = ruled(RULES).await;
    let store = &harness.store;
    save_set(store, SET, b"one").await;
    store.checkpoints().delete_rules("b").await.unwrap();
    clock.advance_ms(3000);
    upkeep(store).await;
    let removed_ms = clock.now_ms();
    clock.advance_ms(MINUTE_MS);
    let (plan, _) = store.checkpoints().plan("b", "", None).await.unwrap();
    assert_eq!(named(&plan), [format!("{SET}@1")]);
    assert_eq!((plan[0].due_ms, plan[0].deletes_objects), (removed_ms + DAY_MS, false));
    clock.advance_ms(DAY_MS);
    upkeep(store).await;
    assert_eq!(store.checkpoints().plan("b", "", None).await.unwrap().0, []);
}

/// Two rules may cover sets by turns. Each set is planned by its own.
#[tokio::test]
async fn series_whose_sets_alternate_are_planned_once() {
    let rules = r#"{"rules": [
        {"pattern": "*-a/", "profile": "dcp", "keep": 1, "min_age": 600},
        {"pattern": "*-b/", "profile": "dcp", "keep": 1, "min_age": 600}]}"#;
    let (harness, clock) = ruled(rules).await;
    let (store, mut expected) = (&harness.store, Vec::new());
    for number in 10..25 {
        for kind in ["a", "b"] {
            let set = format!("{number}-{kind}/");
            save_set(store, &set, b"one").await;
            expected.push(format!("{set}@1"));
            clock.advance_ms(1);
        }
    }
    expected.truncate(expected.len() - 2);
    expected.sort();
    let (mut found, count) = pages(store, "").await;
    found.sort();
    assert_eq!((found, count), (expected, 2));
}

/// Markers may have 64 MiB, and readers may ask for plans.
#[tokio::test]
async fn fifty_plans_read_no_marker_and_keep_no_other_request_waiting() {
    let (harness, clock) = ruled(RULES).await;
    let store = &harness.store;
    let (shard, marker) = (format!("{SET}__0_0.distcp"), format!("{SET}.metadata"));
    save(store, &shard, b"one of two").await;
    let outcome = save(store, &marker, MARKER).await.unwrap();
    assert!(is_pending(&outcome, "1 of 2 objects are missing"), "{outcome}");
    let read = Arc::new(AtomicUsize::new(0));
    let (seen, name) = (read.clone(), marker.clone());
    let counting = with_faults(&harness, &clock, move |call| {
        let is_marker = |name_of: &[u8]| name_of.starts_with(name.as_bytes());
        if call.op == CallKind::Read && call.key.is_some_and(|key| is_marker(&key.name)) {
            seen.fetch_add(1, Ordering::Relaxed);
        }
        Fault::None
    });
    let plans = || join_all((0..50).map(|_| counting.checkpoints().plan("b", "", None)));
    let planned_and_read = async { tokio::join!(plans(), view_of_bucket(&counting, &shard)) };
    let in_time = tokio::time::timeout(std::time::Duration::from_mins(1), planned_and_read);
    let (planned, other) = in_time.await.expect("plans end");
    assert!(planned.into_iter().all(|plan| plan.unwrap().0.is_empty()), "it may be completed yet");
    assert_eq!(other, "one of two");
    assert_eq!(read.load(Ordering::Relaxed), 0, "plans read the marker");
    upkeep(&counting).await;
    assert!(read.swap(0, Ordering::Relaxed) > 0, "the worker reads it");
    // A generation that can't be completed any more is planned, without its marker too.
    save(store, &shard, b"of the next save").await;
    let stuck = counting.checkpoints().plan("b", "", None).await.unwrap().0;
    assert_eq!(named(&stuck), [format!("{SET}@1")]);
    assert_eq!(read.load(Ordering::Relaxed), 0);
}

/// Reads an object of the bucket itself.
async fn view_of_bucket(store: &ObjectStore, key: &str) -> Bytes {
    let read = store.get("b", key, Selection::Whole, &ReadConditions::default()).await.unwrap();
    collect(read).await.unwrap()
}

/// A marker that takes a thread of its own.
#[tokio::test]
async fn long_markers_are_compared_too() {
    let rules = r#"{"rules": [{"pattern": "run-*/step-*/", "profile": "hf"}]}"#;
    let (harness, _) = ruled(rules).await;
    let (store, name) = (&harness.store, format!("{SET}model.safetensors.index.json"));
    let weights: Vec<String> =
        (0..20_000).map(|at| format!(r#""w{at}":"{}.st""#, at % 2)).collect();
    let marker = format!(r#"{{"weight_map": {{{}}}}}"#, weights.join(","));
    save(store, &format!("{SET}0.st"), b"0").await;
    let outcome = save(store, &name, marker.as_bytes()).await.unwrap();
    assert!(is_pending(&outcome, "1 of 2 objects are missing: 1.st"), "{outcome}");
    save(store, &format!("{SET}1.st"), b"1").await;
    assert_eq!(upkeep(store).await.done, 1);
    assert_eq!(view(store, &format!("{SET}1.st")).await.unwrap(), "1");
}
