//! Interleavings of writers, the committer and the end of a queue.

#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::sync::Arc;

use martlet_protocol::{Error, Result, Stamp};
use shuttle::future::block_on;
use shuttle::thread;
use tokio::sync::oneshot;

use super::{IndexOp, Queue};
use crate::sync::explore;

/// Adds an operation, and returns its outcome. One that the queue drops fails.
fn write(queue: &Queue) -> Result<()> {
    let (reply, outcome) = oneshot::channel();
    queue.push(IndexOp::ForgetHint(Vec::new(), Stamp::ZERO, reply))?;
    block_on(outcome).unwrap_or_else(|_| Err(Error::unavailable("the queue was abandoned")))
}

fn answer(op: IndexOp) {
    let IndexOp::ForgetHint(.., reply) = op else { panic!("no test writes this") };
    reply.send(Ok(())).expect("the caller waits");
}

/// Takes groups until the queue is closed; returns the number of operations.
fn commit(queue: &Queue) -> usize {
    let (mut taken, mut group) = (0, Vec::new());
    while queue.take(&mut group) {
        assert!(!group.is_empty(), "the committer would sync nothing");
        taken += group.len();
        group.drain(..).for_each(answer);
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

/// A committer that fails abandons its queue.
#[test]
fn an_abandoned_queue_lets_every_caller_fail() {
    explore(|| {
        let queue = Arc::new(Queue::default());
        let writers: Vec<_> = (0..3)
            .map(|_| {
                let queue = queue.clone();
                thread::spawn(move || write(&queue).is_ok())
            })
            .collect();
        let mut group = Vec::new();
        assert!(queue.take(&mut group));
        let taken = group.len();
        group.drain(..).for_each(answer);
        queue.abandon();
        assert!(!queue.take(&mut group), "an operation was left");
        let written = writers.into_iter().filter_map(|writer| writer.join().ok());
        assert_eq!(written.filter(|written| *written).count(), taken);
    });
}
