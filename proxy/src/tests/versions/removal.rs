//! Removal of the current version: the search for the next one goes before the ballot.

use std::sync::Arc;
use std::time::Duration;

use martlet_protocol::backend::CallKind;
use martlet_protocol::testing::Fault;
use parking_lot::Mutex;
use tokio::time::sleep;

use super::{put_version, shown, versioned};
use crate::tests::harness::faulty;

#[tokio::test]
async fn nothing_is_listed_between_the_promise_and_the_write() {
    let harness = versioned().await;
    let mut ids = Vec::new();
    for bytes in ["1", "22", "333"] {
        ids.push(put_version(&harness.store, "k", bytes).await.unwrap());
    }
    for (id, expected) in [(ids[2], vec!["k 2*", "k 1"]), (ids[1], vec!["k 1*"]), (ids[0], vec![])]
    {
        let calls = Arc::new(Mutex::new(Vec::new()));
        let noted = calls.clone();
        let store = faulty(&harness.memory, 3, 3, move |call| {
            noted.lock().push(call.op);
            Fault::None
        });
        store.versions().delete("b", "k", id).await.unwrap();
        let calls = calls.lock().clone();
        let promise = calls.iter().position(|op| *op == CallKind::Promise).unwrap();
        assert!(calls[..promise].contains(&CallKind::ListRows), "{calls:?}");
        assert!(!calls[promise..].contains(&CallKind::ListRows), "{calls:?}");
        assert_eq!(shown(&harness.store).await, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn r8_a_version_that_went_after_the_search_does_not_become_current() {
    let harness = versioned().await;
    let mut ids = Vec::new();
    for bytes in ["1", "22", "333"] {
        ids.push(put_version(&harness.store, "k", bytes).await.unwrap());
    }
    let slow = faulty(&harness.memory, 3, 3, |call| match call.op {
        CallKind::Promise => Fault::Delay(Duration::from_millis(100)),
        _ => Fault::None,
    });
    let meanwhile = async {
        sleep(Duration::from_millis(50)).await;
        harness.store.versions().delete("b", "k", ids[1]).await.unwrap();
    };
    let (removed, ()) = tokio::join!(slow.versions().delete("b", "k", ids[2]), meanwhile);
    removed.unwrap();
    assert_eq!(shown(&harness.store).await, ["k 1*"]);
}
