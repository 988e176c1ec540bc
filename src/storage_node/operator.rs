//! What the admin address of a storage node tells.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use axum::Router;
use futures::FutureExt;
use martlet_protocol::backend::DeviceStatus;
use martlet_protocol::{Backend, DeviceId};
use martlet_storage_node::StorageNode;

use super::devices;
use crate::membership::Member;
use crate::membership::status::{self, AskLines};
use crate::process::operator::{Condition, Health, Operator};
use crate::process::tell::{condition, device_line};

/// A storage node that is open.
#[derive(Clone)]
pub(super) struct Opened {
    pub(super) name: Arc<str>,
    pub(super) member: Arc<Member>,
    pub(super) node: Arc<StorageNode>,
    pub(super) devices: Arc<BTreeMap<DeviceId, PathBuf>>,
}

#[async_trait]
impl Health for Opened {
    async fn condition(&self) -> Condition {
        let statuses = self.node.devices().await.unwrap_or_default();
        let mut condition = condition(&statuses);
        let rings = self.member.keeper.rings();
        let holds_entries = |device: &&DeviceStatus| {
            rings.index().is_some_and(|index| index.device(device.device).is_some())
        };
        let (voting, mute): (Vec<_>, Vec<_>) =
            statuses.iter().filter(holds_entries).partition(|device| device.voting);
        for device in &mute {
            condition.reasons.push(format!("device {} has no votes yet", device.device));
        }
        // Whoever waits for this node waits for its say.
        condition.serves &= mute.is_empty() || !voting.is_empty();
        for name in devices::missing(&rings, &self.name, &self.devices) {
            condition.reasons.push(format!("the device {name} of the rings is not given"));
        }
        condition
    }
}

/// Where `martlet admin status` finds its answer.
pub(super) fn status(operator: &Arc<Operator>, opened: &Opened) -> Router {
    let node = opened.node.clone();
    let devices: AskLines = Arc::new(move || {
        let node = node.clone();
        async move {
            let devices = node.devices().await.unwrap_or_default();
            devices.into_iter().map(device_line).collect()
        }
        .boxed()
    });
    let role = format!("storage node {}", opened.name);
    status::route(&role, operator, &opened.member, devices)
}
