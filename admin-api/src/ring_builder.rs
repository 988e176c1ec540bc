//! JSON messages about builders of rings: steps of operators, the plan of a rebalance, and the builder
//! that results. No process keeps a builder: each request has one, and its reply the next one.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::forecast::CrowdedLine;
use crate::ring_push::RingFile;

/// Path of the computation on a builder.
pub const RING_BUILDER: &str = "/admin/v1/ring-builder";
/// Maximum bytes of a request. A builder of 2^20 partitions and 4 replicas has 18 MiB.
pub const RING_BUILDER_BYTES_MAX: usize = 32 << 20;
/// Maximum part power of a builder in a request.
pub const BUILDER_PART_POWER_MAX: u8 = 20;
/// Maximum number of replicas of all partitions together, 2^20 partitions with 4 each.
pub const BUILDER_REPLICAS_MAX: u64 = 4 << 20;
/// Maximum number of devices of a builder in a request.
pub const BUILDER_DEVICES_MAX: usize = 10_000;
/// Maximum number of steps in a request.
pub const BUILDER_STEPS_MAX: usize = 1_000;
/// Default bytes per second that each device uses for moves.
pub const PLAN_BYTES_PER_S: u64 = 100_000_000;
/// Default share of a device's capacity above which a plan warns.
pub const PLAN_HIGH_WATER: f64 = 0.9;
/// Default number of replicas of a new ring.
pub const REPLICAS: f64 = 3.0;
/// Default part power of a new ring.
pub const PART_POWER: u8 = 16;
/// Default hours between two rebalances.
pub const MIN_PART_HOURS: u32 = 24;
/// Default number of rebalances of a drain.
pub const DRAIN_STEPS: u32 = 4;

/// Request: a builder, steps on it, and the parts of the reply.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RingBuilderRequest {
    /// Origin of the builder.
    pub source: BuilderSource,
    /// Steps in their order, at most 1,000. The first one that fails refuses the request.
    #[serde(default)]
    pub steps: Vec<RingStep>,
    /// Rehearses a rebalance after the steps: the reply has its plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanOptions>,
    /// Carries the rebalance of the plan out: the reply describes the builder after it.
    #[serde(default)]
    pub rebalance: bool,
    /// Adds the builder file to the reply.
    #[serde(default)]
    pub with_builder: bool,
    /// Adds the ring file to the reply. Devices and settings must not have changed since the last
    /// rebalance.
    #[serde(default)]
    pub with_ring: bool,
}

/// Origin of a builder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BuilderSource {
    /// Content of a builder file.
    Builder(String),
    /// New builder without devices.
    Create(NewBuilder),
    /// Ring file of a lost builder.
    Reconstruct(LostBuilder),
}

/// Settings of a new builder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewBuilder {
    /// Number of partitions as a power of two. Default: 16.
    #[serde(default = "part_power")]
    pub part_power: u8,
    /// Number of replicas. Default: 3, or the fragments of `erasure`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<f64>,
    /// Erasure code instead of replicas, such as `4+2`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub erasure: Option<String>,
    /// Minimum hours between two moves of a partition. Default: 24.
    #[serde(default = "min_part_hours")]
    pub min_part_hours: u32,
    /// Maximum excess of a device over its share, 0.1 for a tenth. Default: 0.
    #[serde(default)]
    pub overload: f64,
    /// Number of the storage policy. Default: 0.
    #[serde(default)]
    pub policy: u16,
    /// Name of the storage policy. Default for policy 0: `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_name: Option<String>,
}

/// Ring in use, and the settings that a ring file lacks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LostBuilder {
    /// Ring file in base64.
    pub file: String,
    /// Minimum hours between two moves of a partition. Default: 24.
    #[serde(default = "min_part_hours")]
    pub min_part_hours: u32,
    /// Maximum excess of a device over its share. Default: 0.
    #[serde(default)]
    pub overload: f64,
}

fn part_power() -> u8 {
    PART_POWER
}

fn min_part_hours() -> u32 {
    MIN_PART_HOURS
}

fn drain_steps() -> u32 {
    DRAIN_STEPS
}

