//! Interleavings of writers, the committer and the end of a queue.

#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::sync::Arc;

use martlet_protocol::{Result, Stamp};
use shuttle::future::block_on;
use shuttle::thread;
use tokio::sync::oneshot;

use super::{IndexOp, Queue};
use crate::sync::explore;

/// Adds an operation, and returns its outcome.
fn write(queue: &Queue) -> Result<()> {
    let (reply, outcome) = oneshot::channel();
    queue.push(IndexOp::ForgetHint(Vec::new(), Stamp::ZERO, reply))?;
    block_on(outcome).expect("the operation was neither taken nor refused")
}

/// Takes groups until the queue is closed; returns the number of operations.
fn commit(queue: &Queue) -> usize {
    let (mut taken, mut group) = (0, Vec::new());
    while queue.take(&mut group) {
        assert!(!group.is_empty(), "the committer would sync nothing");
        for op in group.drain(..) {
            let IndexOp::ForgetHint(.., reply) = op else { panic!("nobody wrote this") };
            let _ = reply.send(Ok(()));
            taken += 1;
        }
    }
    taken
}

#[test]
fn each_operation_is_taken_once_or_refused() {
    explore(|| {
        let queue = Arc::new(Queue::default());
        let committer = queue.clone();
        let committer = thread::spawn(move || commit(&committer));
        let writers: Vec<_> = (0..3)
            .map(|_| {
                let queue = queue.clone();
                thread::spawn(move || (0..2).filter(|_| write(&queue).is_ok()).count())
            })
            .collect();
        let closer = queue.clone();
        thread::spawn(move || closer.close());
        let written: usize = writers.into_iter().map(|writer| writer.join().unwrap()).sum();
        assert_eq!(committer.join().unwrap(), written);
    });
}

#[test]
fn an_abandoned_queue_lets_every_caller_fail() {
    explore(|| {
        let queue = Arc::new(Queue::default());
        let committer = queue.clone();
        let committer = thread::spawn(move || commit(&committer));
        let writers: Vec<_> = (0..2)
            .map(|_| {
                let queue = queue.clone();
                thread::spawn(move || {
                    let (reply, outcome) = oneshot::channel();
                    let op = IndexOp::ForgetHint(Vec::new(), Stamp::ZERO, reply);
                    // An operation that was dropped ends its caller's wait, too.
                    queue.push(op).is_ok() && block_on(outcome).is_ok()
                })
            })
            .collect();
        queue.abandon();
        // The one who abandons a queue closes the index, which ends the committer.
        queue.close();
        let ended = writers.into_iter().map(|writer| writer.join().unwrap());
        let written = ended.filter(|written| *written).count();
        assert_eq!(committer.join().unwrap(), written);
    });
}
