//! The two tasks of a lane: one stores messages in the spool, the other delivers them from it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::MissedTickBehavior;

use super::Counts;
use super::dead_letter::DeadLetters;
use super::lanes::LaneOwner;
use super::queue_file::QueueFile;
use super::retry::{DeliveryAttempts, DeliveryFailure, Limits};
use super::spool::{SpoolReader, SpoolWriter, SpooledMessage};
use super::webhook::Webhook;

/// Maximum number of messages that share a sync.
const BATCH_MAX: usize = 1024;
/// Pause after the first failed attempt. It doubles with each failure up to `PAUSE_MAX`.
const PAUSE_MIN: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_mins(1);
/// Interval between two checks for messages to resend.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Destination of a target's messages.
#[derive(Clone, Debug)]
pub(super) enum Destination {
    Webhook(Arc<Webhook>),
    File(QueueFile),
}

impl Destination {
    /// Returns the destination of a lane's messages. In a file target each tenant has a separate
    /// file.
    pub(super) fn of(&self, whose: &LaneOwner) -> Self {
        match (self, whose.name()) {
            (Self::File(file), Some(name)) => Self::File(file.of_tenant(name)),
            _ => self.clone(),
        }
    }

    /// Delivers a first part of these messages. Returns the number that was acknowledged.
    async fn deliver(&self, messages: &[SpooledMessage]) -> Result<usize, DeliveryFailure> {
        match self {
            Self::Webhook(webhook) => {
                let first = messages.first().map(|it| it.message.clone()).unwrap_or_default();
                webhook.post(first).await.map(|()| 1)
            }
            Self::File(file) => {
                let file = file.clone();
                let batch: Vec<Bytes> = messages.iter().map(|it| it.message.clone()).collect();
                let appended = off_thread((), move |()| file.append(&batch)).await;
                appended.1.map(|()| messages.len()).map_err(away)
            }
        }
    }
}

/// Turns a disk error into trouble that no message is to blame for.
#[expect(clippy::needless_pass_by_value, reason = "map_err passes the error by value")]
fn away(error: io::Error) -> DeliveryFailure {
    DeliveryFailure::Away(error.to_string())
}

/// Runs disk work on a blocking thread. Returns `with` and the result.
pub(super) async fn off_thread<T: Send + 'static, R: Send + 'static>(
    mut with: T,
    work: impl FnOnce(&mut T) -> io::Result<R> + Send + 'static,
) -> (T, io::Result<R>) {
    let done = tokio::task::spawn_blocking(move || {
        let outcome = work(&mut with);
        (with, outcome)
    });
    done.await.expect("the blocking task does not panic")
}