/// Step of an operator on a builder: a command of `martlet ring`. Devices are named by id (`d7`) or
/// place (`r1`, `r1z2`, `r1z2-alpha`, `r1z2-alpha/sdb`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "step", rename_all = "kebab-case", deny_unknown_fields)]
pub enum RingStep {
    /// Adds devices.
    Add {
        /// Devices, at least one.
        devices: Vec<NewRingDevice>,
    },
    /// Removes dead or empty devices.
    Remove {
        /// Devices by id or place.
        devices: Vec<String>,
        /// Remove even the last device of a zone that placement needs.
        #[serde(default)]
        force: bool,
    },
    /// Changes the weight of devices.
    SetWeight {
        /// Devices by id or place.
        devices: String,
        /// New weight: the share of data relative to other devices.
        weight: f64,
    },
    /// Changes a device's address, name or metadata.
    SetInfo {
        /// Device by id or place.
        device: String,
        /// New address of the device's node, as `host:port`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        address: Option<String>,
        /// New name of the device on its node.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        /// New metadata.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        meta: Option<String>,
    },
    /// Empties devices in steps, one for each rebalance.
    Drain {
        /// Devices by id or place.
        devices: Vec<String>,
        /// Number of rebalances until the devices are empty. Default: 4.
        #[serde(default = "drain_steps")]
        steps: u32,
    },
    /// Sets how far a device may exceed its share for better dispersion.
    SetOverload {
        /// Fraction of the share, such as 0.1.
        overload: f64,
    },
    /// Sets the number of replicas.
    SetReplicas {
        /// Number such as 3, or 2.5.
        replicas: f64,
    },
    /// Sets the minimum time between two moves of a partition.
    SetMinPartHours {
        /// Hours.
        hours: u32,
    },
    /// Doubles the number of partitions. No data moves.
    IncreasePartPower,
    /// Records that all moves are done, after a clean census.
    Settle,
    /// Lets the next rebalance move recently moved partitions again.
    PretendMinPartHoursPassed,
}

/// Device to add.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewRingDevice {
    /// Region, zone, node, address and name, such as `r1z2-alpha@10.0.0.5:6200/sdb`.
    pub place: String,
    /// Share of data relative to other devices.
    pub weight: f64,
    /// Free text for operators.
    #[serde(default)]
    pub meta: String,
}

/// Options of a plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlanOptions {
    /// Seed for ties. Default: derived from the epoch, so that a rebalance follows its plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Usage of devices, by their number. Without it, a plan has no bytes and hours.
    #[serde(default)]
    pub usage: BTreeMap<u32, DeviceUsage>,
    /// Bytes per second of moves at each device. Default: 100,000,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_s: Option<u64>,
    /// Share of a device's capacity above which the plan warns, above 0 and at most 1. Default: 0.9.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high_water: Option<f64>,
}

/// Fill level of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeviceUsage {
    /// Used bytes.
    pub used: u64,
    /// Capacity in bytes.
    pub capacity: u64,
}

/// Reply: the builder after the steps, and the requested parts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RingBuilderReply {
    /// Sentence and notes about the new builder, if `source` made one, then those of each step, then
    /// those of the rebalance.
    pub steps: Vec<StepLine>,
    /// Settings of the ring.
    pub settings: BuilderSettings,
    /// Epoch of the last ring; 0 before the first.
    pub epoch: u64,
    /// True if devices or settings changed since the last rebalance.
    pub changed: bool,
    /// Number of replicas that moved and were not settled.
    pub replicas_moving: u64,
    /// Devices by id, with those that the next rebalance removes.
    pub devices: Vec<BuilderDeviceLine>,
    /// Worst deviation of a device from its share, in percent. `None` before the first rebalance.
    pub balance: Option<f64>,
    /// Replicas that are closer together than necessary, in percent.
    pub dispersion: Option<f64>,
    /// Regions, zones, nodes and devices where replicas are too close together, worst first.
    pub crowded: Vec<CrowdedLine>,
    /// Overload at which replicas would be as far apart as the devices allow.
    pub overload_needed: f64,
    /// Reason why the builder is invalid, as `martlet ring BUILDER validate` prints it.
    pub invalid: Option<String>,
    /// Advice on devices and settings.
    pub advice: Vec<String>,
    /// Recorded actions, oldest first, the last 500.
    pub history: Vec<HistoryLine>,
    /// Plan of the rebalance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanLine>,
    /// Content of the builder file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub builder: Option<String>,
    /// Ring file. Its name is that of the policy, such as `data-0`; a ring of copies may be the index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ring: Option<RingFile>,
}

/// Outcome of a step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StepLine {
    /// Sentence, which is also the record in the builder's history.
    pub done: String,
    /// Notes for the operator.
    pub notes: Vec<String>,
    /// Numbers of added devices.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub added: Vec<u32>,
}

/// Settings of a builder.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BuilderSettings {
    /// Number of the storage policy.
    pub policy: u16,
    /// Name of the storage policy.
    pub policy_name: String,
    /// Erasure code, such as `4+2`. `None` for copies.
    pub erasure: Option<String>,
    /// Number of partitions as a power of two.
    pub part_power: u8,
    /// Replicas of each partition.
    pub replicas: f64,
    /// Minimum hours between two moves of a partition.
    pub min_part_hours: u32,
    /// Maximum excess of a device over its share.
    pub overload: f64,
}

