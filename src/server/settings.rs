//! Settings of the server: flags override the environment, the environment the file, the file
//! defaults.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use martlet_notifications::EventSettings;
use martlet_serving::settings::{CommonArgs, CommonSettings, MergedSettings, list, span};
use martlet_serving::{Failure, Size};
use serde::{Deserialize, Serialize};

use crate::policies::NamedCode;
use crate::process::args::{EventArgs, S3Args, UpkeepArgs};
use crate::process::console::{ConsoleArgs, ConsoleSettings};
use crate::process::data_port::{DataPortArgs, DataPortSettings};
use crate::process::direct::{DirectArgs, DirectSettings};
use crate::process::memory;
use crate::process::s3_port::S3Settings;
use crate::process::upkeep::UpkeepSettings;

const AFTER_HELP: &str = "\
Every setting can also come from the environment (MARTLET_DATA_DIR, MARTLET_S3_ADDRESS, …) or from \
a TOML file (data_dir = \"…\", s3_address = \"…\"); flags override the environment, which \
overrides the file. Credentials come from MARTLET_ROOT_ACCESS_KEY and MARTLET_ROOT_SECRET_KEY; \
without them, the first start generates credentials, stores them in the data folder and prints \
them once.

Examples:
  martlet server
  martlet server --data-dir /srv/martlet --device /mnt/disk1 --device /mnt/disk2
  martlet server --device /mnt/a --device /mnt/b --device /mnt/c --device /mnt/d --policy ec=2+1
  martlet server --s3-address 0.0.0.0:9000      reachable from other machines";

/// Flags of `martlet server`.
#[derive(Args, Clone, Debug, Default, Serialize)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct ServerArgs {
    /// Folder for credentials and the list of devices [default: ./martlet-data]
    #[arg(long, value_name = "DIR")]
    #[serde(skip_serializing_if = "Option::is_none")]
    data_dir: Option<PathBuf>,
    /// Folder of a device, one per disk; repeatable [default: one within the data folder]
    #[arg(long = "device", value_name = "DIR")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    devices: Vec<PathBuf>,
    /// Erasure-coded storage policy, such as ec=2+1: two data and one parity fragment; repeatable
    #[arg(long = "policy", value_name = "NAME=K+M")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    policies: Vec<String>,
    #[command(flatten)]
    #[serde(flatten)]
    s3: S3Args,
    #[command(flatten)]
    #[serde(flatten)]
    data_port: DataPortArgs,
    /// Address of the admin API, /healthz, /readyz and /metrics [default: 127.0.0.1:9001]
    #[arg(long, value_name = "HOST:PORT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    admin_address: Option<SocketAddr>,
    #[command(flatten)]
    #[serde(flatten)]
    console: ConsoleArgs,
    /// Time in which readers of an overwritten object may finish [default: 5m]
    #[arg(long, value_name = "SPAN", hide_short_help = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    reclaim_grace: Option<String>,
    /// Space of each device for deletes and the index [default: min(max(2 %, 2 GiB), 10 %)]
    #[arg(long, value_name = "SIZE", hide_short_help = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    reserve: Option<String>,
    /// Memory for the devices' indexes and for bodies [default: an eighth of the machine's]
    #[arg(long, value_name = "SIZE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<String>,
    #[command(flatten)]
    #[serde(flatten)]
    direct: DirectArgs,
    #[command(flatten)]
    #[serde(flatten)]
    upkeep: UpkeepArgs,
    #[command(flatten)]
    #[serde(flatten)]
    events: EventArgs,
    #[command(flatten)]
    #[serde(flatten)]
    common: CommonArgs,
}

