//! Devices that are slow, stop, or hang while they receive fragments, and slow clients.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use martlet_protocol::{DeviceId, ErrorKind};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::fixture::{CodedFixture, extents};
use crate::tests::extents::wayward::Conduct;
use crate::tests::harness::{body, pattern, put};
use crate::{Error, NewBody, WriteConditions};

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[tokio::test(start_paused = true)]
async fn a_device_that_hangs_costs_a_short_grace_and_soon_nothing() {
    let fixture = CodedFixture::new("4+2", 6).await;
    fixture.let_be([DeviceId(2)], Conduct::Hangs);
    let bytes = pattern(900_000, 1);
    let begun = Instant::now();
    let written = fixture.put("key", bytes.clone()).await.unwrap();
    fixture.check(&written, &bytes).await;
    assert_eq!((begun.elapsed(), fixture.held(extents(&written)[0].id).len()), (ms(250), 5));
    let fixture = CodedFixture::new("4+2", 7).await;
    fixture.let_be([DeviceId(2)], Conduct::Hangs);
    let begun = Instant::now();
    for seed in 0..60 {
        fixture.put("key", pattern(900_000, seed)).await.unwrap();
    }
    assert!(begun.elapsed() <= ms(1500), "{:?}", begun.elapsed());
    let written = fixture.put("key", bytes.clone()).await.unwrap();
    assert_eq!(fixture.held(extents(&written)[0].id).len(), 6, "another device stands in");
}

#[tokio::test(start_paused = true)]
async fn a_slow_device_does_not_set_the_pace() {
    for conduct in [
        Conduct::WriteSlow(ms(300)),
        Conduct::WriteStalls(100_000),
        Conduct::WriteStalls(2_000_000),
    ] {
        let fixture = CodedFixture::new("4+2", 6).await;
        fixture.let_be([DeviceId(1)], conduct);
        let bytes = pattern(40_000_000, 1);
        let begun = Instant::now();
        let written = fixture.put("key", bytes.clone()).await.unwrap();
        // Three extents, each of which waits for a short grace period.
        assert!(begun.elapsed() < Duration::from_secs(8), "{conduct:?}: {:?}", begun.elapsed());
        fixture.check(&written, &bytes).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_fragment_that_is_late_goes_on_behind_its_write() {
    let fixture = CodedFixture::new("4+2", 6).await;
    fixture.let_be([DeviceId(2)], Conduct::WritesLate(ms(3000)));
    let bytes = pattern(900_000, 1);
    let begun = Instant::now();
    let written = fixture.put("key", bytes.clone()).await.unwrap();
    assert_eq!(begun.elapsed(), ms(250));
    tokio::time::sleep(Duration::from_secs(4)).await;
    fixture.check_at_home(&written, &bytes).await;
}

#[tokio::test(start_paused = true)]
async fn devices_that_can_not_be_missed_are_waited_for_and_given_up_in_the_end() {
    let fixture = CodedFixture::new("2+1", 3).await;
    fixture.let_be([DeviceId(2)], Conduct::WritesLate(Duration::from_secs(40)));
    let bytes = pattern(6_000_000, 1);
    let written = fixture.put("key", bytes.clone()).await.unwrap();
    fixture.check_at_home(&written, &bytes).await;
    for conduct in [Conduct::Hangs, Conduct::WriteStalls(1_500_000)] {
        let fixture = CodedFixture::new("2+1", 3).await;
        fixture.let_be([DeviceId(2)], conduct);
        let begun = Instant::now();
        let refused = fixture.put("key", bytes.clone()).await;
        assert!(matches!(refused, Err(Error::Backend(e)) if e.kind() == ErrorKind::Unavailable));
        assert!(begun.elapsed() < Duration::from_secs(130), "{:?}", begun.elapsed());
        fixture.let_be([DeviceId(2)], Conduct::Well);
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert!(fixture.node.memory.extents_in_use().is_empty(), "{conduct:?}");
    }
}

/// Fragments that have not begun don't make up for a stalled one: one of their devices is out.
#[tokio::test(start_paused = true)]
async fn fragment_writes_that_have_not_begun_do_not_count() {
    let bytes = pattern(16 << 20, 1);
    for _ in 0..8 {
        let fixture = CodedFixture::new("4+2", 6).await;
        fixture.let_be([DeviceId(1)], Conduct::WritesLate(Duration::from_secs(8)));
        fixture.let_be([DeviceId(2)], Conduct::Refuses(ErrorKind::Unavailable));
        let slow = body(bytes.clone()).bytes.then(|piece| async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            piece
        });
        let new_body = NewBody { bytes: slow.boxed(), ..body(bytes.clone()) };
        let written =
            put(&fixture.store, "key", new_body, WriteConditions::default()).await.unwrap();
        fixture.check(&written, &bytes).await;
        assert_eq!(fixture.held(extents(&written)[0].id).len(), 5);
    }
}

/// Small chunks fill the channel of a fragment before its last one. Two devices that pause once are
/// waited for, because no other device can take their fragments.
#[tokio::test(start_paused = true)]
async fn a_fragment_is_not_cut_off_for_those_that_have_not_begun() {
    let bytes = pattern(16 << 20, 1);
    // Ids, and so homes, differ.
    for _ in 0..8 {
        let fixture = CodedFixture::new("4+2", 6).await;
        fixture.let_be([DeviceId(1), DeviceId(2)], Conduct::Late(ms(1000)));
        let mut rest = bytes.clone();
        let chunks = std::iter::from_fn(move || {
            (!rest.is_empty()).then(|| Ok(rest.split_to(rest.len().min(16 << 10))))
        });
        let small = futures::stream::iter(chunks).boxed();
        let new_body = NewBody { bytes: small, ..body(bytes.clone()) };
        let written =
            put(&fixture.store, "key", new_body, WriteConditions::default()).await.unwrap();
        fixture.check(&written, &bytes).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_client_is_not_taken_for_slow_devices_and_keeps_none_waiting() {
    let fixture = CodedFixture::new("2+1", 3).await;
    let bytes = pattern(6_000_000, 1);
    let slow = body(bytes.clone()).bytes.then(|piece| async {
        tokio::time::sleep(Duration::from_secs(90)).await;
        piece
    });
    let (node, ready_counts) = (fixture.node.clone(), Arc::new(Mutex::new(Vec::new())));
    let noted = ready_counts.clone();
    let watched = slow.inspect(move |_| noted.lock().push(node.writes().len()));
    let new_body = NewBody { bytes: watched.boxed(), ..body(bytes.clone()) };
    let written = put(&fixture.store, "key", new_body, WriteConditions::default()).await.unwrap();
    fixture.check_at_home(&written, &bytes).await;
    // The first fragment, and in the middle the second with parity.
    assert_eq!(*ready_counts.lock(), [0, 1, 0, 0, 2, 0, 0]);
}
