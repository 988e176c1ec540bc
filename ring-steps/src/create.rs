//! New builders, and those of ring files.

use martlet_admin_api::ring_builder::{NewBuilder, REPLICAS, StepLine};
use martlet_protocol::{PolicyId, Redundancy};
use martlet_ring::{Builder, Lineage, Ring, RingSettings};
use martlet_serving::Failure;

use crate::policy;

/// Creates a builder without devices. `lineage` is 16 random bytes.
///
/// # Errors
/// Settings are out of their bounds, or the policy lacks a name.
pub fn create(new: &NewBuilder, lineage: Lineage) -> Result<(Builder, StepLine), Failure> {
    let redundancy = new.erasure.as_deref().map(policy::code).transpose()?.unwrap_or_default();
    let fragments = redundancy.fragments().map(f64::from);
    let settings = RingSettings {
        policy: PolicyId(new.policy),
        policy_name: policy_name(new)?,
        redundancy,
        part_power: new.part_power,
        replicas: fragments.or(new.replicas).unwrap_or(REPLICAS),
        min_part_hours: new.min_part_hours,
        overload: new.overload,
    };
    let done = format!(
        "made a builder for policy {} ({}): 2^{} partitions × {}",
        new.policy,
        settings.policy_name,
        new.part_power,
        redundancy_text(&settings)
    );
    let builder = Builder::create(settings, lineage)?;
    let mut notes = vec!["`add` devices next".to_owned()];
    if let Redundancy::Erasure { m, .. } = redundancy {
        notes.extend(policy::advice(m));
    }
    Ok((builder, StepLine { done, notes, added: Vec::new() }))
}

fn policy_name(new: &NewBuilder) -> Result<String, Failure> {
    match &new.policy_name {
        Some(name) => policy::check_name(name).map(|()| name.clone()),
        None if new.policy == 0 => Ok(policy::FIRST_NAME.to_owned()),
        None => Err(Failure::usage(format!(
            "policy {} needs a name, by which buckets select it: set it with --policy-name",
            new.policy
        ))),
    }
}

/// Formats the replication of a ring: `3`, or `6 fragments (4+2)`.
pub fn redundancy_text(settings: &RingSettings) -> String {
    match settings.redundancy {
        Redundancy::Replicated => settings.replicas.to_string(),
        code @ Redundancy::Erasure { .. } => format!("{} fragments ({code})", settings.replicas),
    }
}

/// Recreates a builder from its ring file.
///
/// # Errors
/// The settings are out of their bounds.
pub fn reconstruct(
    ring: &Ring,
    min_part_hours: u32,
    overload: f64,
    now_ms: u64,
) -> Result<(Builder, StepLine), Failure> {
    let builder = Builder::from_ring(ring, min_part_hours, overload, now_ms)?;
    let done = format!(
        "reconstructed the builder from the ring of epoch {}: {} devices, no data moves",
        ring.epoch(),
        ring.devices().len()
    );
    let note = format!(
        "a ring file lacks min-part-hours and overload: they are {min_part_hours} and {overload} \
         now; earlier history is lost"
    );
    Ok((builder, StepLine { done, notes: vec![note], added: Vec::new() }))
}
