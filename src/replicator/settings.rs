//! Settings of a replicator.

use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;
use martlet_membership::{MemberArgs, MemberSettings};
use martlet_notifications::EventSettings;
use martlet_protocol::extent_token::TOKEN_LIFETIME_MS;
use martlet_serving::Failure;
use martlet_serving::settings::{CommonArgs, CommonSettings, MergedSettings, list, span};
use serde::{Deserialize, Serialize};

use crate::process::args::{EventArgs, UpkeepArgs};
use crate::process::upkeep::UpkeepSettings;

/// Default data folder.
pub(crate) const DATA_DIR: &str = "martlet-replicator";
/// Default port of the admin address.
pub(crate) const ADMIN_PORT: u16 = 6301;

const AFTER_HELP: &str = "\
Every setting can also come from the environment (MARTLET_NAME, MARTLET_NODES, …) or from a TOML \
file; flags override the environment, which overrides the file.

A file for a replicator beside the storage node n1:
  name = \"r1\"
  data_dir = \"/var/lib/martlet/r1\"
  cluster_key_file = \"/etc/martlet/cluster.key\"
  rings = [\"/etc/martlet/index.ring\", \"/etc/martlet/data-0.ring\"]
  nodes = [\"n1\"]

Examples:
  martlet replicator --config /etc/martlet/r1.toml
  martlet replicator --config /etc/martlet/r1.toml --once     run each worker to its end, and exit";

/// Flags of `martlet replicator`.
#[derive(Args, Clone, Debug, Default, Serialize)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct ReplicatorArgs {
    #[command(flatten)]
    #[serde(flatten)]
    member: MemberArgs,
    #[command(flatten)]
    #[serde(flatten)]
    workers: WorkerArgs,
    /// Run each worker to completion, print a summary and exit
    #[arg(long)]
    #[serde(skip)]
    pub(super) once: bool,
    #[command(flatten)]
    #[serde(flatten)]
    events: EventArgs,
    #[command(flatten)]
    #[serde(flatten)]
    common: CommonArgs,
}

/// Flags for the workers of a replicator.
#[derive(Args, Clone, Debug, Default, Serialize)]
pub(crate) struct WorkerArgs {
    /// Node whose devices the workers serve; repeatable [default: all]
    #[arg(long = "node", value_name = "NAME")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    nodes: Vec<String>,
    /// Time in which readers of an overwritten object may finish [default: 5m]
    #[arg(long, value_name = "SPAN", hide_short_help = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    reclaim_grace: Option<String>,
    #[command(flatten)]
    #[serde(flatten)]
    upkeep: UpkeepArgs,
}

/// Settings of a replicator.
#[derive(Clone, Debug, Deserialize)]
#[serde(default)]
pub(crate) struct ReplicatorSettings {
    /// Nodes whose devices the replicator is responsible for; empty means all.
    #[serde(deserialize_with = "list")]
    pub(crate) nodes: Vec<String>,
    /// Grace time for readers of an overwritten object.
    #[serde(deserialize_with = "span")]
    pub(super) reclaim_grace: Duration,
    #[serde(skip)]
    pub(super) upkeep: UpkeepSettings,
    /// Settings of events.
    #[serde(skip)]
    pub(super) events: EventSettings,
    #[serde(skip)]
    pub(crate) member: MemberSettings,
    #[serde(skip)]
    pub(super) common: CommonSettings,
}

impl Default for ReplicatorSettings {
    fn default() -> Self {
        Self {
            nodes: Vec::new(),
            reclaim_grace: Duration::from_mins(5),
            upkeep: UpkeepSettings::default(),
            events: EventSettings::default(),
            member: MemberSettings::default(),
            common: CommonSettings::default(),
        }
    }
}

/// Shortest grace time: tokens of reads in place last as long, and no proxy knows the grace time.
const RECLAIM_GRACE_MIN: Duration = Duration::from_millis(TOKEN_LIFETIME_MS);

const NAMES: [&str; 2] = ["nodes", "reclaim_grace"];

impl ReplicatorSettings {
    /// Returns the names of all settings of a replicator besides the common ones.
    pub(crate) fn names() -> Vec<&'static str> {
        let parts =
            [&NAMES[..], &MemberSettings::NAMES, &UpkeepSettings::NAMES, &EventSettings::NAMES];
        parts.concat()
    }

    /// Loads the settings of a start with these flags, and checks them.
    pub(super) fn load(args: &ReplicatorArgs) -> Result<Self, Failure> {
        Self::of(&MergedSettings::at_start(&Self::names(), args, args.common.config.as_deref())?)
    }

    /// Extracts the settings and checks them.
    pub(crate) fn of(merged: &MergedSettings) -> Result<Self, Failure> {
        let settings = Self {
            member: merged.extract()?,
            upkeep: merged.extract()?,
            events: merged.extract()?,
            common: merged.common()?,
            ..merged.extract()?
        };
        if settings.reclaim_grace < RECLAIM_GRACE_MIN {
            return Err(Failure::usage(
                "reclaim_grace must be at least 60s: tokens of reads in place last as long",
            ));
        }
        settings.common.check()?;
        settings.upkeep.check()?;
        settings.events.check()?;
        Ok(settings)
    }

    /// Returns the admin address.
    pub(super) fn admin_address(&self) -> SocketAddr {
        self.member.admin_address(ADMIN_PORT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(file: &str) -> Result<ReplicatorSettings, Failure> {
        let (names, args) = (ReplicatorSettings::names(), ReplicatorArgs::default());
        ReplicatorSettings::of(&MergedSettings::gather(&names, &args, |_| None, Some(file))?)
    }

    #[test]
    fn nodes_are_read_in_all_their_forms() {
        let nodes = |file: &str| settings(file).unwrap().nodes;
        assert!(nodes("name = 'r1'").is_empty());
        assert_eq!(nodes("nodes = ['n1', 'n2']"), ["n1", "n2"]);
        assert_eq!(nodes("nodes = 'n1, n2'"), ["n1", "n2"]);
        assert!(nodes("reclaim_age = '2d'\naudit_rate = '1MiB'").is_empty());
    }

    #[test]
    fn no_extent_is_reclaimed_before_its_tokens_end() {
        let grace = |span: &str| settings(&format!("reclaim_grace = '{span}'"));
        assert_eq!(grace("60s").unwrap().reclaim_grace, RECLAIM_GRACE_MIN);
        let refusal = format!("{:?}", grace("59s").unwrap_err());
        assert!(refusal.contains("reclaim_grace must be at least 60s"), "{refusal}");
    }
}
