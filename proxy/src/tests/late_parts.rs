//! Parts acknowledged without a quorum: a Complete that names such a part finds it or reports an
//! unknown outcome. It never reports that the part is absent (rules A1, M1).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures::FutureExt;
use martlet_protocol::backend::CallKind;
use martlet_protocol::entry::Attributes;
use martlet_protocol::testing::{Call, Fault};
use martlet_protocol::{Clock, SystemClock};
use martlet_protocol::{DeviceId, ErrorKind, RegisterKind, UploadId};

use super::harness::{body, create, pattern};
use super::multipart::naming;
use super::nodes::{Fortune, Nodes, Proxy};
use crate::{CompleteUpload, Error, NewUpload, Result};

fn is_unavailable<T>(outcome: &Result<T>) -> bool {
    matches!(outcome, Err(Error::Backend(error)) if error.kind() == ErrorKind::Unavailable)
}

/// Selects writes of parts, to refuse them as if the primaries were out.
fn refuses_parts(call: &Call<'_>) -> bool {
    call.op == CallKind::Write && call.key.is_some_and(|key| key.kind == RegisterKind::Part)
}

/// Makes an upload whose only part is kept as hints on handoffs. Returns the proxy used, and the
/// request that completes the upload.
async fn kept(nodes: &Nodes) -> (Proxy, UploadId, CompleteUpload, Bytes) {
    let out = Arc::new(AtomicBool::new(true));
    let still = out.clone();
    let proxy = nodes.proxy_with(60_000, move |call| {
        if refuses_parts(call) && still.load(Ordering::SeqCst) {
            return Fault::Refuse(ErrorKind::Unavailable);
        }
        Fault::None
    });
    create(&proxy.store, "b").await;
    let new = NewUpload { attributes: Attributes::default(), checksum: None };
    let upload = proxy.store.uploads().create("b", "key", new).await.unwrap().id;
    let bytes = pattern(50_000, 1);
    let part = proxy.store.uploads().put_part("b", "key", upload, 1, body(bytes.clone())).await;
    // A refusal does not prove that the device has no trace of the write, so handoffs take it.
    let part = part.unwrap();
    out.store(false, Ordering::SeqCst);
    (proxy, upload, naming(&[(1, &part)]), bytes)
}

async fn keepers(nodes: &Nodes) -> Vec<DeviceId> {
    let mut keepers = Vec::new();
    for device in nodes.ring.devices().iter().map(|device| device.id) {
        if !nodes.hinted(device).await.is_empty() {
            keepers.push(device);
        }
    }
    keepers
}

#[tokio::test(start_paused = true)]
async fn m1_a_part_that_is_kept_for_others_is_waited_for() {
    let nodes = Nodes::new(6);
    let (proxy, upload, complete, bytes) = kept(&nodes).await;
    let keepers = keepers(&nodes).await;
    assert!(!keepers.is_empty(), "the part was acknowledged short of a quorum");
    for fortune in [Fortune::Good, Fortune::Refused, Fortune::Silent] {
        proxy.fares(&keepers, fortune);
        let outcome = proxy.store.uploads().complete("b", "key", upload, complete.clone()).await;
        assert!(is_unavailable(&outcome), "{fortune:?}: {outcome:?}");
        proxy.heal();
    }
    nodes.deliver().await;
    proxy.store.uploads().complete("b", "key", upload, complete).await.unwrap();
    let read = super::harness::get(&proxy.store, "key", crate::Selection::Whole).await;
    assert_eq!(read.unwrap(), bytes);
}

#[tokio::test(start_paused = true)]
async fn m1_a_part_that_arrives_while_it_is_looked_for_is_found() {
    let nodes = Arc::new(Nodes::new(6));
    let (_, upload, complete, bytes) = kept(&nodes).await;
    let (courier, delivered) = (nodes.clone(), AtomicBool::new(false));
    let proxy = nodes.proxy_with(60_000, move |call| {
        // The Complete has looked for parts on their primaries, and now lists hints: delivers them.
        if call.op == CallKind::ListHints && !delivered.swap(true, Ordering::SeqCst) {
            courier.deliver().now_or_never().expect("devices in memory answer at once");
        }
        Fault::None
    });
    proxy.store.uploads().complete("b", "key", upload, complete).await.unwrap();
    assert!(keepers(&nodes).await.is_empty(), "it was delivered in the middle");
    let read = super::harness::get(&proxy.store, "key", crate::Selection::Whole).await;
    assert_eq!(read.unwrap(), bytes);
}

#[tokio::test(start_paused = true)]
async fn a_part_that_never_was_is_no_part() {
    let nodes = Nodes::new(6);
    let (proxy, upload, mut complete, _) = kept(&nodes).await;
    nodes.deliver().await;
    complete.parts[0].number = 2;
    let outcome = proxy.store.uploads().complete("b", "key", upload, complete).await;
    assert!(matches!(outcome, Err(Error::InvalidPart(2))), "{outcome:?}");
}

#[tokio::test(start_paused = true)]
async fn m1_a_part_sent_again_through_a_proxy_whose_clock_is_late_is_chosen_by_its_etag() {
    let nodes = Nodes::new(3);
    let (proxy, ..) = nodes.with_bucket("key").await;
    let late = nodes.late_proxy(50);
    let bodies = [pattern(50_000, 1), pattern(50_000, 2)];
    for named in [1, 0] {
        let new = NewUpload { attributes: Attributes::default(), checksum: None };
        let upload = proxy.store.uploads().create("b", "key", new).await.unwrap().id;
        // Stamps follow the system's clock, so the test waits for real time.
        let begun_ms = SystemClock.now_ms();
        while SystemClock.now_ms() < begun_ms + 5 {
            tokio::task::yield_now().await;
        }
        let mut parts = Vec::new();
        for (sender, bytes) in [&proxy, &late].into_iter().zip(&bodies) {
            let sent =
                sender.store.uploads().put_part("b", "key", upload, 1, body(bytes.clone())).await;
            parts.push(sent.unwrap());
        }
        let mut wrong = naming(&[(1, &parts[named])]);
        wrong.parts[0].etag = "00".repeat(16);
        let refused = proxy.store.uploads().complete("b", "key", upload, wrong).await;
        assert!(matches!(refused, Err(Error::InvalidPart(1))), "{refused:?}");
        let complete = naming(&[(1, &parts[named])]);
        proxy.store.uploads().complete("b", "key", upload, complete).await.unwrap();
        let read = super::harness::get(&proxy.store, "key", crate::Selection::Whole).await;
        assert_eq!(read.unwrap(), bodies[named]);
    }
}
