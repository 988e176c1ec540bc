//! Objects that a client overwrote short of a quorum (rule A1).

use std::time::Duration;

use martlet_protocol::{AchievedLevel, BucketId, Level};
use parking_lot::Mutex;

use super::super::nodes::Nodes;
use super::*;

/// The newer write is on one primary and on a handoff. A rule about the older one must not overtake it.
#[tokio::test(start_paused = true)]
async fn a1_a_write_that_is_kept_for_others_is_not_expired() {
    let clock = Arc::new(ManualClock::at(SystemClock.now_ms()));
    let nodes = Nodes::timed(6, 1, clock.clone());
    let (_, primaries, handoffs) = nodes.with_bucket("key").await;
    let cut_off = Arc::new(Mutex::new(Vec::new()));
    let silent = cut_off.clone();
    let proxy = nodes.proxy_with(60_000, move |call| {
        let is_of_root = call.key.is_some_and(|key| key.bucket == BucketId::ROOT);
        if silent.lock().contains(&call.device) && !is_of_root {
            return Fault::Delay(Duration::from_secs(1_000_000));
        }
        Fault::None
    });
    let cut = |devices: &[_]| *cut_off.lock() = devices.to_vec();
    let register = proxy.register("key").await;
    let stretch = Stretch { bucket: "b".into(), shard: register.shard, after: None, day: DAY };
    proxy.put(Level::Strict, "key", "old").await.unwrap();
    let document = rules([expiring("", 1)]).document();
    proxy.store.buckets().put_setting("b", Setting::Lifecycle, document).await.unwrap();
    clock.advance_ms(2 * DAY.ms());
    cut(&primaries[..2]);
    let (given, _) = proxy.put(Level::Available, "key", "new").await.unwrap();
    assert_eq!(given, AchievedLevel::Degraded);
    // Seen from the other side, the quorum has the older object, and the hint can be read or not.
    for unseen in [&primaries[2..], &[&primaries[2..], &handoffs].concat()] {
        cut(unseen);
        let carried = proxy.store.carry_out(&stretch).await.unwrap();
        assert_eq!((carried.seen, carried.done, carried.kept), (1, 0, 1), "without {unseen:?}");
    }
    cut(&[]);
    nodes.deliver().await;
    assert_eq!(proxy.get(Level::Strict, "key").await.unwrap().1, "new");
    assert_eq!(proxy.store.carry_out(&stretch).await.unwrap().done, 0, "it is not due");
    clock.advance_ms(3 * DAY.ms());
    assert_eq!(proxy.store.carry_out(&stretch).await.unwrap().done, 1);
}
