//! Lane of a target at its broker: one attempt at a time, on a connection that is kept.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::Mutex;

use super::super::retry::DeliveryFailure;
use super::super::spool::SpooledMessage;
use super::acknowledged::Acknowledged;
use super::batch_limits::BatchLimits;
use super::settings::{BrokerClient, BrokerConnection};

/// Timeout of an attempt, from the connection to the last acknowledgement.
const PATIENCE: Duration = Duration::from_secs(10);
/// Timeout of the close of an idle connection.
const CLOSE_PATIENCE: Duration = Duration::from_secs(1);

/// Lane of one tenant's messages.
pub(in super::super) struct BrokerLane {
    client: BrokerClient,
    acknowledged: Acknowledged,
    limits: BatchLimits,
    connection: Mutex<Option<BrokerConnection>>,
    patience: Duration,
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
        Self { client, acknowledged, limits, connection: Mutex::new(None), patience }
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
            (0, Err(failure)) => Err(failure),
            (0, Ok(())) => Err(DeliveryFailure::away("the broker acknowledged no message")),
            (count, _) => Ok(count),
        }
    }

    async fn attempt(
        &self,
        connection: &mut Option<BrokerConnection>,
        messages: &[SpooledMessage],
    ) -> Result<(), DeliveryFailure> {
        let connected = match connection.take() {
            Some(connected) => connected,
            None => self.client.connect().await?,
        };
        let connected = connection.insert(connected);
        connected.publish(messages, &self.acknowledged, &self.limits).await
    }

    /// Closes the connection of an idle lane.
    pub(in super::super) async fn rest(&self) {
        if let Some(connection) = self.connection.lock().await.take() {
            let _ = tokio::time::timeout(CLOSE_PATIENCE, connection.close()).await;
        }
    }

    /// Returns true if the lane has a connection.
    #[cfg(test)]
    pub(super) async fn is_connected(&self) -> bool {
        self.connection.lock().await.is_some()
    }
}
