//! Devices that are out, full, or fail in the middle: a write succeeds without them, or leaves
//! nothing.

use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use martlet_protocol::{DeviceId, ErrorKind};
use tokio::time::timeout;

use super::fixture::{CodedFixture, extents};
use crate::tests::extents::wayward::Conduct;
use crate::tests::harness::{body, pattern, put, settle};
use crate::{Error, NewBody, Result, StoreOptions, WriteConditions};

const OUT: Conduct = Conduct::Refuses(ErrorKind::Unavailable);
/// One data fragment, a row of blocks, and fragments that are too long for a retry.
const LENGTHS: [usize; 3] = [10_000, 900_000, 6_000_000];

fn kind<T>(result: Result<T>) -> Option<ErrorKind> {
    match result {
        Err(Error::Backend(error)) => Some(error.kind()),
        _ => None,
    }
}

/// Writes and checks an object, of which some fragments may be missing. Returns the number of
/// stored fragments of its first extent.
async fn held_after_put(fixture: &CodedFixture, bytes: &Bytes) -> usize {
    let written = fixture.put("key", bytes.clone()).await.unwrap();
    fixture.check(&written, bytes).await;
    fixture.held(extents(&written)[0].id).len()
}

#[tokio::test(start_paused = true)]
async fn a_device_that_does_not_take_its_fragment_is_stood_in_for() {
    for conduct in [
        OUT,
        Conduct::Refuses(ErrorKind::Full),
        Conduct::Refuses(ErrorKind::Internal),
        Conduct::WriteBreaks(60_000, ErrorKind::Unavailable),
        Conduct::WriteBreaks(0, ErrorKind::Full),
    ] {
        for length in LENGTHS {
            let fixture = CodedFixture::new("4+2", 9).await;
            let out = [2, 5].map(DeviceId);
            fixture.let_be(out, conduct);
            let bytes = pattern(length, 1);
            for _ in 0..2 {
                let written = fixture.put("key", bytes.clone()).await.unwrap();
                settle().await;
                fixture.check(&written, &bytes).await;
                for extent in extents(&written) {
                    let stored = fixture.encoded(&bytes.slice(..extent.length as usize));
                    let fragments = stored.iter().filter(|bytes| !bytes.is_empty()).count();
                    let held = fixture.held(extent.id);
                    assert_eq!(held.len(), fragments, "{conduct:?}, {length} bytes: {held:?}");
                    assert!(held.iter().all(|(_, device)| !out.contains(device)), "{conduct:?}");
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_fragment_that_is_not_what_was_sent_is_not_counted_and_does_not_stay() {
    let fixture = CodedFixture::new("4+2", 9).await;
    let wrong = [2, 5].map(DeviceId);
    fixture.let_be(wrong, Conduct::WritesAnother);
    let bytes = pattern(900_000, 1);
    for _ in 0..5 {
        let written = fixture.put("key", bytes.clone()).await.unwrap();
        settle().await;
        let held = fixture.held(extents(&written)[0].id);
        assert_eq!(held.len(), 6, "another device stands in");
        assert!(held.iter().all(|(_, device)| !wrong.contains(device)), "{held:?}");
        fixture.check(&written, &bytes).await;
    }
    let fixture = CodedFixture::new("4+2", 6).await;
    fixture.let_be([DeviceId(2)], Conduct::WritesAnother);
    let bytes = pattern(LENGTHS[2], 1);
    let written = fixture.put("key", bytes.clone()).await.unwrap();
    settle().await;
    let held = fixture.held(extents(&written)[0].id);
    assert!(held.len() == 5 && held.iter().all(|(_, device)| *device != DeviceId(2)), "{held:?}");
    fixture.check(&written, &bytes).await;
}

#[tokio::test(start_paused = true)]
async fn a_fragment_that_can_not_begin_again_is_given_up() {
    let bytes = pattern(16 << 20, 1);
    for taken in [1_500_000, 4_194_303] {
        let (fixture, device) = (CodedFixture::new("4+2", 7).await, DeviceId(3));
        fixture.let_be([device], Conduct::WriteBreaks(taken, ErrorKind::Unavailable));
        loop {
            let held = held_after_put(&fixture, &bytes).await;
            let was_asked = fixture.node.writes().contains(&device);
            assert_eq!(held, if was_asked { 5 } else { 6 }, "after {taken} bytes");
            if was_asked {
                break;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn up_to_the_last_that_can_be_missed_may_be_out_without_a_spare() {
    for (code, out) in [("4+2", 1), ("8+3", 2), ("2+2", 1)] {
        for length in LENGTHS {
            let devices = CodedFixture::new(code, 11).await.code().total();
            let fixture = CodedFixture::new(code, devices.into()).await;
            fixture.let_be((1..=out).map(DeviceId), OUT);
            let bytes = pattern(length, 1);
            let held = held_after_put(&fixture, &bytes).await;
            assert!(held <= usize::from(devices));
            fixture.let_be([DeviceId(out + 1)], OUT);
            tokio::time::sleep(Duration::from_secs(11)).await;
            if length < LENGTHS[2] {
                // The fragments may be on devices that are not out.
                continue;
            }
            let refused = fixture.put("other", bytes).await;
            assert_eq!(kind(refused), Some(ErrorKind::Unavailable), "{code}: m are out");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn m_may_be_out_where_there_are_others() {
    for code in ["2+1", "4+2", "8+3"] {
        let m: u32 = CodedFixture::new(code, 11).await.code().m().into();
        for length in LENGTHS {
            let fixture = CodedFixture::new(code, 14).await;
            fixture.let_be((1..=m).map(DeviceId), OUT);
            let bytes = pattern(length, 1);
            let written = fixture.put("key", bytes.clone()).await.unwrap();
            fixture.check(&written, &bytes).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn too_few_devices_refuse_a_write_and_keep_nothing() {
    let bytes = pattern(LENGTHS[2], 1);
    for (code, devices, out) in [("2+1", 3, 1), ("4+2", 6, 3), ("4+2", 7, 4), ("8+3", 11, 4)] {
        for conduct in [OUT, Conduct::WriteBreaks(100_000, ErrorKind::Unavailable)] {
            let fixture = CodedFixture::new(code, devices).await;
            fixture.let_be((1..=out).map(DeviceId), conduct);
            let refused = fixture.put("key", bytes.clone()).await;
            assert_eq!(kind(refused), Some(ErrorKind::Unavailable), "{code}: {conduct:?}");
            fixture.let_be(fixture.devices(), Conduct::Well);
            tokio::time::sleep(Duration::from_secs(20)).await;
            assert!(fixture.node.memory.extents_in_use().is_empty(), "{code}: {conduct:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_cluster_returns_insufficient_storage() {
    let fixture = CodedFixture::new("4+2", 8).await;
    fixture.devices().iter().for_each(|device| fixture.node.memory.set_full(*device, true));
    assert_eq!(kind(fixture.put("key", pattern(900_000, 1)).await), Some(ErrorKind::Full));
    fixture.node.memory.set_full(DeviceId(1), false);
    assert_eq!(kind(fixture.put("key", pattern(900_000, 1)).await), Some(ErrorKind::Full));
    tokio::time::sleep(Duration::from_secs(11)).await;
    (2..=6).for_each(|device| fixture.node.memory.set_full(DeviceId(device), false));
    held_after_put(&fixture, &pattern(900_000, 1)).await;
}

#[tokio::test(start_paused = true)]
async fn fragments_count_by_disks_where_machines_are_out() {
    // Six machines of two disks: four machines are fewer than the fragments of an extent.
    let fixture = CodedFixture::with("4+2", 12, 2, StoreOptions::default()).await;
    fixture.let_be((1..=4).map(DeviceId), OUT);
    let bytes = pattern(900_000, 1);
    assert_eq!(held_after_put(&fixture, &bytes).await, 6);
    // Three machines of four disks: fragments can only be spread over disks.
    let few = CodedFixture::with("4+2", 12, 4, StoreOptions::default()).await;
    few.let_be((1..=4).map(DeviceId), OUT);
    for seed in 0..5 {
        assert_eq!(held_after_put(&few, &pattern(900_000, seed)).await, 6);
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_that_is_cut_off_leaves_nothing_anywhere() {
    let bytes = pattern(6_000_000, 1);
    for cut_ms in (0..60).step_by(4) {
        for size in [Some(6_000_000), None] {
            let fixture = CodedFixture::new("4+2", 8).await;
            fixture.let_be([DeviceId(2)], Conduct::WriteSlow(Duration::from_millis(7)));
            fixture.let_be([DeviceId(4)], OUT);
            let new_body = body(bytes.clone());
            let slow = new_body.bytes.then(|piece| async {
                tokio::time::sleep(Duration::from_millis(10)).await;
                piece
            });
            let new_body = NewBody { bytes: slow.boxed(), size, ..body(Bytes::new()) };
            let write = put(&fixture.store, "key", new_body, WriteConditions::default());
            timeout(Duration::from_millis(cut_ms), write).await.expect_err("it takes longer");
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert!(fixture.node.memory.extents_in_use().is_empty(), "cut off after {cut_ms} ms");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_with_a_wrong_checksum_leaves_nothing() {
    let fixture = CodedFixture::new("4+2", 8).await;
    let bytes = pattern(6_000_000, 1);
    let (short, long) = (Some(6_000_001), Some(5_999_999));
    for new_body in [
        NewBody { md5: Some([9; 16]), ..body(bytes.clone()) },
        NewBody { md5: Some([9; 16]), size: None, ..body(bytes.clone()) },
        NewBody { size: short, ..body(bytes.clone()) },
        NewBody { size: long, ..body(bytes.clone()) },
    ] {
        put(&fixture.store, "key", new_body, WriteConditions::default()).await.unwrap_err();
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert!(fixture.node.memory.extents_in_use().is_empty());
    }
}
