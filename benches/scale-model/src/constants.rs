//! Constants of the model. Each names its unit, origin and source, and can be set by hand.

use serde::Serialize;

use crate::error::{Error, Result};

/// Origin of a constant's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Origin {
    /// A constant or default of the code.
    Code,
    /// Measured by a benchmark.
    Measured,
    /// Computed from counts in `docs/SCALE.md`, not measured.
    Computed,
    /// Assumed; nothing in this repository shows it.
    Assumed,
    /// Given by `--set`.
    Set,
}

impl Origin {
    /// Name for a table.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Code => "code",
            Self::Measured => "measured",
            Self::Computed => "computed",
            Self::Assumed => "assumed",
            Self::Set => "set by hand",
        }
    }
}

/// One constant.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Constant {
    pub(crate) name: &'static str,
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
    pub(crate) origin: Origin,
    pub(crate) source: &'static str,
}

/// Defines the names of constants and their table, in one order.
macro_rules! constants {
    ($($id:ident $name:literal $value:literal $unit:literal $origin:ident $source:literal;)*) => {
        /// Name of a constant.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Name { $($id),* }

        const TABLE: &[Constant] = &[$(Constant {
            name: $name, value: $value, unit: $unit, origin: Origin::$origin, source: $source,
        }),*];
    };
}

