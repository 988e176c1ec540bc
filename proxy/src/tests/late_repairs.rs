//! Repairs of reads that arrive long after the read (rule T2).

use std::sync::Arc;

use martlet_protocol::backend::{CallKind, EntryWrite, WriteReply};
use martlet_protocol::id::BucketId;
use martlet_protocol::limits::FIRST_HAND_AGE_MS_MAX;
use martlet_protocol::register::WriteMode;
use martlet_protocol::testing::{Call, Fault, FaultyBackend};
use martlet_protocol::{Backend, BackendExt, DeviceId, ErrorKind, ManualClock, RegisterKind};
use parking_lot::Mutex;

use super::harness::{Harness, body, create, get, put, store_with};
use crate::{Selection, WriteConditions};

type HeldWrites = Arc<Mutex<Vec<(DeviceId, EntryWrite)>>>;

/// Delays the writes with which a proxy settles an entry that one device of three holds: repairs,
/// or the second half of a ballot.
async fn stopped(mode: WriteMode) {
    let clock = Arc::new(ManualClock::at(1_700_000_000_000));
    let harness = Harness::at(3, 3, clock.clone());
    create(&harness.store, "b").await;
    let held = HeldWrites::default();
    let keeps = held.clone();
    let choose = move |call: &Call<'_>| {
        let Some(write) = call.write.filter(|write| write.key.kind == RegisterKind::Object) else {
            return Fault::None;
        };
        if call.op != CallKind::Write || write.key.bucket == BucketId::ROOT {
            return Fault::None;
        }
        let first_hand = matches!(write.mode, WriteMode::Fresh | WriteMode::Settled);
        if first_hand && call.device == DeviceId(1) {
            return Fault::None;
        }
        if write.mode == mode {
            keeps.lock().push((call.device, write.clone()));
        }
        Fault::Refuse(ErrorKind::Unavailable)
    };
    let node: Arc<dyn Backend> = Arc::new(FaultyBackend::new(harness.memory.clone(), choose));
    let store = store_with(&node, 3, 3, 0, clock.clone());
    let bytes = body("x".into());
    put(&store, "k", bytes, WriteConditions::default()).await.unwrap_err();
    drop(get(&store, "k", Selection::Whole).await);
    let late = std::mem::take(&mut *held.lock());
    assert!(late.iter().any(|(device, _)| *device != DeviceId(1)), "{mode:?}: nothing was sent");
    clock.advance_ms(FIRST_HAND_AGE_MS_MAX + 1);
    for (device, write) in late {
        let reply = harness.memory.write(device, write).await.unwrap();
        assert_eq!(reply, WriteReply::OutOfTime, "{mode:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn t2_a_repair_of_what_was_read_long_ago_is_refused() {
    stopped(WriteMode::Repair).await;
}

#[tokio::test(start_paused = true)]
async fn t2_a_ballot_of_what_was_read_long_ago_is_refused() {
    stopped(WriteMode::Accept).await;
}
