//! Requests cancelled at every point where they wait, as when clients disconnect.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use martlet_protocol::backend::CallKind;
use martlet_protocol::testing::Fault;

use super::harness::{Harness, body, faulty, pattern, put};
use super::multipart::{begin, naming};
use crate::{Error, ListUploads, NewBody, ObjectStore, Selection, WriteConditions};

/// Polls a future so many times, then drops it.
async fn cut_off<F: Future>(future: F, polls: usize) -> Option<F::Output> {
    let mut future = Box::pin(future);
    let mut left = polls;
    poll_fn(move |context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        future.as_mut().poll(context).map(Some)
    })
    .await
}

/// A body that yields to other tasks before each chunk.
fn halting(bytes: &Bytes) -> NewBody {
    let chunk_bytes = bytes.len() / 12 + 1;
    let chunks: Vec<_> = (0..bytes.len())
        .step_by(chunk_bytes)
        .map(|at| bytes.slice(at..bytes.len().min(at + chunk_bytes)))
        .collect();
    let halting = futures::stream::iter(chunks).then(|chunk| async {
        tokio::task::yield_now().await;
        Ok(chunk)
    });
    NewBody { bytes: halting.boxed(), ..body(bytes.clone()) }
}

/// A store whose calls wait 100 µs before their effect, except writes of entries.
fn slow(harness: &Harness) -> ObjectStore {
    faulty(&harness.memory, 1, 1, |call| match call.op {
        CallKind::Write => Fault::None,
        _ => Fault::Delay(Duration::from_micros(100)),
    })
}

async fn quiet() {
    tokio::time::sleep(Duration::from_millis(4)).await;
    super::harness::settle().await;
}

#[tokio::test]
async fn a_put_that_is_cut_off_anywhere_leaves_the_old_object_or_the_new_one_and_nothing_else() {
    for size in [5000, 60_000, 900_000] {
        for conditional in [false, true] {
            let mut polls = 0;
            loop {
                let harness = Harness::with_bucket(1).await;
                let (old, new) = (pattern(20_000, 1), pattern(size, 2));
                let before = harness.put("key", old.clone()).await.unwrap();
                let conditions = if conditional {
                    super::conditional::only_over(&before)
                } else {
                    WriteConditions::default()
                };
                let store = slow(&harness);
                let done = cut_off(put(&store, "key", halting(&new), conditions), polls).await;
                quiet().await;
                let held = harness.get("key", Selection::Whole).await.unwrap();
                let what = format!("{size} bytes, cut off after {polls} polls");
                assert!(held == old || held == new, "{what}");
                let is_inline = held.len() == 5000;
                assert_eq!(
                    harness.memory.extents_in_use().len(),
                    usize::from(!is_inline),
                    "{what}"
                );
                if let Some(written) = done {
                    written.unwrap();
                    assert_eq!(held, new);
                    break;
                }
                polls += 1;
            }
            assert!(polls > 12, "the body alone makes the write wait at each chunk");
        }
    }
}

#[tokio::test]
async fn a_part_that_is_cut_off_anywhere_is_there_whole_or_not_at_all() {
    let mut polls = 0;
    loop {
        let harness = Harness::with_bucket(1).await;
        let upload = begin(&harness, "key").await;
        let bytes = pattern(60_000, 1);
        let store = slow(&harness);
        let sent = store.uploads().put_part("b", "key", upload, 1, halting(&bytes));
        let done = cut_off(sent, polls).await;
        quiet().await;
        let page = harness.store.uploads().list_parts("b", "key", upload, 0, 10).await.unwrap();
        assert_eq!(page.parts.len(), harness.memory.extents_in_use().len(), "after {polls} polls");
        if let Some(part) = done {
            let complete = naming(&[(1, &part.unwrap())]);
            harness.store.uploads().complete("b", "key", upload, complete).await.unwrap();
            assert_eq!(harness.get("key", Selection::Whole).await.unwrap(), bytes);
            break;
        }
        polls += 1;
    }
}

#[tokio::test]
async fn a_complete_that_is_cut_off_anywhere_is_finished_by_the_next() {
    let mut polls = 0;
    loop {
        let harness = Harness::with_bucket(1).await;
        let upload = begin(&harness, "key").await;
        let bytes = pattern(60_000, 1);
        let part = super::multipart::send(&harness, upload, 1, &bytes).await.unwrap();
        let unchosen = super::multipart::send(&harness, upload, 2, &bytes).await.unwrap();
        drop(unchosen);
        let store = slow(&harness);
        let complete = naming(&[(1, &part)]);
        let first = store.uploads().complete("b", "key", upload, complete.clone());
        let done = cut_off(first, polls).await;
        match harness.get("key", Selection::Whole).await {
            Ok(held) => assert_eq!(held, bytes, "after {polls} polls"),
            Err(error) => {
                assert!(matches!(error, Error::NoSuchKey), "after {polls} polls: {error}");
            }
        }
        let again = harness.store.uploads().complete("b", "key", upload, complete).await.unwrap();
        assert_eq!(harness.get("key", Selection::Whole).await.unwrap(), bytes);
        let open = ListUploads { limit: 9, ..ListUploads::default() };
        assert!(harness.store.uploads().list("b", open).await.unwrap().uploads.is_empty());
        if let Some(written) = done {
            assert_eq!(written.unwrap().stamp, again.stamp);
            break;
        }
        polls += 1;
    }
    assert!(polls > 5);
}

#[tokio::test]
async fn a_read_goes_on_over_what_it_began_with_while_the_object_is_overwritten_and_deleted() {
    let harness = Harness::with_bucket(1).await;
    let old = pattern(3_500_000, 1);
    harness.put("key", old.clone()).await.unwrap();
    let read = |store: ObjectStore| async move {
        store.get("b", "key", Selection::Whole, &crate::ReadConditions::default()).await
    };
    let begun = read(harness.store.clone()).await.unwrap();
    let mut begun_body = begun.body.unwrap();
    let first = begun_body.next().await.unwrap().unwrap();
    harness.put("key", pattern(2_000_000, 2)).await.unwrap();
    let second = read(harness.store.clone()).await.unwrap();
    harness.delete("key").await;
    let mut whole = first.to_vec();
    while let Some(chunk) = begun_body.next().await {
        whole.extend_from_slice(&chunk.unwrap());
    }
    assert!(whole == old);
    assert_eq!(super::harness::collect(second).await.unwrap(), pattern(2_000_000, 2));
    assert!(matches!(read(harness.store.clone()).await.err(), Some(Error::NoSuchKey)));
}

#[tokio::test]
async fn a_reader_that_hangs_up_holds_on_to_nothing() {
    let harness = Harness::with_bucket(1).await;
    harness.put("key", pattern(3_500_000, 1)).await.unwrap();
    let holders = Arc::strong_count(&harness.memory);
    for chunks in 0..4 {
        let conditions = crate::ReadConditions::default();
        let read = harness.store.get("b", "key", Selection::Whole, &conditions);
        let mut body = read.await.unwrap().body.unwrap();
        for _ in 0..chunks {
            body.next().await.unwrap().unwrap();
        }
    }
    assert_eq!(Arc::strong_count(&harness.memory), holders);
}
