//! What a process is told of events.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::targets::{TargetSettings, check, targets};
use crate::failure::Failure;
use crate::units::Size;

/// Settings of a process in which something becomes of objects: by requests, or by rules.
#[derive(Clone, Debug, Deserialize)]
#[serde(default)]
pub(crate) struct EventSettings {
    /// Where events go that the rules of buckets name.
    #[serde(deserialize_with = "targets")]
    pub(crate) notifications: BTreeMap<String, TargetSettings>,
    /// Bytes of events that wait for a target on disk, for each.
    pub(crate) notification_spool: Size,
}

impl Default for EventSettings {
    fn default() -> Self {
        Self { notifications: BTreeMap::new(), notification_spool: Size(64 << 20) }
    }
}

impl EventSettings {
    /// The names of these settings.
    pub(crate) const NAMES: [&str; 2] = ["notifications", "notification_spool"];

    /// Refuses what makes no sense.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        check(&self.notifications)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_of_events_has_a_name() {
        let printed = format!("{:#?}", EventSettings::default());
        let fields =
            printed.lines().filter(|line| line.starts_with("    ") && !line.starts_with("     "));
        let fields = fields.filter_map(|line| line.trim().split_once(':'));
        assert_eq!(fields.map(|(name, _)| name).collect::<Vec<_>>(), EventSettings::NAMES);
    }
}
