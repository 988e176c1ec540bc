//! The two tasks of a lane: one stores messages in the spool, the other delivers them from it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use martlet_serving::wait_for_stop;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::MissedTickBehavior;

use super::counts::Counts;
use super::dead_letter::DeadLetters;
use super::destination::Destination;
use super::retry::{DeliveryAttempts, DeliveryFailure, Limits};
use super::spool::{SpoolReader, SpoolWriter, SpooledMessage};
use super::tasks::off_thread;

/// Maximum number of messages that share a sync.
const BATCH_MAX: usize = 1024;
/// Pause after the first failed attempt. It doubles with each failure up to `PAUSE_MAX`.
const PAUSE_MIN: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_mins(1);
/// Time without messages after which a lane closes its connection to a broker.
const IDLE: Duration = Duration::from_mins(1);
/// Interval between two attempts to save a position while no message comes.
const SAVE_AGAIN_AFTER: Duration = Duration::from_secs(2);
/// Interval between two checks for messages to resend.
const RESEND_CHECK_INTERVAL: Duration = Duration::from_secs(2);

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
        let mut resend_check = tokio::time::interval(RESEND_CHECK_INTERVAL);
        resend_check.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let mut batch = Vec::new();
            tokio::select! {
                taken = self.queue.recv_many(&mut batch, BATCH_MAX) => if taken == 0 { return },
                _ = resend_check.tick() => {
                    self = self.take_back().await;
                    continue;
                }
                () = wait_for_stop(&mut stopped) => break,
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
    pub(super) state: DeliveryState,
    pub(super) saving: SaveState,
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

/// Outcome of the last attempt to save a position, which is no matter of the target.
#[derive(Debug, Default)]
pub(super) struct SaveState {
    is_failing: bool,
}

impl SaveState {
    /// Records an outcome. Returns true if it differs from the one before, and is to be logged.
    fn note(&mut self, is_failing: bool) -> bool {
        std::mem::replace(&mut self.is_failing, is_failing) != is_failing
    }
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
        let delivery = self.deliver_all();
        tokio::select! {
            () = delivery => {}
            () = wait_for_stop(&mut stopped) => {}
        }
    }

    async fn deliver_all(mut self) {
        loop {
            let (head, read) = off_thread(self.head, SpoolReader::read).await;
            self.head = head;
            let outcome = match read {
                Ok(messages) if messages.is_empty() => {
                    self = self.save().await;
                    self.wait().await;
                    continue;
                }
                Ok(messages) => {
                    let (task, outcome) = self.deliver(&messages).await;
                    self = task;
                    outcome
                }
                Err(error) => Err(error.into()),
            };
            if let Err(failure) = outcome {
                self.back_off(&failure).await;
            }
        }
    }

    /// Waits for messages. Closes the connection of a lane that has none for long.
    async fn wait(&self) {
        if self.head.is_unsaved() {
            let _ = tokio::time::timeout(SAVE_AGAIN_AFTER, self.written.notified()).await;
            return;
        }
        if tokio::time::timeout(IDLE, self.written.notified()).await.is_err() {
            self.destination.rest().await;
            self.written.notified().await;
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
                Err(failure) => {
                    self.state.tries.count(&failure);
                    if !self.state.tries.are_over(self.limits) {
                        return (self, Err(failure));
                    }
                    match self.set_aside(&messages[0], &failure).await {
                        Ok(true) => 1,
                        Ok(false) => return (self, Err(failure)),
                        Err(error) => return (self, Err(error.into())),
                    }
                }
            };
            let (done, rest) = messages.split_at(count);
            self.head.acknowledge(done);
            self = self.save().await;
            messages = rest;
        }
        (self, Ok(()))
    }

    /// Saves the position of delivered messages. A failure delays nothing: it is logged once, and the
    /// next call tries again.
    async fn save(mut self) -> Self {
        let (head, saved) = off_thread(self.head, SpoolReader::save).await;
        self.head = head;
        if self.saving.note(saved.is_err()) {
            let name = &self.name;
            match saved {
                Ok(()) => tracing::info!(name, "saving the position of delivered events again"),
                Err(error) => tracing::warn!(
                    name,
                    %error,
                    "could not save the position of delivered events: a restart delivers them again"
                ),
            }
        }
        self
    }

    /// Sets a message aside. Returns false if the file is full, and the message stays.
    async fn set_aside(
        &mut self,
        message: &SpooledMessage,
        failure: &DeliveryFailure,
    ) -> io::Result<bool> {
        let (aside, message) = (self.aside.clone(), message.message.clone());
        let is_aside = off_thread((), move |()| aside.put(&message)).await.1?;
        let (name, error, attempts) = (&self.name, failure.reason(), self.state.tries.attempts);
        if is_aside {
            self.counts.failures.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(name, error, attempts, "set an event aside that its target refused");
            self.state =
                DeliveryState { is_failing: self.state.is_failing, ..DeliveryState::default() };
        } else if !self.state.is_stuck {
            tracing::error!(name, error, "events are blocked: no room to set one aside");
            self.state.is_stuck = true;
        }
        Ok(is_aside)
    }

    /// Counts a failure, and pauses before the next attempt.
    async fn back_off(&mut self, failure: &DeliveryFailure) {
        self.counts.failures.fetch_add(1, Ordering::Relaxed);
        if !self.state.is_failing {
            let error = failure.reason();
            tracing::warn!(name = self.name, error, "could not deliver events");
        }
        self.state.is_failing = true;
        tokio::time::sleep(jittered(self.state.pause)).await;
        self.state.pause = (self.state.pause * 2).min(PAUSE_MAX);
    }

    fn recover(&mut self) {
        if self.state.is_failing {
            tracing::info!(name = self.name, "delivering events again");
        }
        self.state = DeliveryState::default();
    }
}

/// Returns a random time from half of a pause to all of it, so that the lanes of a target don't
/// connect all at once when it is back.
fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(rand::random_range(0.5..1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_saving_is_logged_once() {
        let mut saving = SaveState::default();
        let logged = [false, true, true, true, false, false, true].map(|it| saving.note(it));
        assert_eq!(logged, [false, true, false, false, true, false, true]);
    }

    #[test]
    fn pauses_of_lanes_differ() {
        let pauses: Vec<Duration> = (0..100).map(|_| jittered(PAUSE_MAX)).collect();
        assert!(pauses.iter().all(|it| (PAUSE_MAX / 2..=PAUSE_MAX).contains(it)), "{pauses:?}");
        assert!(pauses.iter().any(|it| *it != pauses[0]), "{pauses:?}");
    }
}
