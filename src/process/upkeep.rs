//! Settings of the upkeep workers, for every role that runs them.

use std::sync::Arc;
use std::time::Duration;

use martlet_protocol::lifecycle::Day;
use martlet_protocol::limits::FIRST_HAND_AGE_MS_MAX;
use martlet_proxy::UNDRIVEN_MS_MAX;
use martlet_replicator::{AuditOptions, FileCursors, ReplicateOptions, UpkeepOptions};
use martlet_serving::folder::DataFolder;
use martlet_serving::settings::{number_from, span};
use martlet_serving::{Failure, Size};
use serde::{Deserialize, Deserializer};

/// Environment variable for tests only: reclaim age of tombstones and uploads in milliseconds.
const TEST_RECLAIM_AGE_MS: &str = "MARTLET_TEST_RECLAIM_AGE_MS";
/// Folder of the workers' cursors within the data folder.
const CURSORS: &str = "cursors";
/// Minimum of `reclaim_age`. Nodes refuse writes older than ten minutes, by clocks that may be
/// minutes off (rule T2). A younger tombstone might still be needed against such writes.
const RECLAIM_AGE_MIN: Duration = Duration::from_hours(1);

/// A proxy that continues a completion finds the object's entry or tombstone (rule M1).
const _: () = assert!(
    Duration::from_millis(UNDRIVEN_MS_MAX + FIRST_HAND_AGE_MS_MAX).as_secs()
        < RECLAIM_AGE_MIN.as_secs()
);

/// Settings of the upkeep workers.
#[derive(Clone, Debug, Deserialize)]
#[serde(default)]
pub(crate) struct UpkeepSettings {
    /// Age at which a tombstone is collected (rule T1), if no device of the ring is away.
    #[serde(deserialize_with = "span")]
    reclaim_age: Duration,
    /// Age at which an uncompleted upload is aborted. `None` means never.
    #[serde(deserialize_with = "maybe_span")]
    upload_age: Option<Duration>,
    /// Length of a day of lifecycle rules, in seconds.
    lifecycle_day_seconds: u64,
    /// Bytes per second that the audit reads and verifies.
    audit_rate: Size,
    /// Maximum bytes per second of copied extents. `None` means only clients' load limits the rate.
    replicate_rate: Option<Size>,
}

impl Default for UpkeepSettings {
    fn default() -> Self {
        let UpkeepOptions { audit, reclaim_age, upload_age, lifecycle_day, .. } =
            UpkeepOptions::default();
        Self {
            reclaim_age,
            upload_age,
            lifecycle_day_seconds: lifecycle_day.ms() / 1000,
            audit_rate: Size(audit.bytes_per_second),
            replicate_rate: None,
        }
    }
}

fn maybe_span<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    span(deserializer).map(Some)
}

impl UpkeepSettings {
    /// Names of these settings.
    pub(crate) const NAMES: [&str; 5] =
        ["reclaim_age", "upload_age", "lifecycle_day_seconds", "audit_rate", "replicate_rate"];

    /// Refuses invalid values.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let youngest = self.upload_age.unwrap_or(self.reclaim_age).min(self.reclaim_age);
        if youngest < RECLAIM_AGE_MIN {
            return Err(Failure::usage(
                "reclaim_age and upload_age must be at least 1h, so that late writes don't restore \
                 deleted objects and running uploads stay",
            ));
        }
        if self.lifecycle_day_seconds == 0 {
            return Err(Failure::usage("lifecycle_day_seconds must be at least 1"));
        }
        if self.audit_rate.0 == 0 || self.replicate_rate == Some(Size(0)) {
            return Err(Failure::usage(
                "audit_rate and replicate_rate must be above 0 bytes per second, such as 20MiB",
            ));
        }
        Ok(())
    }

    /// Returns the options of the workers, which keep their cursors in `folder`. Tests set `hurry`,
    /// which shortens the age before replication, the rest between audits and the usage period.
    pub(crate) fn options(
        &self,
        folder: &DataFolder,
        hurry: Option<Duration>,
    ) -> Result<UpkeepOptions, Failure> {
        let test_age = number_from(TEST_RECLAIM_AGE_MS)?.map(Duration::from_millis);
        let usual = UpkeepOptions::default();
        let ms = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        Ok(UpkeepOptions {
            audit: AuditOptions {
                bytes_per_second: self.audit_rate.0,
                rest: hurry.unwrap_or(usual.audit.rest),
            },
            replicate: ReplicateOptions {
                young_ms: hurry.map_or(usual.replicate.young_ms, ms),
                bytes_per_second_max: self.replicate_rate.map(|Size(bytes)| bytes),
            },
            reclaim_age: test_age.unwrap_or(self.reclaim_age),
            upload_age: test_age.or(self.upload_age),
            lifecycle_day: Day::of_seconds(self.lifecycle_day_seconds),
            usage_period: hurry.unwrap_or(usual.usage_period),
            cursors: Arc::new(FileCursors::open(folder.join(CURSORS))),
        })
    }
}

