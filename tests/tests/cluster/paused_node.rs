//! A storage node hangs for longer than every timeout, and then continues.

use std::time::{Duration, Instant};

use martlet_tests::bytes::chance;
use martlet_tests::checkers::Response;
use martlet_tests::cluster::ClusterPlan;
use martlet_tests::recorded::load::Load;

use super::{recorder, seconds};

/// Seconds; longer than the timeout of an index call, which is five seconds.
const PAUSE_SECONDS: f64 = 6.5;
/// Maximum time of a single call while a node hangs: two timeouts, with a second to spare.
const SLOWEST: Duration = Duration::from_secs(11);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r3_r5_a_node_hangs_under_load_and_goes_on() {
    let (mut chance, cluster) = (chance(), ClusterPlan::default().start().await);
    let recorder = recorder(&cluster).await;
    let load = Load { clients: 6, ..Load::default() };
    let load = load.start(&recorder, &cluster, &mut chance);
    seconds(1.0).await;
    let (begun, from) = (Instant::now(), recorder.count());
    cluster.nodes[2].pause();
    seconds(0.5).await;
    let mut client = recorder.client(&cluster, 0);
    let mut slowest = Duration::ZERO;
    for number in 0..10 {
        let asked = Instant::now();
        let (value, outcome) = client.put(&format!("hang/{number}")).await;
        if outcome == Response::Done {
            let read = client.get(&format!("hang/{number}")).await;
            assert_eq!(read, Response::Read(Some(value)), "a write that was acknowledged");
        }
        slowest = slowest.max(asked.elapsed());
    }
    println!("the slowest write and read took {slowest:?} while a node hung");
    assert!(slowest < SLOWEST);
    seconds((PAUSE_SECONDS - begun.elapsed().as_secs_f64()).max(0.0)).await;
    recorder.tally("a node hangs", from, begun.elapsed()).assert_errors(10);
    cluster.nodes[2].resume();
    seconds(1.5).await;
    load.stop().await;
    recorder.finish(&cluster).await;
}
