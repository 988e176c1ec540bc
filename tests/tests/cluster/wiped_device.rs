//! A device is replaced by an empty one. It has no vote until it has synced, so no acknowledged
//! write is lost and no deleted object returns (rules G1 and G2).

use std::time::Duration;

use martlet_tests::bytes::chance;
use martlet_tests::checkers::Response;
use martlet_tests::cluster::ClusterPlan;
use martlet_tests::recorded::load::Load;

use super::{recorder, seconds, until};

const KEYS: usize = 16;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g1_an_empty_device_does_not_outvote_who_remembers() {
    let mut cluster = ClusterPlan { nodes: 3, devices: 1, ..ClusterPlan::default() }.start().await;
    let recorder = recorder(&cluster).await;
    let mut client = recorder.client(&cluster, 0);
    let keys: Vec<String> = (0..KEYS).map(|number| format!("w/{number:02}")).collect();
    for key in &keys {
        assert_eq!(client.put(key).await.1, Response::Done);
    }
    // The third node misses the following calls: half of the keys are deleted, half are written
    // again.
    cluster.nodes[2].kill();
    for (number, key) in keys.iter().enumerate() {
        let outcome =
            if number % 2 == 0 { client.delete(key).await } else { client.put(key).await.1 };
        assert_eq!(outcome, Response::Done, "{key}: {:?}", client.reply);
    }
    // The first node loses its data, and the second, the only one with the last writes, is away.
    cluster.nodes[0].kill();
    cluster.nodes[0].wipe(1);
    cluster.nodes[1].kill();
    cluster.nodes[0].spawn();
    cluster.nodes[2].spawn();
    seconds(2.0).await;
    let mut strict = recorder.client(&cluster, 1).at_level("strict");
    for key in &keys {
        strict.patience = Duration::from_secs(8);
        let read = strict.get(key).await;
        assert_eq!(read, Response::Unknown, "{key}: one who forgot and one who missed it");
    }
    cluster.nodes[1].spawn();
    cluster.start_all().await;
    until("the empty device has synced", Duration::from_secs(30), async || {
        let mut all = true;
        for key in &keys {
            all &= matches!(strict.get(key).await, Response::Read(_));
        }
        all
    })
    .await;
    recorder.finish(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g2_a_device_is_replaced_under_load() {
    let (mut chance, mut cluster) = (chance(), ClusterPlan::default().start().await);
    let recorder = recorder(&cluster).await;
    let load = Load { clients: 6, ..Load::default() };
    let load = load.start(&recorder, &cluster, &mut chance);
    seconds(1.5).await;
    cluster.nodes[3].kill();
    cluster.nodes[3].wipe(1);
    cluster.nodes[3].spawn();
    seconds(3.0).await;
    // Another node is away while the new device may still be syncing.
    cluster.nodes[0].kill();
    seconds(1.5).await;
    cluster.nodes[0].spawn();
    seconds(1.0).await;
    load.stop().await;
    cluster.start_all().await;
    recorder.finish(&cluster).await;
}
