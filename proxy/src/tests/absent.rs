//! Requests on absent keys: they leave nothing behind on any replica.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use martlet_protocol::backend::CallKind;
use martlet_protocol::testing::Fault;
use martlet_protocol::{BackendExt, DeviceId, VersionId};

use super::harness::{Harness, body, create, faulty, put, settle};
use crate::{ETagCondition, Error, ObjectName, WriteConditions};

fn any() -> WriteConditions {
    WriteConditions { if_match: Some(ETagCondition::Any), if_none_match: None }
}

/// Number of registers of all devices, including registers with only a promise.
async fn rows(harness: &Harness) -> usize {
    let mut count = 0;
    for device in (1..=3).map(DeviceId) {
        let all = BackendExt::registers(&*harness.memory, device, None, usize::MAX).await.unwrap();
        count += all.len();
    }
    count
}

#[tokio::test]
async fn conditions_on_absent_keys_leave_no_rows() {
    for keeps_versions in [false, true] {
        let harness = Harness::new(3, 3);
        create(&harness.store, "b").await;
        if keeps_versions {
            harness.store.buckets().set_versioning("b", true).await.unwrap();
        }
        settle().await;
        let (store, before) = (&harness.store, rows(&harness).await);
        for number in 0..50 {
            let key = format!("key {number}");
            let written = put(store, &key, body("x".into()), any()).await;
            assert!(matches!(written, Err(Error::NoSuchKey)), "{written:?}");
            let deleted = store.delete("b", &key, &any()).await;
            assert!(deleted.is_err() || deleted.is_ok_and(|it| it.stamp.is_none()));
            let tagged = store.versions().set_tags("b", &*key, Vec::new()).await;
            assert!(matches!(tagged, Err(Error::NoSuchKey)), "{tagged:?}");
            let marked = store.versions().change_marks("b", &*key, |_, _| Ok(())).await;
            assert!(matches!(marked, Err(Error::NoSuchKey)), "{marked:?}");
            let name = ObjectName { key: &key, version: Some(VersionId::Null) };
            store.versions().set_tags("b", name, Vec::new()).await.unwrap_err();
            if keeps_versions {
                store.versions().delete("b", &key, VersionId::Null).await.unwrap();
            }
        }
        assert_eq!(rows(&harness).await, before, "keeps versions: {keeps_versions}");
    }
}

/// The ballot decides on the present state, not on the read before it.
#[tokio::test]
async fn a_write_after_the_absence_check_is_found_by_the_ballot() {
    let harness = Harness::new(3, 3);
    create(&harness.store, "b").await;
    harness.put("key", "first").await.unwrap();
    let promises = Arc::new(AtomicUsize::new(0));
    let counted = promises.clone();
    let store = faulty(&harness.memory, 3, 3, move |call| {
        if call.op == CallKind::Promise {
            counted.fetch_add(1, Ordering::SeqCst);
        }
        Fault::None
    });
    put(&store, "key", body("second".into()), any()).await.unwrap();
    assert!(promises.load(Ordering::SeqCst) >= 2);
}
