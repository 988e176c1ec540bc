//! What a process is told of events.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::targets::{TargetSettings, check, targets};
use super::tries::Limits;
use crate::failure::Failure;
use crate::process::settings::Told;
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
    /// How often a webhook that was reached gets a message that it doesn't acknowledge.
    pub(crate) max_notification_attempts: u32,
    /// How often it gets one that it says it will not take.
    pub(crate) max_notification_refusals: u32,
}

impl Default for EventSettings {
    fn default() -> Self {
        Self {
            notifications: BTreeMap::new(),
            notification_spool: Size(64 << 20),
            // With the pauses between them: an hour and a half, and half a minute.
            max_notification_attempts: 100,
            max_notification_refusals: 8,
        }
    }
}

impl EventSettings {
    /// The names of these settings.
    pub(crate) const NAMES: [&str; 4] = [
        "notifications",
        "notification_spool",
        "max_notification_attempts",
        "max_notification_refusals",
    ];

    /// What the environment says of them, if that makes sense.
    pub(crate) fn of_environment() -> Result<Self, Failure> {
        let (nothing, set) =
            (BTreeMap::<String, String>::new(), |name: &str| std::env::var(name).ok());
        let settings: Self = Told::gather(&Self::NAMES, &nothing, set, None)?.extract()?;
        settings.check()?;
        Ok(settings)
    }

    /// Refuses what makes no sense.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if self.max_notification_attempts == 0 || self.max_notification_refusals == 0 {
            return Err(Failure::usage(
                "max_notification_attempts and max_notification_refusals start at 1: at 0 no message \
                 would be sent",
            ));
        }
        check(&self.notifications)
    }

    /// How often a message is sent.
    pub(super) fn limits(&self) -> Limits {
        Limits {
            attempts: self.max_notification_attempts,
            refusals: self.max_notification_refusals,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_message_is_given_up_before_it_was_sent() {
        let told = |settings: EventSettings| settings.check().unwrap_err().to_string();
        let settings = EventSettings { max_notification_attempts: 0, ..EventSettings::default() };
        assert!(told(settings).contains("start at 1"));
        let settings = EventSettings { max_notification_refusals: 0, ..EventSettings::default() };
        assert!(told(settings).contains("start at 1"));
        EventSettings::default().check().unwrap();
    }

    #[test]
    fn every_setting_of_events_has_a_name() {
        let printed = format!("{:#?}", EventSettings::default());
        let fields =
            printed.lines().filter(|line| line.starts_with("    ") && !line.starts_with("     "));
        let fields = fields.filter_map(|line| line.trim().split_once(':'));
        assert_eq!(fields.map(|(name, _)| name).collect::<Vec<_>>(), EventSettings::NAMES);
    }
}
