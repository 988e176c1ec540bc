//! Devices of a storage node, as their introduction to peers needs them (rule G1).

use std::sync::Arc;

use async_trait::async_trait;
use martlet_membership::IntroducedDevices;
use martlet_protocol::backend::{DeviceCondition, DeviceStatus};
use martlet_protocol::opening::{Incarnation, OpeningStatus};
use martlet_protocol::{Backend, BackendExt, DeviceId, DeviceIdentity, Result};
use martlet_storage_node::StorageNode;

/// Storage node whose devices are introduced.
pub(super) struct IntroducedNode(pub(super) Arc<StorageNode>);

#[async_trait]
impl IntroducedDevices for IntroducedNode {
    async fn devices(&self) -> Result<Vec<DeviceStatus>> {
        self.0.devices().await
    }

    fn openings(&self) -> Vec<OpeningStatus> {
        self.0.openings()
    }

    async fn confirm(&self, device: DeviceId, current: Incarnation) -> Result<()> {
        self.0.confirm(device, current).await
    }

    async fn refuse(&self, device: DeviceId, by: Incarnation) -> Result<()> {
        self.0.refuse(device, by).await
    }

    async fn grant_votes(
        &self,
        device: DeviceId,
        current: Incarnation,
        is_founder: bool,
    ) -> Result<()> {
        let identity = DeviceIdentity(current.device.0);
        // Nothing delays the call within the process.
        let condition = DeviceCondition { identity, not_after_ms: u64::MAX };
        if is_founder {
            self.0.set_fenced_of(device, condition).await?;
        }
        self.0.set_voting_of(device, condition, true).await
    }

    async fn advance(&self, device: DeviceId) -> Result<()> {
        self.0.advance(device).await
    }

    async fn begin_anew(&self, device: DeviceId) -> Result<()> {
        self.0.begin_anew(device).await
    }
}
