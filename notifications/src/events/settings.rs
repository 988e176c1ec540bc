//! Settings of events.

use std::collections::BTreeMap;

use martlet_serving::settings::MergedSettings;
use martlet_serving::{Failure, Size};
use serde::Deserialize;

use super::retry::Limits;
use super::targets::{TargetSettings, check, targets};

/// Settings of a process whose requests or lifecycle rules change objects.
#[derive(Clone, Debug, Deserialize)]
#[serde(default)]
pub struct EventSettings {
    /// Targets by name, as the rules of buckets name them.
    #[serde(deserialize_with = "targets")]
    pub(super) notifications: BTreeMap<String, TargetSettings>,
    /// Maximum bytes of events on disk for each lane of a target.
    pub(super) notification_spool: Size,
    /// Attempts to deliver a message to a webhook that is reached but does not acknowledge.
    pub(super) max_notification_attempts: u32,
    /// Attempts to deliver a message that a webhook or a broker refuses.
    pub(super) max_notification_refusals: u32,
}

impl Default for EventSettings {
    fn default() -> Self {
        Self {
            notifications: BTreeMap::new(),
            notification_spool: Size(64 << 20),
            // Including pauses, 100 attempts take an hour and a half, and 8 refusals half a minute.
            max_notification_attempts: 100,
            max_notification_refusals: 8,
        }
    }
}

impl EventSettings {
    /// Names of these settings.
    pub const NAMES: [&str; 4] = [
        "notifications",
        "notification_spool",
        "max_notification_attempts",
        "max_notification_refusals",
    ];

    /// Reads these settings from the environment, and checks them.
    pub fn of_environment() -> Result<Self, Failure> {
        let (nothing, set) =
            (BTreeMap::<String, String>::new(), |name: &str| std::env::var(name).ok());
        let settings: Self =
            MergedSettings::gather(&Self::NAMES, &nothing, set, None)?.extract()?;
        settings.check()?;
        Ok(settings)
    }

    /// Refuses invalid values.
    pub fn check(&self) -> Result<(), Failure> {
        if self.max_notification_attempts == 0 || self.max_notification_refusals == 0 {
            return Err(Failure::usage(
                "max_notification_attempts and max_notification_refusals must be at least 1",
            ));
        }
        check(&self.notifications)
    }

    /// Returns true if any target is configured.
    pub fn has_targets(&self) -> bool {
        !self.notifications.is_empty()
    }

    /// Returns the limits on attempts for a message.
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
        let refusal = |settings: EventSettings| settings.check().unwrap_err().to_string();
        let settings = EventSettings { max_notification_attempts: 0, ..EventSettings::default() };
        assert!(refusal(settings).contains("must be at least 1"));
        let settings = EventSettings { max_notification_refusals: 0, ..EventSettings::default() };
        assert!(refusal(settings).contains("must be at least 1"));
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