/// Settings of the server.
#[derive(Clone, Debug, Deserialize)]
#[serde(default)]
pub(crate) struct ServerSettings {
    /// Folder of credentials and of the list of devices.
    pub(crate) data_dir: PathBuf,
    /// Folders of the devices. Default: one folder within the data folder.
    #[serde(deserialize_with = "list")]
    pub(crate) devices: Vec<PathBuf>,
    /// Erasure-coded storage policies besides the first policy, which keeps one copy.
    #[serde(deserialize_with = "list")]
    policies: Vec<String>,
    /// Admin address.
    pub(crate) admin_address: SocketAddr,
    /// Grace time for readers of an overwritten object.
    #[serde(deserialize_with = "span")]
    pub(crate) reclaim_grace: Duration,
    /// Bytes of each device that are reserved for deletes and the index. Default: the storage
    /// node's.
    pub(crate) reserve: Option<Size>,
    /// Memory for the indexes of the devices and for bodies. Default: an eighth of the machine's.
    pub(crate) memory: Option<Size>,
    /// Settings of the S3 port. Without a root key one is made.
    #[serde(skip)]
    pub(crate) s3: S3Settings,
    /// Settings of the direct socket.
    #[serde(skip)]
    pub(crate) direct: DirectSettings,
    /// Settings of the console.
    #[serde(skip)]
    pub(crate) console: ConsoleSettings,
    /// Settings of the data port.
    #[serde(skip)]
    pub(crate) data_port: DataPortSettings,
    /// Settings of events.
    #[serde(skip)]
    pub(crate) events: EventSettings,
    /// Settings of the upkeep workers.
    #[serde(skip)]
    pub(crate) upkeep: UpkeepSettings,
    /// Settings of every role.
    #[serde(skip)]
    pub(crate) common: CommonSettings,
}

impl Default for ServerSettings {
    fn default() -> Self {
        Self {
            data_dir: PathBuf::from("martlet-data"),
            devices: Vec::new(),
            policies: Vec::new(),
            admin_address: SocketAddr::from(([127, 0, 0, 1], 9001)),
            reclaim_grace: Duration::from_mins(5),
            reserve: None,
            memory: None,
            s3: S3Settings::default(),
            direct: DirectSettings::default(),
            console: ConsoleSettings::default(),
            data_port: DataPortSettings::default(),
            events: EventSettings::default(),
            upkeep: UpkeepSettings::default(),
            common: CommonSettings::default(),
        }
    }
}

/// Names of these settings in the file. The environment has them in capitals after `MARTLET_`.
const NAMES: [&str; 7] =
    ["data_dir", "devices", "policies", "admin_address", "reclaim_grace", "reserve", "memory"];

/// Returns the names of all settings of a server besides the common ones.
pub(crate) fn names() -> Vec<&'static str> {
    let parts = [
        &NAMES[..],
        &S3Settings::NAMES,
        &DirectSettings::NAMES,
        &ConsoleSettings::NAMES,
        &DataPortSettings::NAMES,
        &EventSettings::NAMES,
        &UpkeepSettings::NAMES,
    ];
    parts.concat()
}

impl ServerSettings {
    /// Loads the settings of a start with these flags, and checks them.
    pub(crate) fn load(args: &ServerArgs) -> Result<Self, Failure> {
        Self::of(&MergedSettings::at_start(&names(), args, args.common.config.as_deref())?)
    }

    /// Extracts the settings and checks them.
    pub(crate) fn of(merged: &MergedSettings) -> Result<Self, Failure> {
        let settings = Self {
            common: merged.common()?,
            s3: merged.extract()?,
            direct: merged.extract()?,
            console: merged.extract()?,
            data_port: merged.extract()?,
            events: merged.extract()?,
            upkeep: merged.extract()?,
            ..merged.extract()?
        };
        settings.common.check()?;
        memory::check(settings.memory)?;
        settings.upkeep.check()?;
        settings.events.check()?;
        settings.data_port.check()?;
        settings.s3.check(settings.admin_address)?;
        settings.console.check(&settings.s3)?;
        settings.direct.check()?;
        settings.policies()?;
        Ok(settings)
    }

