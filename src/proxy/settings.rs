//! Settings of a proxy.

use std::sync::Arc;

use clap::Args;
use martlet_console::S3Slot;
use martlet_membership::{MemberArgs, MemberSettings};
use martlet_notifications::EventSettings;
use martlet_serving::Failure;
use martlet_serving::operator::Operator;
use martlet_serving::settings::{CommonArgs, CommonSettings, MergedSettings, SecretText};
use serde::Serialize;

use super::first::{FirstArgs, FirstSettings};
use crate::process::args::{EventArgs, S3Args};
use crate::process::console::{ConsoleArgs, ConsoleHost, ConsoleSettings, RunningConsole};
use crate::process::s3_port::S3Settings;

/// Default data folder.
pub(crate) const DATA_DIR: &str = "martlet-proxy";
/// Default port of the admin address.
pub(crate) const ADMIN_PORT: u16 = 9001;

const AFTER_HELP: &str = "\
Every setting can also come from the environment (MARTLET_NAME, MARTLET_S3_ADDRESS, …) or from a \
TOML file; flags override the environment, which overrides the file. The root credentials \
come from MARTLET_ROOT_ACCESS_KEY and MARTLET_ROOT_SECRET_KEY, without a default. They must be the \
same for all proxies of a cluster.

A file:
  name = \"p1\"
  data_dir = \"/var/lib/martlet/p1\"
  s3_address = \"10.0.0.9:9000\"
  cluster_key_file = \"/etc/martlet/cluster.key\"
  rings = [\"/etc/martlet/index.ring\", \"/etc/martlet/data-0.ring\"]

Examples:
  martlet proxy --config /etc/martlet/p1.toml
  martlet proxy --name p1 --ring index.ring --ring data-0.ring --cluster-key-file cluster.key";

/// Flags of `martlet proxy`.
#[derive(Args, Clone, Debug, Default, Serialize)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct ProxyArgs {
    #[command(flatten)]
    #[serde(flatten)]
    member: MemberArgs,
    #[command(flatten)]
    #[serde(flatten)]
    s3: S3Args,
    #[command(flatten)]
    #[serde(flatten)]
    events: EventArgs,
    #[command(flatten)]
    #[serde(flatten)]
    console: ConsoleArgs,
    #[command(flatten)]
    #[serde(flatten)]
    first: FirstArgs,
    #[command(flatten)]
    #[serde(flatten)]
    common: CommonArgs,
}

/// Settings of a proxy.
#[derive(Clone, Debug)]
pub(crate) struct ProxySettings {
    pub(crate) member: MemberSettings,
    pub(super) s3: S3Settings,
    pub(super) events: EventSettings,
    pub(crate) console: ConsoleSettings,
    pub(super) first: FirstSettings,
    pub(super) common: CommonSettings,
}

impl ProxySettings {
    /// Returns the names of all settings of a proxy besides the common ones.
    pub(crate) fn names() -> Vec<&'static str> {
        let own = [&MemberSettings::NAMES[..], &S3Settings::NAMES, &EventSettings::NAMES];
        [own.concat(), ConsoleSettings::NAMES.to_vec(), FirstSettings::NAMES.to_vec()].concat()
    }

    /// Loads the settings of a start with these flags, and checks them.
    pub(super) fn load(args: &ProxyArgs) -> Result<Self, Failure> {
        Self::of(&MergedSettings::at_start(&Self::names(), args, args.common.config.as_deref())?)
    }

    /// Extracts the settings and checks them.
    pub(crate) fn of(merged: &MergedSettings) -> Result<Self, Failure> {
        let settings = Self {
            member: merged.extract()?,
            s3: merged.extract()?,
            events: merged.extract()?,
            console: merged.extract()?,
            first: merged.extract()?,
            common: merged.common()?,
        };
        settings.common.check()?;
        settings.events.check()?;
        settings.first.check()?;
        settings.s3.check(settings.member.admin_address(ADMIN_PORT))?;
        settings.console.check(&settings.s3)?;
        settings.root()?;
        Ok(settings)
    }

    /// Serves the console, if an address is set, over the S3 service that `slot` will have.
    /// `common` has the settings of the whole process.
    pub(crate) async fn serve_console(
        &self,
        operator: &Arc<Operator>,
        slot: &S3Slot,
        common: &CommonSettings,
    ) -> Result<RunningConsole, Failure> {
        let root_key = self.root()?.0;
        let (default, s3) = (None, &self.s3);
        self.console.serve(ConsoleHost { default, operator, root_key, slot, s3, common }).await
    }

    /// Returns the root credentials. Missing ones are a usage error.
    pub(crate) fn root(&self) -> Result<(&str, &SecretText), Failure> {
        match (&self.s3.root_access_key, &self.s3.root_secret_key) {
            (Some(access_key), Some(secret)) => Ok((access_key, secret)),
            _ => Err(Failure::usage(
                "no root credentials are set: set MARTLET_ROOT_ACCESS_KEY and \
                 MARTLET_ROOT_SECRET_KEY, the same for all proxies of the cluster",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(file: &str) -> Result<ProxySettings, Failure> {
        ProxySettings::of(&MergedSettings::gather(
            &ProxySettings::names(),
            &ProxyArgs::default(),
            |_| None,
            Some(file),
        )?)
    }

    #[test]
    fn there_are_no_credentials_by_default() {
        let refusal = settings("name = 'p1'").unwrap_err().to_string();
        assert!(refusal.contains("MARTLET_ROOT_SECRET_KEY"), "{refusal}");
        let root = "root_access_key = 'root'\nroot_secret_key = '1234567890123456'";
        let given = settings(root).unwrap();
        assert_eq!(given.root().unwrap().0, "root");
        assert!(given.s3.s3_address.ip().is_loopback());
        let shared = format!("{root}\ns3_address = '127.0.0.1:9001'");
        assert!(settings(&shared).unwrap_err().to_string().contains("can't share"));
    }

    #[test]
    fn settings_of_other_roles_are_unknown() {
        let refusal = settings("internal_address = '127.0.0.1:1'").unwrap_err().to_string();
        assert!(refusal.contains("there is no setting \"internal_address\""), "{refusal}");
    }
}
