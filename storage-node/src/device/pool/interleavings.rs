//! Interleavings of callers, threads and the end of a pool. A run has two threads at most, and two
//! queued calls.

#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use martlet_protocol::ErrorKind;
use shuttle::future::block_on;
use shuttle::thread;

use super::super::pulse::STALL_AFTER;
use super::{Pool, THREADS_MAX};
use crate::sync::explore;

fn pool() -> Arc<Pool> {
    Arc::new(Pool::new("d1".to_owned(), STALL_AFTER))
}

#[test]
fn each_call_runs_once_or_is_refused() {
    explore(|| {
        let (pool, ran) = (pool(), Arc::new(AtomicUsize::new(0)));
        let callers: Vec<_> = (0..4)
            .map(|_| {
                let (pool, ran) = (pool.clone(), ran.clone());
                thread::spawn(move || {
                    let call = pool.start(move || {
                        thread::yield_now();
                        Ok(ran.fetch_add(1, Ordering::Relaxed))
                    });
                    match block_on(call.outcome()) {
                        Ok(_) => 1,
                        Err(error) => {
                            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                            0
                        }
                    }
                })
            })
            .collect();
        let answered: usize = callers.into_iter().map(|caller| caller.join().unwrap()).sum();
        assert_eq!(ran.load(Ordering::Relaxed), answered);
        assert!(pool.0.state.lock().threads <= THREADS_MAX);
        // The run fails unless the threads end now.
        drop(pool);
    });
}

#[test]
fn queued_calls_run_after_the_end_of_their_pool() {
    explore(|| {
        let (pool, ran) = (pool(), Arc::new(AtomicUsize::new(0)));
        let calls: Vec<_> = (0..2)
            .map(|_| {
                let ran = ran.clone();
                pool.start(move || Ok(ran.fetch_add(1, Ordering::Relaxed)))
            })
            .collect();
        let last = ran.clone();
        pool.run_detached(move || {
            last.fetch_add(1, Ordering::Relaxed);
        });
        let inner = pool.0.clone();
        drop(pool);
        let answered = calls.into_iter().map(|call| block_on(call.outcome()));
        assert!(answered.filter(Result::is_err).count() <= 1);
        while inner.state.lock().threads > 0 {
            thread::yield_now();
        }
        assert!(inner.state.lock().queue.is_empty(), "a call was left");
    });
}

#[test]
fn a_call_whose_caller_has_gone_runs_once_at_most() {
    explore(|| {
        let (pool, ran) = (pool(), Arc::new(AtomicUsize::new(0)));
        let counted = ran.clone();
        let call = pool.start(move || Ok(counted.fetch_add(1, Ordering::Relaxed)));
        let leaver = thread::spawn(move || drop(call));
        let counted = ran.clone();
        let kept = pool.start(move || Ok(counted.fetch_add(1, Ordering::Relaxed)));
        block_on(kept.outcome()).expect("one call may wait");
        leaver.join().unwrap();
        drop(pool);
        assert!((1..=2).contains(&ran.load(Ordering::Relaxed)));
    });
}