/// Waits for the stop signal. A dropped sender counts as one.
pub(super) async fn told_to_stop(stopped: &mut watch::Receiver<bool>) {
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

/// Task that stores messages in the spool.
pub(super) struct SpoolTask {
    pub(super) tail: SpoolWriter,
    pub(super) queue: mpsc::Receiver<Bytes>,
    pub(super) aside: Arc<DeadLetters>,
    pub(super) counts: Arc<Counts>,
    pub(super) written: Arc<Notify>,
}

impl SpoolTask {
    /// Stores messages until `stopped`, then stores the messages still queued.
    pub(super) async fn run(mut self, mut stopped: watch::Receiver<bool>) {
        let mut look = tokio::time::interval(LOOK_EVERY);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let mut batch = Vec::new();
            tokio::select! {
                taken = self.queue.recv_many(&mut batch, BATCH_MAX) => if taken == 0 { return },
                _ = look.tick() => {
                    self = self.take_back().await;
                    continue;
                }
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

    /// Moves the messages that an operator marked for resending into the spool.
    async fn take_back(mut self) -> Self {
        let aside = self.aside.clone();
        let (tail, taken) = off_thread(self.tail, move |tail| aside.take_back(tail)).await;
        self.tail = tail;
        match taken {
            Ok(0) => {}
            Ok(messages) => {
                tracing::info!(messages, "resending events that were set aside");
                self.written.notify_one();
            }
            Err(error) => {
                tracing::warn!(%error, "could not resend events that were set aside");
                self.tail.begin_another();
            }
        }
        self
    }

    async fn keep(mut self, batch: Vec<Bytes>) -> Self {
        let count = batch.len() as u64;
        let (tail, kept) = off_thread(self.tail, move |tail| tail.append(&batch)).await;
        self.tail = tail;
        if let Err(error) = kept {
            tracing::error!(%error, messages = count, "lost events that could not be stored");
            self.counts.lose(count);
            self.tail.begin_another();
        }
        self.written.notify_one();
        self
    }
}

/// Task that delivers messages from the spool.
pub(super) struct DeliveryTask {
    pub(super) name: String,
    pub(super) head: SpoolReader,
    pub(super) destination: Destination,
    pub(super) aside: Arc<DeadLetters>,
    pub(super) limits: Limits,
    pub(super) counts: Arc<Counts>,
    pub(super) written: Arc<Notify>,
    pub(super) plight: DeliveryState,
}

/// Delivery state of the message at the head.
#[derive(Debug)]
pub(super) struct DeliveryState {
    tries: DeliveryAttempts,
    pause: Duration,
    is_failing: bool,
    /// True if there was no room to set the message aside.
    is_stuck: bool,
}

impl Default for DeliveryState {
    fn default() -> Self {
        Self {
            tries: DeliveryAttempts::default(),
            pause: PAUSE_MIN,
            is_failing: false,
            is_stuck: false,
        }
    }
}

impl DeliveryTask {
    /// Delivers messages until `stopped`. Undelivered messages stay in the spool for the next
    /// start.
    pub(super) async fn run(self, mut stopped: watch::Receiver<bool>) {
        let carrying = self.deliver_all();
        tokio::select! {
            () = carrying => {}
            () = told_to_stop(&mut stopped) => {}
        }
    }

    async fn deliver_all(mut self) {
        loop {
            let (head, read) = off_thread(self.head, SpoolReader::read).await;
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
                Err(error) => Err(away(error)),
            };
            if let Err(trouble) = outcome {
                self.suffer(&trouble).await;
            }
        }
    }

    /// Delivers messages in their order, until one is neither acknowledged nor set aside.
    async fn deliver(
        mut self,
        mut messages: &[SpooledMessage],
    ) -> (Self, Result<(), DeliveryFailure>) {
        while !messages.is_empty() {
            let count = match self.destination.deliver(messages).await {
                Ok(count) => {
                    self.recover();
                    self.counts.delivered.fetch_add(count as u64, Ordering::Relaxed);
                    count
                }
                Err(trouble) => {
                    self.plight.tries.count(&trouble);
                    if !self.plight.tries.are_over(self.limits) {
                        return (self, Err(trouble));
                    }
                    match self.set_aside(&messages[0], &trouble).await {
                        Ok(true) => 1,
                        Ok(false) => return (self, Err(trouble)),
                        Err(error) => return (self, Err(away(error))),
                    }
                }
            };
            let (done, rest) = messages.split_at(count);
            let done = done.to_vec();
            let (head, noted) = off_thread(self.head, move |head| head.acknowledge(&done)).await;
            self.head = head;
            if let Err(error) = noted {
                return (self, Err(away(error)));
            }
            messages = rest;
        }
        (self, Ok(()))
    }

    /// Sets a message aside. Returns false if the file is full, and the message stays.
    async fn set_aside(
        &mut self,
        message: &SpooledMessage,
        trouble: &DeliveryFailure,
    ) -> io::Result<bool> {
        let (aside, message) = (self.aside.clone(), message.message.clone());
        let is_aside = off_thread((), move |()| aside.put(&message)).await.1?;
        let (name, error, attempts) = (&self.name, trouble.reason(), self.plight.tries.attempts);
        if is_aside {
            self.counts.failures.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(name, error, attempts, "set an event aside that its target refused");
            self.plight =
                DeliveryState { is_failing: self.plight.is_failing, ..DeliveryState::default() };
        } else if !self.plight.is_stuck {
            tracing::error!(name, error, "events are blocked: no room to set one aside");
            self.plight.is_stuck = true;
        }
        Ok(is_aside)
    }

    /// Counts a failure, and pauses before the next attempt.
    async fn suffer(&mut self, trouble: &DeliveryFailure) {
        self.counts.failures.fetch_add(1, Ordering::Relaxed);
        if !self.plight.is_failing {
            let error = trouble.reason();
            tracing::warn!(name = self.name, error, "could not deliver events");
        }
        self.plight.is_failing = true;
        tokio::time::sleep(self.plight.pause).await;
        self.plight.pause = (self.plight.pause * 2).min(PAUSE_MAX);
    }

    fn recover(&mut self) {
        if self.plight.is_failing {
            tracing::info!(name = self.name, "delivering events again");
        }
        self.plight = DeliveryState::default();
    }
}
