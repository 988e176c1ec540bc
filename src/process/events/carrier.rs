//! The two tasks of a target: one keeps messages in the spool, the other carries them out of it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Notify, mpsc, watch};

use super::Counts;
use super::queue_file::QueueFile;
use super::spool::{Head, Tail, Waiting};
use super::webhook::Webhook;

/// Messages that share a sync.
const BATCH_MAX: usize = 1024;
/// Between the first two attempts; later ones have more and more time between them.
const PAUSE_MIN: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_mins(1);

/// Where messages are carried to.
#[derive(Debug)]
pub(super) enum Destination {
    Webhook(Webhook),
    File(QueueFile),
}

impl Destination {
    /// Delivers some of the first of these; how many were acknowledged.
    async fn deliver(&self, messages: &[Waiting]) -> Result<usize, String> {
        match self {
            Self::Webhook(webhook) => {
                let first = messages.first().map(|it| it.message.clone()).unwrap_or_default();
                webhook.post(first).await.map(|()| 1)
            }
            Self::File(file) => {
                let file = file.clone();
                let batch: Vec<Bytes> = messages.iter().map(|it| it.message.clone()).collect();
                let appended = off_thread((), move |()| file.append(&batch)).await;
                appended.1.map(|()| messages.len()).map_err(|error| error.to_string())
            }
        }
    }
}

/// Does what waits for a disk elsewhere; what it is done with comes back.
async fn off_thread<T: Send + 'static, R: Send + 'static>(
    mut with: T,
    work: impl FnOnce(&mut T) -> io::Result<R> + Send + 'static,
) -> (T, io::Result<R>) {
    let done = tokio::task::spawn_blocking(move || {
        let outcome = work(&mut with);
        (with, outcome)
    });
    done.await.expect("nothing here panics")
}

/// Until it is said; whoever could say so being gone is as good.
async fn told_to_stop(stopped: &mut watch::Receiver<bool>) {
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

/// Keeps messages in the spool.
pub(super) struct Keeper {
    pub(super) tail: Tail,
    pub(super) queue: mpsc::Receiver<Bytes>,
    pub(super) counts: Arc<Counts>,
    pub(super) written: Arc<Notify>,
}

impl Keeper {
    /// Until `stopped`, and then what is there already.
    pub(super) async fn run(mut self, mut stopped: watch::Receiver<bool>) {
        loop {
            let mut batch = Vec::new();
            tokio::select! {
                taken = self.queue.recv_many(&mut batch, BATCH_MAX) => if taken == 0 { return },
                () = told_to_stop(&mut stopped) => break,
            }
            self = self.keep(batch).await;
        }
        self.queue.close();
        let mut rest = Vec::new();
        while self.queue.recv_many(&mut rest, BATCH_MAX).await > 0 {
            self = self.keep(std::mem::take(&mut rest)).await;
        }
    }

    async fn keep(mut self, batch: Vec<Bytes>) -> Self {
        let count = batch.len() as u64;
        let (tail, kept) = off_thread(self.tail, move |tail| tail.append(&batch)).await;
        self.tail = tail;
        if let Err(error) = kept {
            tracing::error!(%error, messages = count, "events could not be kept: they are lost");
            self.counts.lose(count);
            self.tail.begin_another();
        }
        self.written.notify_one();
        self
    }
}

/// Carries messages out of the spool.
pub(super) struct Carrier {
    pub(super) name: String,
    pub(super) head: Head,
    pub(super) destination: Destination,
    pub(super) counts: Arc<Counts>,
    pub(super) written: Arc<Notify>,
}

impl Carrier {
    /// Until `stopped`. What is in the spool then stays there for the next start.
    pub(super) async fn run(self, mut stopped: watch::Receiver<bool>) {
        let carrying = self.carry();
        tokio::select! {
            () = carrying => {}
            () = told_to_stop(&mut stopped) => {}
        }
    }

    async fn carry(mut self) {
        let mut pause = PAUSE_MIN;
        let mut is_failing = false;
        loop {
            let (head, read) = off_thread(self.head, Head::read).await;
            self.head = head;
            let outcome = match read {
                Ok(messages) if messages.is_empty() => {
                    self.written.notified().await;
                    continue;
                }
                Ok(messages) => {
                    let (carrier, outcome) = self.deliver(&messages).await;
                    self = carrier;
                    outcome
                }
                Err(error) => Err(error.to_string()),
            };
            if let Err(error) = outcome {
                self.counts.failures.fetch_add(1, Ordering::Relaxed);
                if !is_failing {
                    tracing::warn!(name = self.name, error, "events can't be delivered");
                }
                is_failing = true;
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
            } else {
                if is_failing {
                    tracing::info!(name = self.name, "events are delivered again");
                }
                (pause, is_failing) = (PAUSE_MIN, false);
            }
        }
    }

    /// Delivers messages in their order, as far as they are acknowledged.
    async fn deliver(mut self, mut messages: &[Waiting]) -> (Self, Result<(), String>) {
        while !messages.is_empty() {
            let count = match self.destination.deliver(messages).await {
                Ok(count) => count,
                Err(error) => return (self, Err(error)),
            };
            let (done, rest) = messages.split_at(count);
            let done = done.to_vec();
            let (head, noted) = off_thread(self.head, move |head| head.acknowledge(&done)).await;
            self.head = head;
            self.counts.delivered.fetch_add(count as u64, Ordering::Relaxed);
            if let Err(error) = noted {
                return (self, Err(error.to_string()));
            }
            messages = rest;
        }
        (self, Ok(()))
    }
}
