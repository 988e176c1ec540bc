//! Clients that stall in mid-body: their buffered bytes are bounded, and are freed for other writes
//! in time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use martlet_protocol::ErrorKind;

use super::fixture::ExtentFixture;
use crate::tests::harness::{body, get, pattern, put};
use crate::{Error, NewBody, Selection, StoreOptions, WriteConditions};

const MIB: usize = 1024 * 1024;

/// Counts one body in `taken`, until it is dropped.
struct OccupiedPlace(Arc<AtomicUsize>);

impl Drop for OccupiedPlace {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A body of a MiB whose client sends 800 kB and then stalls. `taken` counts the body once bytes
/// after the first 100 kB are requested.
fn stalling(taken: &Arc<AtomicUsize>) -> NewBody {
    let taken = taken.clone();
    let head = futures::stream::iter([Ok(Bytes::from(vec![7; 100_000]))]);
    let rest = futures::stream::unfold(None, move |place: Option<OccupiedPlace>| {
        let taken = taken.clone();
        async move {
            if place.is_some() {
                std::future::pending::<()>().await;
            }
            taken.fetch_add(1, Ordering::SeqCst);
            Some((Ok(Bytes::from(vec![7; 700_000])), Some(OccupiedPlace(taken))))
        }
    });
    NewBody { bytes: head.chain(rest).boxed(), size: Some(MIB as u64), ..body(Bytes::new()) }
}

#[tokio::test(start_paused = true)]
async fn devices_gather_no_more_for_clients_that_stall_than_half_of_the_budget() {
    let options = StoreOptions { buffer_bytes_max: 4 * MIB, ..StoreOptions::default() };
    let fixture = ExtentFixture::with(3, 1, options).await;
    let taken = Arc::new(AtomicUsize::new(0));
    let stalled: Vec<_> = (0..4)
        .map(|at| {
            let (store, new_body) = (fixture.store.clone(), stalling(&taken));
            tokio::spawn(async move {
                put(&store, &format!("s{at}"), new_body, WriteConditions::default()).await
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(taken.load(Ordering::SeqCst), 2, "two have a MiB each of two");
    let bytes = pattern(MIB, 1);
    put(&fixture.store, "key", body(bytes.clone()), WriteConditions::default()).await.unwrap();
    assert_eq!(get(&fixture.store, "key", Selection::Whole).await.unwrap(), bytes);
    let mut given_up = 0;
    for one in stalled {
        // No write waits for memory any more, so the remaining stalled writes may go on.
        let Ok(ended) = tokio::time::timeout(Duration::from_secs(1), one).await else { continue };
        let Err(Error::Backend(error)) = ended.unwrap() else { panic!("it had no end") };
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        given_up += 1;
    }
    assert!(given_up >= 2, "{given_up} made room for others");
}