    /// Parses the requested storage policies.
    pub(crate) fn policies(&self) -> Result<Vec<NamedCode>, Failure> {
        NamedCode::parse_all(&self.policies)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn nothing(_: &str) -> Option<String> {
        None
    }

    fn merge(
        args: &ServerArgs,
        environment: impl Fn(&str) -> Option<String>,
        file: Option<&str>,
    ) -> Result<ServerSettings, Failure> {
        ServerSettings::of(&MergedSettings::gather(&names(), args, environment, file)?)
    }

    fn refusal(file: &str) -> String {
        merge(&ServerArgs::default(), nothing, Some(file)).unwrap_err().to_string()
    }

    #[test]
    fn flags_win_over_the_environment_and_the_environment_over_the_file() {
        let file = "s3_address = '127.0.0.1:1'\nadmin_address = '127.0.0.1:2'\nlog = 'warn'";
        let environment = |name: &str| match name {
            "MARTLET_S3_ADDRESS" => Some("127.0.0.1:3".to_owned()),
            "MARTLET_ADMIN_ADDRESS" => Some("127.0.0.1:4".to_owned()),
            _ => None,
        };
        let mut s3 = S3Args::default();
        s3.s3_address = "127.0.0.1:5".parse().ok();
        let args = ServerArgs { s3, ..ServerArgs::default() };
        let settings = merge(&args, environment, Some(file)).unwrap();
        assert_eq!(settings.s3.s3_address.port(), 5);
        assert_eq!(settings.admin_address.port(), 4);
        assert_eq!(settings.common.log, "warn");
        assert_eq!(settings.data_dir, Path::new("martlet-data"));
    }

    #[test]
    fn lists_and_spans_are_read_in_all_their_forms() {
        let environment = |name: &str| match name {
            "MARTLET_DEVICES" => Some("/a, /b".to_owned()),
            "MARTLET_POLICIES" => Some("ec=2+1,wide=4+2".to_owned()),
            "MARTLET_DEFAULT_POLICY" => Some("ec".to_owned()),
            "MARTLET_MAX_CONNECTIONS" => Some("7".to_owned()),
            "MARTLET_ALLOW_SIGNATURE_V2" => Some("true".to_owned()),
            "MARTLET_ROOT_ACCESS_KEY" => Some("12345".to_owned()),
            "MARTLET_ROOT_SECRET_KEY" => Some("1234567890123456".to_owned()),
            _ => None,
        };
        let file = "domains = ['x', 'y']\nheader_timeout = '1500ms'\nbody_idle_timeout = '2m'";
        let settings = merge(&ServerArgs::default(), environment, Some(file)).unwrap();
        assert_eq!(settings.devices, [Path::new("/a"), Path::new("/b")]);
        assert_eq!(settings.policies().unwrap().len(), 2);
        assert!(settings.s3.allow_signature_v2 && !settings.s3.seal_secrets);
        assert_eq!(settings.s3.default_policy.as_deref(), Some("ec"));
        assert_eq!(settings.s3.domains, ["x", "y"]);
        assert_eq!(settings.common.header_timeout, Duration::from_millis(1500));
        assert_eq!(settings.common.body_idle_timeout, Duration::from_mins(2));
        assert_eq!(settings.common.max_connections, 7);
        assert_eq!(settings.s3.root_access_key.as_deref(), Some("12345"));
    }

    #[test]
    fn errors_name_the_valid_values() {
        assert!(
            refusal("port = 9")
                .starts_with("there is no setting \"port\" in line 1; there are: data_dir")
        );
        assert!(refusal("header_timeout = '5 parsecs'").contains("write 500ms, 30s, 5m, 1h or 7d"));
        assert!(refusal("s3_address = 'here'").contains("\"s3_address\""));
        assert!(refusal("reserve = '5 parsecs'").contains("write 4096, 4KiB, 64MiB or 5GB"));
        assert!(refusal("memory = '1MiB'").contains("memory must be at least 64MiB"));
        assert!(refusal("log_format = 'xml'").contains("\"log_format\""));
        assert!(refusal("root_access_key = 'abcdef'").contains("or neither"));
        assert!(refusal("policies = ['4+2']").contains("as in ec=4+2"));
        assert!(refusal("max_connections = 0").contains("max_connections must be at least 1"));
        assert!(refusal("s3_address = '127.0.0.1:9001'").contains("can't share"));
    }

    #[test]
    fn every_setting_has_a_name() {
        let printed = format!("{:#?}", ServerSettings::default());
        let fields =
            printed.lines().filter(|line| line.starts_with("    ") && !line.starts_with("     "));
        let fields: Vec<_> = fields.filter_map(|line| line.trim().split_once(':')).collect();
        let mut fields: Vec<_> = fields.iter().map(|(name, _)| *name).collect();
        let parts = fields.split_off(fields.len() - 7);
        assert_eq!(parts, ["s3", "direct", "console", "data_port", "events", "upkeep", "common"]);
        assert_eq!(fields, NAMES);
    }

    #[test]
    fn secrets_are_never_printed() {
        let file = "root_access_key = 'abcdef'\nroot_secret_key = 'very secret indeed'";
        let settings = merge(&ServerArgs::default(), nothing, Some(file)).unwrap();
        assert!(!format!("{settings:?}").contains("very"));
    }
}