constants! {
    Extents "extents" 1e8 "extents a device" Assumed "the cluster to be modelled";
    Registers "registers" 1e8 "registers a device" Assumed "one entry an extent";
    DeviceBytes "device_bytes" 16e12 "bytes" Assumed "a disk of 16 TB";
    Fill "fill" 0.7 "of the device" Assumed "";
    DeviceFailures "device_failures" 0.015 "a year and device" Assumed "annual failure rate of disks";
    NodeFailures "node_failures" 0.002 "a year and node" Assumed "machine lost with all its disks";
    RackFailures "rack_failures" 0.001 "a year and rack" Assumed "fire or flood: all disks of a rack";
    OperatorHours "operator_hours" 4.0 "hours" Assumed "from the failure to the push of the ring without the device, or to the empty disk in its place";
    SuspectSeconds "suspect_seconds" 40.0 "seconds" Code "a device whose calls don't end is suspect (docs/ARCHITECTURE.md)";
    SilenceSeconds "silence_seconds" 900.0 "seconds" Code "reconstruct/silence.rs PATIENCE_MS: wait for a silent previous holder";
    Page "page" 500.0 "extents" Code "replicator/src/pages/paged_worker.rs PAGE";
    PageSeconds "page_seconds" 0.0083 "seconds" Measured "benches/scale-model/walk.py: replicate-data, all rows in memory; dev build, two cores shared with other work";
    PageSeeks "page_seeks" 2.0 "reads" Assumed "rows of a page lie together: one read here, one on all peers at a time";
    Walkers "walkers" 12.0 "devices at a time" Code "replicator/src/pages.rs DEVICES_AT_ONCE";
    Bins "bins" 65_536.0 "sums a device" Code "protocol/src/extent_sums.rs BINS_MAX";
    PeersAtOnce "peers_at_once" 4.0 "peers" Code "replicator/src/differences.rs PEERS_AT_ONCE: calls for sums";
    InFlightSeconds "in_flight_seconds" 1.0 "seconds" Assumed "from the first holder that has or deletes an extent to the last: its bin differs";
    IdlePause "idle_pause" 30.0 "seconds" Code "replicator/src/runner.rs idle_pause: between two passes";
    GivesAloneHours "gives_alone_hours" 1.0 "hours" Code "reconstruct/silence.rs GIVES_ALONE_MS: until watchers help a giver";
    BusyPause "busy_pause" 0.02 "seconds" Code "replicator/src/runner.rs busy_pause";
    RestTimes "rest_times" 2.0 "steps" Code "ADR 73: rest after each step beside clients";
    RestMax "rest_max" 2.0 "seconds" Code "replicator/src/runner.rs yield_max";
    CopyAtOnce "copy_at_once" 4.0 "copies" Code "replicate/extents.rs COPY_AT_ONCE";
    CopyStep "copy_step" 64.0 "copies" Code "replicate/extents.rs STEP_COPIES";
    CopyStepBytes "copy_step_bytes" 33_554_432.0 "bytes" Code "replicate/extents.rs STEP_BYTES";
    RebuildAtOnce "rebuild_at_once" 2.0 "extents" Code "replicator/src/reconstruct.rs AT_ONCE";
    RebuildStep "rebuild_step" 32.0 "extents" Code "replicator/src/reconstruct.rs STEP_EXTENTS";
    RebuildStepBytes "rebuild_step_bytes" 67_108_864.0 "bytes" Code "replicator/src/reconstruct.rs STEP_BYTES";
    SeekSeconds "seek_seconds" 0.012 "seconds" Assumed "random read of a 7,200 rpm disk";
    SyncSeconds "sync_seconds" 0.024 "seconds" Assumed "synced write of such a disk: two seeks";
    DiskRate "disk_rate" 150e6 "bytes/s" Assumed "sequential rate of such a disk";
    IngestShare "ingest_share" 0.5 "of disk_rate" Assumed "what an empty disk may take in beside clients";
    NodeRate "node_rate" 2.5e9 "bytes/s" Assumed "25 Gbit/s, a fifth left to headers and clients";
    RackRate "rack_rate" 15.6e9 "bytes/s" Assumed "uplink of a rack, oversubscribed 4:1";
    SyncRate "sync_rate" 5000.0 "registers/s" Computed "docs/SCALE.md: sync, r/5,000";
    SyncSessions "sync_sessions" 8.0 "devices" Code "replicator/src/sync.rs SESSIONS_MAX";
    RegisterBytes "register_bytes" 1000.0 "bytes" Assumed "an entry and a share of inline bytes";
    ReclaimRate "reclaim_rate" 2000.0 "extents/s a node" Computed "docs/SCALE.md: reclaim, c/2,000";
    SweepRate "sweep_rate" 10000.0 "extents/s" Computed "docs/SCALE.md: sweep, e/10,000";
    CollectPage "collect_page" 512.0 "tombstones" Code "replicator/src/collect/queries.rs PAGE";
    CallSeconds "call_seconds" 0.0001 "CPU s a call" Assumed "a call about a page of tombstones";
    SumSeconds "sum_seconds" 0.002 "seconds" Assumed "a call for the sums of registers or of extents in a partition";
    ListSeconds "list_seconds" 0.00862 "CPU s for 1,000 keys" Measured "docs/CLUSTER.md: LIST 1,000 keys";
    AuditDays "audit_days" 25.0 "days a pass" Code "replicator/src/audit.rs PASS";
    ReclaimAgeHours "reclaim_age_hours" 168.0 "hours" Code "docs/OPERATIONS.md: reclaim_age";
    ChurnDay "churn_day" 0.01 "of extents a day" Assumed "overwritten or deleted, and written anew";
    PurgeShare "purge_share" 0.1 "of extents" Assumed "a dataset deleted on day 10, in six hours";
    RuledShare "ruled_share" 0.1 "of objects" Assumed "in buckets with lifecycle rules";
    FreeRunShare "free_run_share" 0.25 "of extents" Computed "docs/SCALE.md: f ≤ r/4 after random deletes";
    MemoryBytes "memory_bytes" 34_359_738_368.0 "bytes a node" Assumed "the setting `memory`";
}

/// All constants of a run.
#[derive(Clone, Debug)]
pub(crate) struct Constants(Vec<Constant>);

impl Default for Constants {
    fn default() -> Self {
        Self(TABLE.to_vec())
    }
}

impl Constants {
    /// Returns a value.
    pub(crate) fn get(&self, name: Name) -> f64 {
        self.0[name as usize].value
    }

    /// Returns the constants with another value of one.
    #[must_use]
    pub(crate) fn with(&self, name: Name, value: f64) -> Self {
        let mut all = self.clone();
        all.0[name as usize].value = value;
        all
    }

    /// Sets a constant by `NAME=VALUE`.
    pub(crate) fn set(&mut self, text: &str) -> Result<()> {
        let known = || {
            let names: Vec<_> = self.0.iter().map(|it| it.name).collect();
            names.join(", ")
        };
        let invalid = || {
            let message = format!(
                "`{text}` sets no constant: write NAME=VALUE with a finite value above 0, and one \
                 of these names: {}",
                known()
            );
            Error::Invalid(message)
        };
        let (name, value) = text.split_once('=').ok_or_else(invalid)?;
        let value = value.parse().ok().filter(|it: &f64| it.is_finite() && *it > 0.0);
        let value = value.ok_or_else(invalid)?;
        let at = self.0.iter().position(|it| it.name == name).ok_or_else(invalid)?;
        self.0[at] = Constant { value, origin: Origin::Set, ..self.0[at] };
        Ok(())
    }