#[cfg(test)]
mod tests {
    use martlet_serving::settings::MergedSettings;

    use super::*;

    #[test]
    fn every_upkeep_setting_has_a_name() {
        let printed = format!("{:#?}", UpkeepSettings::default());
        let fields =
            printed.lines().filter(|line| line.starts_with("    ") && !line.starts_with("     "));
        let fields = fields.filter_map(|line| line.trim().split_once(':'));
        assert_eq!(fields.map(|(name, _)| name).collect::<Vec<_>>(), UpkeepSettings::NAMES);
    }

    #[test]
    fn a_day_is_a_number_of_seconds_in_a_file_and_in_the_environment() {
        let seconds = |file: &str, variable: Option<&str>| {
            let environment = |name: &str| {
                variable.filter(|_| name == "MARTLET_LIFECYCLE_DAY_SECONDS").map(str::to_owned)
            };
            let args = std::collections::BTreeMap::<String, String>::new();
            let merged =
                MergedSettings::gather(&UpkeepSettings::NAMES, &args, environment, Some(file));
            merged.and_then(|it| it.extract::<UpkeepSettings>()).unwrap().lifecycle_day_seconds
        };
        assert_eq!(seconds("", None), 86_400);
        assert_eq!(seconds("lifecycle_day_seconds = 30", None), 30);
        assert_eq!(seconds("lifecycle_day_seconds = 30", Some("10")), 10);
    }

    #[test]
    fn t1_ages_at_which_the_deleted_could_come_back_are_refused() {
        let settings = UpkeepSettings::default();
        assert!(settings.check().is_ok());
        for (reclaim_min, upload_min) in [(59, 90), (90, 59), (0, 0)] {
            let young = UpkeepSettings {
                reclaim_age: Duration::from_mins(reclaim_min),
                upload_age: Some(Duration::from_mins(upload_min)),
                ..settings.clone()
            };
            assert!(young.check().unwrap_err().to_string().contains("at least 1h"));
        }
        let none = UpkeepSettings { lifecycle_day_seconds: 0, ..settings.clone() };
        assert!(none.check().unwrap_err().to_string().contains("at least 1"));
        let still = UpkeepSettings { replicate_rate: Some(Size(0)), ..settings };
        assert!(still.check().unwrap_err().to_string().contains("bytes per second"));
    }

    #[test]
    fn cursors_lie_in_the_data_folder_and_a_hurry_leaves_writers_less_time() {
        let place = tempfile::tempdir().unwrap();
        let folder = DataFolder::open(place.path()).unwrap();
        let settings =
            UpkeepSettings { replicate_rate: Some(Size(7)), ..UpkeepSettings::default() };
        assert_eq!(settings.options(&folder, None).unwrap().lifecycle_day, Day::FULL);
        let options = settings.options(&folder, Some(Duration::from_millis(5))).unwrap();
        assert_eq!(options.replicate.young_ms, 5);
        assert_eq!(options.replicate.bytes_per_second_max, Some(7));
        options.cursors.save("audit", "d1 x");
        let again = settings.options(&folder, None).unwrap();
        assert_eq!(again.cursors.load("audit").as_deref(), Some("d1 x"));
        assert_eq!(again.replicate.young_ms, ReplicateOptions::default().young_ms);
    }
}