/// Device of a builder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BuilderDeviceLine {
    /// Number of the device.
    pub device: u32,
    /// Region.
    pub region: u32,
    /// Zone within the region.
    pub zone: u32,
    /// Name of the node.
    pub node: String,
    /// Address of the node.
    pub address: String,
    /// Name on the node.
    pub name: String,
    /// Share of data relative to other devices.
    pub weight: f64,
    /// Free text for operators.
    pub meta: String,
    /// True if the next rebalance moves all its replicas.
    pub removed: bool,
    /// True if each rebalance lowers its weight.
    pub draining: bool,
    /// Replicas that it holds. `None` before the first rebalance, and for removed devices.
    pub replicas: Option<u32>,
    /// Replicas that are its share by weight.
    pub desired: Option<f64>,
    /// Deviation in percent; above zero the device holds too much.
    pub deviation: Option<f64>,
}

/// Record of an action on a builder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HistoryLine {
    /// Time of the action, in milliseconds since 1970.
    pub at_ms: u64,
    /// Operator.
    pub who: String,
    /// Description of the action.
    pub what: String,
}

/// Plan of a rebalance: its result and its cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlanLine {
    /// Sentence about the ring that the rebalance would make.
    pub sentence: String,
    /// Notes for the operator.
    pub notes: Vec<String>,
    /// Epoch of the resulting ring.
    pub epoch: u64,
    /// Replicas that leave a device that still exists.
    pub moved: u64,
    /// Replicas that had no device, or a removed one.
    pub placed: u64,
    /// Partitions that can't move because an earlier move isn't settled.
    pub locked: u64,
    /// Worst deviation of a device from its share afterwards, in percent.
    pub balance: f64,
    /// Replicas closer together than necessary afterwards, in percent.
    pub dispersion: f64,
    /// Number of further rebalances that would move replicas, at most 32.
    pub rebalances_to_go: u32,
    /// Number of partitions with a copied replica.
    pub partitions: u64,
    /// Number of replicas that are copied.
    pub replicas: u64,
    /// Bytes that move. `None` without usage of devices.
    pub bytes: Option<u64>,
    /// Hours until the busiest device is finished. `None` without usage of devices.
    pub hours: Option<f64>,
    /// Devices that gain or lose replicas, by id.
    pub devices: Vec<PlanDeviceLine>,
    /// Warnings about devices that would exceed their high-water mark during the moves.
    pub warnings: Vec<String>,
}

/// Plan of a rebalance for one device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlanDeviceLine {
    /// Number of the device.
    pub device: u32,
    /// Place of the device.
    pub place: String,
    /// Replicas before the moves.
    pub before: u64,
    /// Replicas after the moves.
    pub after: u64,
    /// Replicas gained.
    pub coming: u64,
    /// Replicas lost.
    pub going: u64,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes sent.
    pub bytes_out: u64,
    /// Hours until the device is finished.
    pub hours: f64,
    /// Highest share of capacity in use, from 0 to 1. `None` if the capacity is unknown.
    pub peak: Option<f64>,
}

/// Refusal of a request, with the step that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StepRefusal {
    /// Sentence for people: that of the command `martlet ring`.
    pub error: String,
    /// Position of the failed step in the request, from 0. `None` if no step failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<usize>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_short_and_have_no_unknown_fields() {
        let text = r#"{"source": {"create": {}}, "steps": [{"step": "drain", "devices": ["d1"]}]}"#;
        let request: RingBuilderRequest = serde_json::from_str(text).unwrap();
        let BuilderSource::Create(new) = &request.source else { panic!("{request:?}") };
        assert_eq!((new.part_power, new.min_part_hours), (PART_POWER, MIN_PART_HOURS));
        assert_eq!(request.steps, [RingStep::Drain { devices: vec!["d1".into()], steps: 4 }]);
        assert!(!request.rebalance && request.plan.is_none());
        let unknown = [
            r#"{"source": {"create": {"who": "root"}}}"#,
            r#"{"source": {"create": {}}, "steps": [{"step": "drain", "devices": [], "now": 1}]}"#,
            r#"{"source": {"create": {}}, "steps": [{"step": "sweep"}]}"#,
            r#"{"source": {"path": "/etc/passwd"}}"#,
            r#"{"source": {"create": {}}, "plan": {"usage": {"d0": {"used": 1, "capacity": 2}}}}"#,
            "{}",
        ];
        for text in unknown {
            assert!(serde_json::from_str::<RingBuilderRequest>(text).is_err(), "{text}");
        }
        let usage = r#"{"usage": {"7": {"used": 1, "capacity": 2}}}"#;
        let options: PlanOptions = serde_json::from_str(usage).unwrap();
        assert_eq!(options.usage[&7], DeviceUsage { used: 1, capacity: 2 });
    }

    #[test]
    fn steps_are_encoded_under_the_names_of_the_commands() {
        let step = RingStep::SetWeight { devices: "d1".into(), weight: 2.5 };
        let json = serde_json::json!({ "step": "set-weight", "devices": "d1", "weight": 2.5 });
        assert_eq!(serde_json::to_value(&step).unwrap(), json);
        let refusal = StepRefusal { error: "no".into(), step: None };
        assert_eq!(serde_json::to_string(&refusal).unwrap(), r#"{"error":"no"}"#);
    }
}
