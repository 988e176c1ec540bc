//! Devices that lost the fences of buckets, beside proxies with an old bucket in their caches (rule M2).

use martlet_protocol::testing::Fault;
use martlet_protocol::{BackendExt, ErrorKind, Versioning};

use super::super::harness::faulty;
use super::super::nodes::Nodes;
use super::*;

/// A plain write of a proxy that doesn't know of versions meets a device without the fence. Its peers
/// refuse the write; if the device stored it, a later ballot would bring it over the version.
#[tokio::test(start_paused = true)]
async fn m2_o1_a_version_outlives_a_plain_write_that_meets_a_device_without_fences() {
    for is_voting in [true, false] {
        for lost in 0..3 {
            let nodes = Nodes::new(5);
            let (proxy, primaries, _) = nodes.with_bucket("key").await;
            // Its write is ordered above the version, as that of a PUT whose body ends later.
            let old = nodes.early_proxy(10_000);
            old.store.bucket("b").await.unwrap();
            proxy.store.buckets().set_versioning("b", true).await.unwrap();
            let first = put_version(&proxy.store, "key", "acknowledged").await.unwrap();
            let device = primaries[lost];
            nodes.memory(device).forget_fences(device);
            nodes.memory(device).set_voting(device, is_voting).await.unwrap();
            // The old proxy is refused, reads the bucket again, and adds a version.
            let _ = put(&old.store, "key", body("late".into()), WriteConditions::default()).await;
            nodes.memory(device).set_voting(device, true).await.unwrap();
            for reader in [&proxy, &old] {
                let held = get_version(&reader.store, "key", first).await;
                assert_eq!(held.unwrap(), "acknowledged", "device {device}, voting {is_voting}");
            }
            let names: Vec<_> =
                all_versions(&proxy.store).await.into_iter().map(|it| it.id).collect();
            assert!(names.contains(&first), "{names:?}");
        }
    }
}

#[tokio::test]
async fn m2_versioning_is_enabled_again_only_once_every_device_is_fenced() {
    let harness = versioned().await;
    harness.store.buckets().set_versioning("b", false).await.unwrap();
    let store = faulty(&harness.memory, 3, 3, |call| {
        let is_out =
            call.op == martlet_protocol::backend::CallKind::Fence && call.device == DeviceId(2);
        if is_out { Fault::Refuse(ErrorKind::Unavailable) } else { Fault::None }
    });
    let refused = store.buckets().set_versioning("b", true).await;
    assert!(matches!(refused, Err(Error::Backend(_))), "{refused:?}");
    // The setting is stored; the repetition fences the device.
    assert_eq!(store.buckets().versioning("b").await.unwrap(), Versioning::Enabled);
    harness.store.buckets().set_versioning("b", true).await.unwrap();
    // A suspension keeps null versions alone, so a quorum is enough.
    store.buckets().set_versioning("b", false).await.unwrap();
}
