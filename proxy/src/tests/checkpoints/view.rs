//! Listings and reads of the view.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use martlet_protocol::testing::Fault;
use martlet_protocol::{DeviceId, ErrorKind};
use tokio::time::Instant;

use super::*;
use crate::checkpoints::SetId;

/// Two sets, a pending one, and objects around them.
async fn furnished() -> (Harness, Arc<ManualClock>) {
    let (harness, clock) = ruled(RULES).await;
    let store = &harness.store;
    for key in ["a", "run-1/notes", "run-1/step-1", "run-1/step-10x", "run-2", "z"] {
        save(store, key, b"outside").await;
    }
    for set in [SET, "run-1/step-10/"] {
        assert_eq!(save_set(store, set, b"one").await, committed(1));
        save(store, &format!("{set}after-the-marker"), b"hidden").await;
    }
    save(store, "run-3/step-1/.metadata", MARKER).await.unwrap();
    (harness, clock)
}

#[tokio::test]
async fn a_listing_shows_complete_sets_and_keys_without_a_rule() {
    let (harness, _) = furnished().await;
    let store = &harness.store;
    let all = [
        "a",
        "run-1/notes",
        "run-1/step-1",
        "run-1/step-1/.metadata",
        "run-1/step-1/__0_0.distcp",
        "run-1/step-1/__1_0.distcp",
        "run-1/step-10/.metadata",
        "run-1/step-10/__0_0.distcp",
        "run-1/step-10/__1_0.distcp",
        "run-1/step-10x",
        "run-2",
        "z",
    ];
    assert_eq!(listed(store, "", None).await, all);
    assert_eq!(listed(store, "", Some("/")).await, ["a", "run-1/", "run-2", "z"]);
    let folded =
        ["run-1/notes", "run-1/step-1", "run-1/step-1/", "run-1/step-10/", "run-1/step-10x"];
    assert_eq!(listed(store, "run-1/", Some("/")).await, folded);
    assert_eq!(listed(store, SET, Some("/")).await, all[3..6]);
    assert_eq!(listed(store, "run-1/step-1/__", None).await, all[4..6]);
    assert_eq!(listed(store, "run-1/step-1/.", None).await, all[3..4]);
    assert_eq!(listed(store, "run-1/step-10", None).await, all[6..10]);
    assert_eq!(listed(store, "run-3/", None).await, [""; 0], "it is pending");
    let numbered: Vec<_> = [".metadata", "__0_0.distcp", "__1_0.distcp"]
        .map(|name| format!("run-1/step-1@1/{name}"))
        .into();
    assert_eq!(listed(store, "run-1/step-1@1/", None).await, numbered);
    assert_eq!(listed(store, "run-1/step-1@2/", None).await, [""; 0]);
}

#[tokio::test]
async fn pages_of_any_length_make_the_same_listing() {
    let (harness, _) = furnished().await;
    let store = &harness.store;
    for (prefix, delimiter) in [("", None), ("", Some("/")), ("run-1/", Some("/")), ("", Some("_"))]
    {
        let whole = listed(store, prefix, delimiter).await;
        for limit in 1..=whole.len() {
            let (mut names, mut after) = (Vec::new(), None);
            loop {
                let list = ListObjects {
                    prefix: prefix.into(),
                    delimiter: delimiter.map(str::to_owned),
                    after: after.take(),
                    limit,
                    ..ListObjects::default()
                };
                let page = store.checkpoints().list("b", &list).await.unwrap();
                let count = page.objects.len() + page.prefixes.len();
                assert!(count <= limit && (count == limit || page.next.is_none()));
                let keys = page.objects.into_iter().map(|(key, _)| key);
                names.extend(keys.chain(page.prefixes));
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
            names.sort();
            assert_eq!(names, whole, "{prefix:?} {delimiter:?} by {limit}");
        }
    }
}

#[tokio::test]
async fn listed_objects_are_those_that_are_read() {
    let (harness, _) = furnished().await;
    let store = &harness.store;
    let list = ListObjects { limit: 1000, ..ListObjects::default() };
    let page = store.checkpoints().list("b", &list).await.unwrap();
    for (key, object) in page.objects {
        let bytes = view(store, &key).await.unwrap();
        assert_eq!(bytes.len() as u64, object.size, "{key}");
    }
}

/// Devices that don't answer about one manifest delay no reader of another.
#[tokio::test(start_paused = true)]
async fn a_manifest_that_is_slow_keeps_no_other_set_waiting() {
    const SLOW: Duration = Duration::from_secs(1);
    let (harness, clock) = ruled(RULES).await;
    for set in [SET, "run-2/step-1/"] {
        save_set(&harness.store, set, b"one").await;
    }
    let slow_id = SetId::of(SET).text();
    let store = with_faults(&harness, &clock, move |call| match call.key {
        Some(key) if key.name.starts_with(format!("m/{slow_id}/").as_bytes()) => Fault::Delay(SLOW),
        _ => Fault::None,
    });
    let (shard, began) = (format!("{SET}__0_0.distcp"), Instant::now());
    let other = async {
        // The slow reads are under way.
        tokio::time::sleep(SLOW / 10).await;
        let read = view(&store, "run-2/step-1/__0_0.distcp").await;
        (read, began.elapsed())
    };
    let (slow, (other, took)) = tokio::join!(view(&store, &shard), other);
    assert_eq!((slow.unwrap(), other.unwrap()), ("one".into(), "one".into()));
    assert!(took < SLOW && began.elapsed() >= SLOW, "{took:?}");
}

#[tokio::test]
async fn a_view_without_a_quorum_is_an_error_and_never_shorter() {
    let (harness, clock) = furnished().await;
    let is_down = Arc::new(AtomicBool::new(false));
    let down = is_down.clone();
    let store = with_faults(&harness, &clock, move |call| {
        let is_out = down.load(Ordering::Relaxed) && call.device != DeviceId(1);
        if is_out { Fault::Refuse(ErrorKind::Unavailable) } else { Fault::None }
    });
    assert_eq!(view(&store, &format!("{SET}__0_0.distcp")).await.unwrap(), "one");
    is_down.store(true, Ordering::Relaxed);
    for key in [&format!("{SET}.metadata"), "run-1/step-1@1/.metadata", "run-9/step-9/x"] {
        assert!(matches!(view(&store, key).await, Err(Error::Backend(_))), "{key}");
    }
    for prefix in ["", SET, "run-1/step-1@1/"] {
        let list = ListObjects { prefix: prefix.into(), limit: 1000, ..ListObjects::default() };
        let listed = store.checkpoints().list("b", &list).await;
        assert!(matches!(listed, Err(Error::Backend(_))), "{prefix}");
    }
}
