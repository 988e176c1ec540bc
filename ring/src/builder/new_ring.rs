//! New rings over devices that never change.

use martlet_protocol::{PolicyId, Redundancy};

use super::rebalance::RebalanceContext;
use super::{Builder, RingSettings};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::ring::Ring;

impl Ring {
    /// Builds a new ring from `devices` alone, reproducibly; for single-process servers and tests.
    /// If devices may change later, keep a [`Builder`]: a new ring over other
    /// devices moves data.
    pub fn of_devices(policy: PolicyId, replicas: usize, devices: &[Device]) -> Result<Self> {
        if replicas == 0 || replicas > devices.len() {
            let message = format!(
                "{replicas} replicas need as many devices, and there are {}: add devices or reduce \
                 the replicas",
                devices.len()
            );
            return Err(Error::invalid(message));
        }
        Self::build(policy, "default", Redundancy::Replicated, replicas, devices)
    }

    /// Builds a new ring for a policy of fragments, each on a separate device.
    pub fn of_code(
        policy: PolicyId,
        name: &str,
        code: Redundancy,
        devices: &[Device],
    ) -> Result<Self> {
        let Some(fragments) = code.fragments() else {
            return Err(Error::invalid(format!(
                "\"{code}\" is not an erasure code such as \"4+2\""
            )));
        };
        if usize::from(fragments) > devices.len() {
            return Err(Error::invalid(format!(
                "the erasure code {code} needs {fragments} devices, one for each fragment, and \
                 there are {}: add devices, or choose a code with fewer fragments",
                devices.len()
            )));
        }
        Self::build(policy, name, code, usize::from(fragments), devices)
    }

    fn build(
        policy: PolicyId,
        name: &str,
        redundancy: Redundancy,
        replicas: usize,
        devices: &[Device],
    ) -> Result<Self> {
        let mut devices = devices.to_vec();
        devices.sort_by_key(|device| device.id);
        let next_id = devices.last().map_or(0, |device| device.id.0.saturating_add(1));
        // About 200 replicas for each device, so that each gets its share within a percent.
        let parts = (devices.len() * 200 / replicas).clamp(256, 1 << 16).next_power_of_two();
        #[expect(clippy::cast_possible_truncation, reason = "at most 16")]
        let part_power = parts.trailing_zeros() as u8;
        let settings = RingSettings {
            policy,
            policy_name: name.to_owned(),
            redundancy,
            part_power,
            #[expect(clippy::cast_precision_loss, reason = "at most REPLICAS_MAX")]
            replicas: replicas as f64,
            min_part_hours: 1,
            overload: 0.0,
        };
        let mut builder = Builder::of_devices(settings, devices, next_id)?;
        builder.rebalance(RebalanceContext::default())?;
        builder.ring()
    }
}