    /// All constants, in the order of the table.
    pub(crate) fn all(&self) -> &[Constant] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::{Constants, Name, Origin};

    #[test]
    fn a_constant_is_set_by_its_name_and_marked() {
        let mut constants = Constants::default();
        constants.set("fill=0.5").unwrap();
        assert_eq!(constants.get(Name::Fill).to_bits(), 0.5f64.to_bits());
        assert_eq!(constants.all()[Name::Fill as usize].origin, Origin::Set);
        assert!(constants.all().iter().filter(|it| it.origin == Origin::Set).count() == 1);
        for wrong in ["fill", "fill=x", "fill=0", "fill=-1", "fill=inf", "full=1"] {
            let refusal = constants.set(wrong).unwrap_err().to_string();
            assert!(refusal.contains("device_bytes"), "{refusal}");
        }
    }

    /// Text of the code that holds a constant of the model.
    struct Definition {
        file: &'static str,
        text: &'static str,
        name: Name,
        value: f64,
    }

    macro_rules! definitions {
        ($($file:literal $text:literal $name:ident $value:literal;)*) => {
            [$(Definition { file: $file, text: $text, name: Name::$name, value: $value }),*]
        };
    }

    #[test]
    fn constants_of_the_code_are_those_of_the_code() {
        let definitions = definitions! {
            "pages/paged_worker.rs" "const PAGE: usize = 500;" Page 500.0;
            "pages.rs" "const DEVICES_AT_ONCE: usize = 12;" Walkers 12.0;
            "differences.rs" "const PEERS_AT_ONCE: usize = 4;" PeersAtOnce 4.0;
            "../../protocol/src/extent_sums.rs" "const BINS_MAX: usize = 65_536;" Bins 65_536.0;
            "runner.rs" "idle_pause: Duration::from_secs(30)," IdlePause 30.0;
            "reconstruct/silence.rs" "const GIVES_ALONE_MS: u64 = 60 * 60 * 1000;" GivesAloneHours 1.0;
            "runner.rs" "busy_pause: Duration::from_millis(20)," BusyPause 0.02;
            "runner.rs" "rest_beside_clients: 2," RestTimes 2.0;
            "runner.rs" "yield_max: Duration::from_secs(2)," RestMax 2.0;
            "replicate/extents.rs" "const COPY_AT_ONCE: usize = 4;" CopyAtOnce 4.0;
            "replicate/extents.rs" "const STEP_COPIES: usize = 64;" CopyStep 64.0;
            "replicate/extents.rs" "const STEP_BYTES: u64 = 32 * 1024 * 1024;" CopyStepBytes 33_554_432.0;
            "reconstruct.rs" "const AT_ONCE: usize = 2;" RebuildAtOnce 2.0;
            "reconstruct.rs" "const STEP_EXTENTS: usize = 32;" RebuildStep 32.0;
            "reconstruct.rs" "const STEP_BYTES: u64 = 64 * 1024 * 1024;" RebuildStepBytes 67_108_864.0;
            "reconstruct/silence.rs" "const PATIENCE_MS: u64 = 15 * 60 * 1000;" SilenceSeconds 900.0;
            "collect/queries.rs" "const PAGE: usize = 512;" CollectPage 512.0;
            "sync.rs" "const SESSIONS_MAX: usize = 8;" SyncSessions 8.0;
            "audit.rs" "const PASS: Duration = Duration::from_hours(25 * 24);" AuditDays 25.0;
        };
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../replicator/src");
        let constants = Constants::default();
        for Definition { file, text, name, value } in definitions {
            let code = std::fs::read_to_string(root.join(file)).unwrap();
            assert!(code.contains(text), "{file} has no `{text}`: change {name:?} with it");
            assert_eq!(constants.get(name).to_bits(), value.to_bits(), "{name:?}");
        }
    }
}
