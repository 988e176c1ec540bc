//! Lane of a target at its broker: one attempt at a time, on a connection that is kept.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::super::retry::DeliveryFailure;
use super::super::spool::SpooledMessage;
use super::acknowledged::Acknowledged;
use super::batch_limits::BatchLimits;
use super::settings::{BrokerClient, BrokerConnection};

/// Timeout of an attempt, from the connection to the last acknowledgement.
const PATIENCE: Duration = Duration::from_secs(10);
/// Age from which a connection is replaced before the next message, so that a busy lane takes up a
/// new secret, a new leader and a new address of a host too.
const AGE_MAX: Duration = Duration::from_mins(5);
/// Timeout of the close of an idle or old connection.
const CLOSE_PATIENCE: Duration = Duration::from_secs(1);

/// Connection, and the time at which it was opened.
struct OpenConnection {
    connection: BrokerConnection,
    opened: Instant,
}

/// Lane of one tenant's messages.
pub(in super::super) struct BrokerLane {
    client: BrokerClient,
    acknowledged: Acknowledged,
    limits: BatchLimits,
    connection: Mutex<Option<OpenConnection>>,
    patience: Duration,
    age_max: Duration,
}

impl std::fmt::Debug for BrokerLane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.client.fmt(f)
    }
}

impl BrokerLane {
    /// Makes a lane, without a connection.
    pub(in super::super) fn new(client: BrokerClient) -> Self {
        Self::with_patience(client, PATIENCE)
    }

    /// Makes a lane whose attempts end after this time.
    pub(super) fn with_patience(client: BrokerClient, patience: Duration) -> Self {
        let (acknowledged, limits) = (Acknowledged::default(), BatchLimits::default());
        let connection = Mutex::new(None);
        Self { client, acknowledged, limits, connection, patience, age_max: AGE_MAX }
    }

    /// Returns a lane of another tenant, with a connection of its own.
    pub(in super::super) fn sibling(&self) -> Self {
        Self::with_patience(self.client.clone(), self.patience)
    }

    /// Delivers messages. Returns the number of those at the beginning that are acknowledged by now.
    ///
    /// # Errors
    /// The first message was not acknowledged. A panic of a client is the broker's fault.
    pub(in super::super) async fn deliver(
        &self,
        messages: &[SpooledMessage],
    ) -> Result<usize, DeliveryFailure> {
        let Some(first) = messages.first() else { return Ok(0) };
        self.acknowledged.forget_before(first);
        let known = self.acknowledged.leading(messages);
        if known > 0 {
            return Ok(known);
        }
        let mut connection = self.connection.lock().await;
        if connection.as_ref().is_some_and(|it| it.opened.elapsed() >= self.age_max) {
            close(connection.take()).await;
        }
        let attempt = AssertUnwindSafe(self.attempt(&mut connection, messages)).catch_unwind();
        let outcome = match tokio::time::timeout(self.patience, attempt).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_panic)) => Err(DeliveryFailure::away("the broker's reply broke its client")),
            Err(_) => {
                let patience = self.patience;
                Err(DeliveryFailure::away(format!("no acknowledgement within {patience:?}")))
            }
        };
        if outcome.is_err() {
            *connection = None;
        }
        match (self.acknowledged.leading(messages), outcome) {
            (0, Err(failure)) => Err(self.client.for_logs(failure)),
            (0, Ok(())) => Err(DeliveryFailure::away("the broker acknowledged no message")),
            (count, _) => Ok(count),
        }
    }

    async fn attempt(
        &self,
        connection: &mut Option<OpenConnection>,
        messages: &[SpooledMessage],
    ) -> Result<(), DeliveryFailure> {
        let connected = match connection.take() {
            Some(connected) => connected,
            None => {
                OpenConnection { connection: self.client.connect().await?, opened: Instant::now() }
            }
        };
        let connected = connection.insert(connected);
        connected.connection.publish(messages, &self.acknowledged, &self.limits).await
    }

    /// Closes the connection of an idle lane.
    pub(in super::super) async fn rest(&self) {
        close(self.connection.lock().await.take()).await;
    }

    /// Replaces connections of this age.
    #[cfg(test)]
    pub(super) fn with_age_max(self, age_max: Duration) -> Self {
        Self { age_max, ..self }
    }

    /// Returns true if the lane has a connection.
    #[cfg(test)]
    pub(super) async fn is_connected(&self) -> bool {
        self.connection.lock().await.is_some()
    }
}

async fn close(open: Option<OpenConnection>) {
    if let Some(open) = open {
        let _ = tokio::time::timeout(CLOSE_PATIENCE, open.connection.close()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{AMPLE, away, spooled};
    use super::*;

    #[tokio::test]
    async fn a_panic_of_a_client_is_a_failed_attempt() {
        let lane = BrokerLane::with_patience(BrokerClient::broken(), AMPLE);
        for _ in 0..2 {
            let reason = away(lane.deliver(&spooled(&["1"])).await);
            assert!(reason.contains("broke its client"), "{reason}");
        }
        assert!(!lane.is_connected().await);
    }
}
