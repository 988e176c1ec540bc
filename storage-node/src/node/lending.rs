//! Descriptors of extents for other processes on the machine.

use martlet_protocol::{DeviceId, Error, ExtentId};
use rustix::process::geteuid;

use super::StorageNode;
use crate::extents::{LendError, LendingLimit, LentExtent};

/// User id of root.
const ROOT: u32 = 0;

impl StorageNode {
    /// Opens the file of an extent for a process of user `uid`. Without a read-only mount, refuses
    /// root and this process's user, who could open the file again for writing.
    pub async fn lend(
        &self,
        device: DeviceId,
        id: ExtentId,
        uid: u32,
    ) -> Result<LentExtent, LendError> {
        let opened = self.online(device)?;
        let Some(folder) = opened.lent.clone() else {
            let sentence = format!("device {device} does not lend its extents");
            return Err(Error::unavailable(sentence).into());
        };
        let may_write = uid == ROOT || uid == geteuid().as_raw();
        match folder.writable() {
            Some(reason) if may_write => {
                Err(LendError::Writable { device, reason: reason.to_owned() })
            }
            _ => opened.extents.lend(id, folder).await,
        }
    }

    /// Returns the devices that are open, lend their extents, and have no read-only mount.
    pub fn lending_limits(&self) -> Vec<LendingLimit> {
        let limit = |id: DeviceId| {
            let opened = self.online(id).ok()?;
            let reason = opened.lent.as_ref()?.writable()?.to_owned();
            Some(LendingLimit { device: id, reason })
        };
        self.devices.iter().filter_map(|device| limit(device.id())).collect()
    }
}
