//! A long load with random faults of all members: `make soak-cluster`.

use std::time::{Duration, Instant};

use martlet_tests::bytes::chance;
use martlet_tests::cluster::{ClusterMember, ClusterPlan, TestCluster};
use martlet_tests::recorded::load::Load;
use martlet_tests::recorded::{Recorder, SOURCES};
use rand::Rng;
use rand::rngs::SmallRng;

use super::{make_bucket, recorder, seconds};

/// Space for the writes of a soak of some minutes.
const DISK_MIB: u64 = 1024;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it takes MARTLET_SOAK_SECONDS (300)"]
async fn everything_happens_under_load() {
    let time = std::env::var("MARTLET_SOAK_SECONDS").map_or(300, |text| text.parse().unwrap());
    let test = "everything_happens_under_load";
    let disks = [DISK_MIB; 4];
    let Some(mut cluster) = ClusterPlan::default().start_on_machines(test, &disks).await else {
        return;
    };
    let mut chance = chance();
    make_bucket(&cluster, SOURCES).await;
    let begun = Instant::now();
    for round in 0.. {
        if begun.elapsed() > Duration::from_secs(time) {
            break;
        }
        // Checking time grows faster than a history, so each round has its own history.
        let bucket = format!("round-{round}");
        make_bucket(&cluster, &bucket).await;
        let recorder = Recorder::new(&bucket);
        let load = Load::default().start(&recorder, &cluster, &mut chance);
        for _ in 0..4 {
            misfortune(&mut cluster, &mut chance).await;
        }
        load.stop().await;
        recorder.finish(&cluster).await;
    }
}

/// Causes one random fault for 0.5 to 4 s.
async fn misfortune(cluster: &mut TestCluster, chance: &mut SmallRng) {
    let (node, proxy) = (chance.random_range(0..4), chance.random_range(0..3));
    let while_it_lasts = chance.random_range(0.5..4.0);
    let names = (format!("n{}", node + 1), format!("p{}", proxy + 1));
    let what = chance.random_range(0..11);
    println!("misfortune {what} of {names:?} for {while_it_lasts:.1} s");
    match what {
        0 => cluster.nodes[node].kill(),
        1 => cluster.proxies[proxy].kill(),
        2 => cluster.nodes[node].pause(),
        3 => cluster.network().cut(&names.0, &names.1),
        4 => cluster.network().cut_one_way(&names.0, &names.1),
        5 => cluster.network().lose(&names.0, &names.1, 20),
        6 => {
            cluster.nodes[node].kill();
            cluster.nodes[node].wipe(1);
        }
        7 => ClusterMember::cut_power([&mut cluster.nodes[node]]),
        8 => ClusterMember::cut_power(&mut cluster.nodes),
        9 => cluster.nodes[node].disk().fill_up_to(chance.random_range(0..4 << 20)),
        _ => {
            cluster.nodes[node].kill();
            let offset_ms = chance.random_range(-300_000..300_000);
            cluster.nodes[node].set("MARTLET_TEST_CLOCK_OFFSET_MS", &offset_ms.to_string());
            cluster.nodes[node].start().await;
        }
    }
    seconds(while_it_lasts).await;
    match what {
        2 => cluster.nodes[node].resume(),
        9 => cluster.nodes[node].disk().give_room(),
        _ => {}
    }
    cluster.network().heal();
    cluster.start_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it takes a minute"]
async fn a_large_history_is_checked() {
    let (mut chance, cluster) = (chance(), ClusterPlan::default().start().await);
    let recorder = recorder(&cluster).await;
    let load = Load { clients: 24, keys: 40, pause: Duration::ZERO, ..Load::default() };
    load.run(&recorder, &cluster, &mut chance, Duration::from_secs(45)).await;
    recorder.finish(&cluster).await;
}
