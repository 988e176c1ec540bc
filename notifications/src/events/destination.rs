//! Destination of a target's messages: a webhook, a file or a broker.

use std::sync::Arc;

use bytes::Bytes;

use super::broker::BrokerLane;
use super::lane_owner::LaneOwner;
use super::queue_file::QueueFile;
use super::retry::DeliveryFailure;
use super::spool::SpooledMessage;
use super::tasks::off_thread;
use super::webhook::Webhook;

/// Destination of a target's messages.
#[derive(Clone, Debug)]
pub(super) enum Destination {
    Webhook(Arc<Webhook>),
    File(QueueFile),
    Broker(Arc<BrokerLane>),
}

impl Destination {
    /// Returns the destination of a lane's messages. In a file target each tenant has a separate
    /// file, and at a broker each lane has a separate connection.
    pub(super) fn of(&self, owner: &LaneOwner) -> Self {
        match (self, owner.name()) {
            (Self::File(file), Some(name)) => Self::File(file.of_tenant(name)),
            (Self::Broker(lane), _) => Self::Broker(Arc::new(lane.sibling())),
            _ => self.clone(),
        }
    }

    /// Delivers a first part of these messages. Returns the number that was acknowledged.
    pub(super) async fn deliver(
        &self,
        messages: &[SpooledMessage],
    ) -> Result<usize, DeliveryFailure> {
        match self {
            Self::Webhook(webhook) => {
                let first = messages.first().map(|it| it.message.clone()).unwrap_or_default();
                webhook.post(first).await.map(|()| 1)
            }
            Self::File(file) => {
                let file = file.clone();
                let batch: Vec<Bytes> = messages.iter().map(|it| it.message.clone()).collect();
                let appended = off_thread((), move |()| file.append(&batch)).await;
                appended.1.map(|()| messages.len()).map_err(DeliveryFailure::from)
            }
            Self::Broker(lane) => lane.deliver(messages).await,
        }
    }

    /// Closes the connection of an idle lane. The next message opens another.
    pub(super) async fn rest(&self) {
        if let Self::Broker(lane) = self {
            lane.rest().await;
        }
    }
}
