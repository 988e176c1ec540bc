//! What the server is told: flags, over environment, over a file, over defaults.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use figment::Figment;
use figment::error::Kind;
use figment::providers::{Format, Serialized, Toml};
use figment::value::{Dict, Value};
use serde::{Deserialize, Deserializer, Serialize};

use crate::failure::Failure;
use crate::units::{Size, parse_span};

const AFTER_HELP: &str = "\
Every setting can also come from the environment (MARTLET_DATA_DIR, MARTLET_S3_ADDRESS, …) or from a \
TOML file (data_dir = \"…\", s3_address = \"…\"); flags win over the environment, the environment over \
the file. Credentials come from MARTLET_ROOT_ACCESS_KEY and MARTLET_ROOT_SECRET_KEY; without them the \
first start makes some, keeps them in the data folder and prints them once.

Examples:
  martlet server
  martlet server --data-dir /srv/martlet --device /mnt/disk1 --device /mnt/disk2
  martlet server --s3-address 0.0.0.0:9000      reachable from other machines";

/// Flags of `martlet server`.
#[derive(Args, Clone, Debug, Default, Serialize)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct ServerArgs {
    /// Folder for what the server must remember: credentials and devices [default: ./martlet-data]
    #[arg(long, value_name = "DIR")]
    #[serde(skip_serializing_if = "Option::is_none")]
    data_dir: Option<PathBuf>,
    /// Folder on a disk that objects are spread over; repeat it for each disk [default: one within
    /// the data folder]
    #[arg(long = "device", value_name = "DIR")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    devices: Vec<PathBuf>,
    /// Where S3 clients connect [default: 127.0.0.1:9000]
    #[arg(long, value_name = "HOST:PORT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    s3_address: Option<SocketAddr>,
    /// Where /healthz, /readyz and /metrics answer [default: 127.0.0.1:9001]
    #[arg(long, value_name = "HOST:PORT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    admin_address: Option<SocketAddr>,
    /// Host name under which bucket.NAME means a bucket; repeat it for several [default: localhost]
    #[arg(long = "domain", value_name = "NAME")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    domains: Vec<String>,
    /// TOML file with settings
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    config: Option<PathBuf>,
    /// How logs look on standard error
    #[arg(long, value_enum, value_name = "FORMAT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    log_format: Option<LogFormat>,
    /// What is logged: error, warn, info, debug, or a filter such as info,martlet=debug
    #[arg(long, value_name = "FILTER")]
    #[serde(skip_serializing_if = "Option::is_none")]
    log: Option<String>,
}

/// How logs look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// For machines: one object a line.
    Json,
}

/// A text that is never printed.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub(crate) struct Hidden(pub(crate) String);

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hidden(…)")
    }
}

/// What the server is told.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Settings {
    /// Folder for credentials and the list of devices.
    pub(crate) data_dir: PathBuf,
    /// Folders that objects are spread over; none means one within the data folder.
    #[serde(deserialize_with = "list")]
    pub(crate) devices: Vec<PathBuf>,
    /// Where S3 clients connect.
    pub(crate) s3_address: SocketAddr,
    /// Where operators ask.
    pub(crate) admin_address: SocketAddr,
    /// Host names under which `bucket.name` names a bucket.
    #[serde(deserialize_with = "list")]
    pub(crate) domains: Vec<String>,
    /// Access key, if it isn't to be made up.
    pub(crate) root_access_key: Option<String>,
    /// Its secret.
    pub(crate) root_secret_key: Option<Hidden>,
    /// How long a client may take to send the head of a request, and stay silent between requests.
    #[serde(deserialize_with = "span")]
    pub(crate) header_timeout: Duration,
    /// How long a client may neither send nor take a byte of a body.
    #[serde(deserialize_with = "span")]
    pub(crate) body_idle_timeout: Duration,
    /// How long requests under way may take when the server is told to stop.
    #[serde(deserialize_with = "span")]
    pub(crate) drain_timeout: Duration,
    /// How long readers of an overwritten object may still finish.
    #[serde(deserialize_with = "span")]
    pub(crate) reclaim_grace: Duration,
    /// Bytes of each device that are kept for deletes and the index; none means what the storage
    /// node takes for right.
    pub(crate) reserve: Option<Size>,
    /// Connections at a time; more are answered 503 and closed.
    pub(crate) max_connections: usize,
    /// Requests at a time, replies that are being sent included; more are answered 503.
    pub(crate) max_requests: usize,
    /// How logs look.
    pub(crate) log_format: LogFormat,
    /// What is logged.
    pub(crate) log: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            data_dir: PathBuf::from("martlet-data"),
            devices: Vec::new(),
            s3_address: SocketAddr::from(([127, 0, 0, 1], 9000)),
            admin_address: SocketAddr::from(([127, 0, 0, 1], 9001)),
            domains: vec!["localhost".to_owned()],
            root_access_key: None,
            root_secret_key: None,
            header_timeout: Duration::from_mins(1),
            body_idle_timeout: Duration::from_mins(1),
            drain_timeout: Duration::from_secs(30),
            reclaim_grace: Duration::from_mins(5),
            reserve: None,
            max_connections: 4096,
            max_requests: 1024,
            log_format: LogFormat::Text,
            // s3s calls every mistake of a client an error, and prints the body beside it.
            log: "info,s3s=off".to_owned(),
        }
    }
}

/// The names of all settings, as the file and, in capitals after `MARTLET_`, the environment have
/// them.
const NAMES: [&str; 16] = [
    "data_dir",
    "devices",
    "s3_address",
    "admin_address",
    "domains",
    "root_access_key",
    "root_secret_key",
    "header_timeout",
    "body_idle_timeout",
    "drain_timeout",
    "reclaim_grace",
    "reserve",
    "max_connections",
    "max_requests",
    "log_format",
    "log",
];

impl Settings {
    /// The settings of a start with these flags.
    pub(crate) fn load(args: &ServerArgs) -> Result<Self, Failure> {
        let environment = |name: &str| std::env::var(name).ok();
        let file =
            match args.config.clone().or_else(|| environment("MARTLET_CONFIG").map(Into::into)) {
                Some(path) => Some(read_config(&path)?),
                None => None,
            };
        Self::merge(args, environment, file.as_deref())
    }

    fn merge(
        args: &ServerArgs,
        environment: impl Fn(&str) -> Option<String>,
        file: Option<&str>,
    ) -> Result<Self, Failure> {
        let figment = Figment::new()
            .merge(Toml::string(file.unwrap_or_default()))
            .merge(Serialized::defaults(from_environment(environment)))
            .merge(Serialized::defaults(args));
        let settings: Self = figment.extract().map_err(|error| Failure::usage(sentence(error)))?;
        settings.check()?;
        Ok(settings)
    }

    fn check(&self) -> Result<(), Failure> {
        if self.root_access_key.is_some() != self.root_secret_key.is_some() {
            return Err(Failure::usage(
                "set both MARTLET_ROOT_ACCESS_KEY and MARTLET_ROOT_SECRET_KEY, or neither: one \
                 without the other lets nobody in",
            ));
        }
        if self
            .root_access_key
            .as_ref()
            .is_some_and(|key| key.len() < 3 || key.contains(['/', ',']))
        {
            return Err(Failure::usage(
                "the access key needs at least 3 characters, and neither '/' nor ','",
            ));
        }
        if self.root_secret_key.as_ref().is_some_and(|secret| secret.0.len() < 8) {
            return Err(Failure::usage("the secret key needs at least 8 characters"));
        }
        if self.max_connections == 0 || self.max_requests == 0 {
            let sentence = "max_connections and max_requests start at 1: at 0 nobody could come in";
            return Err(Failure::usage(sentence));
        }
        if self.s3_address == self.admin_address && self.s3_address.port() != 0 {
            return Err(Failure::usage(format!(
                "S3 clients and operators can't share the address {}: give one of them another port",
                self.s3_address
            )));
        }
        Ok(())
    }
}

fn read_config(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path).map_err(|error| {
        Failure::usage(format!("the settings in {} can't be read: {error}", path.display()))
    })
}

/// Variables are text: only where a number is meant is text taken for one.
fn from_environment(environment: impl Fn(&str) -> Option<String>) -> Dict {
    let mut dict = Dict::new();
    for name in NAMES {
        let Some(text) = environment(&format!("MARTLET_{}", name.to_uppercase())) else {
            continue;
        };
        let value = match text.parse::<u64>() {
            Ok(number) if matches!(name, "max_connections" | "max_requests") => Value::from(number),
            _ => Value::from(text),
        };
        dict.insert(name.to_owned(), value);
    }
    dict
}

/// What is wrong with the settings, and what would be right.
fn sentence(error: figment::Error) -> String {
    let at = error.path.join(".");
    match error.kind {
        Kind::UnknownField(name, _) => {
            format!("there is no setting \"{name}\"; there are: {}", NAMES.join(", "))
        }
        kind if at.is_empty() => format!("the settings don't parse: {kind}"),
        kind => format!("the setting \"{at}\" is not valid: {kind}"),
    }
}

/// A list, or in one text its items with commas between them.
fn list<'de, D: Deserializer<'de>, T: From<String> + Deserialize<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Form {
        One(String),
        Many(Vec<String>),
    }
    let items = match Form::deserialize(deserializer)? {
        Form::One(text) => text.split(',').map(|item| item.trim().to_owned()).collect(),
        Form::Many(items) => items,
    };
    Ok(items.into_iter().filter(|item| !item.is_empty()).map(T::from).collect())
}

fn span<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse_span(&text).map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing(_: &str) -> Option<String> {
        None
    }

    fn refusal(file: &str) -> String {
        Settings::merge(&ServerArgs::default(), nothing, Some(file)).unwrap_err().to_string()
    }

    #[test]
    fn flags_win_over_the_environment_and_the_environment_over_the_file() {
        let file = "s3_address = '127.0.0.1:1'\nadmin_address = '127.0.0.1:2'\nlog = 'warn'";
        let environment = |name: &str| match name {
            "MARTLET_S3_ADDRESS" => Some("127.0.0.1:3".to_owned()),
            "MARTLET_ADMIN_ADDRESS" => Some("127.0.0.1:4".to_owned()),
            _ => None,
        };
        let args = ServerArgs { s3_address: "127.0.0.1:5".parse().ok(), ..ServerArgs::default() };
        let settings = Settings::merge(&args, environment, Some(file)).unwrap();
        assert_eq!(settings.s3_address.port(), 5);
        assert_eq!(settings.admin_address.port(), 4);
        assert_eq!(settings.log, "warn");
        assert_eq!(settings.data_dir, Path::new("martlet-data"));
    }

    #[test]
    fn lists_and_spans_are_read_in_all_their_forms() {
        let environment = |name: &str| match name {
            "MARTLET_DEVICES" => Some("/a, /b".to_owned()),
            "MARTLET_MAX_CONNECTIONS" => Some("7".to_owned()),
            "MARTLET_ROOT_ACCESS_KEY" => Some("12345".to_owned()),
            "MARTLET_ROOT_SECRET_KEY" => Some("1234567890".to_owned()),
            _ => None,
        };
        let file = "domains = ['x', 'y']\nheader_timeout = '1500ms'\nbody_idle_timeout = '2m'";
        let settings = Settings::merge(&ServerArgs::default(), environment, Some(file)).unwrap();
        assert_eq!(settings.devices, [Path::new("/a"), Path::new("/b")]);
        assert_eq!(settings.domains, ["x", "y"]);
        assert_eq!(settings.header_timeout, Duration::from_millis(1500));
        assert_eq!(settings.body_idle_timeout, Duration::from_mins(2));
        assert_eq!(settings.max_connections, 7);
        assert_eq!(settings.root_access_key.as_deref(), Some("12345"));
    }

    #[test]
    fn mistakes_are_told_with_what_would_be_right() {
        assert!(
            refusal("port = 9").starts_with("there is no setting \"port\"; there are: data_dir")
        );
        assert!(refusal("header_timeout = '5 parsecs'").contains("write 500ms, 30s, 5m or 1h"));
        assert!(refusal("s3_address = 'here'").contains("\"s3_address\""));
        assert!(refusal("reserve = '5 parsecs'").contains("write 4096, 4KiB, 64MiB or 5GB"));
        assert!(refusal("log_format = 'xml'").contains("\"log_format\""));
        assert!(refusal("root_access_key = 'abcdef'").contains("or neither"));
        assert!(refusal("max_connections = 0").contains("nobody could come in"));
        assert!(refusal("s3_address = '127.0.0.1:9001'").contains("can't share"));
    }

    #[test]
    fn every_setting_has_a_name() {
        let printed = format!("{:#?}", Settings::default());
        let fields =
            printed.lines().filter(|line| line.starts_with("    ") && !line.starts_with("     "));
        let fields: Vec<_> = fields.filter_map(|line| line.trim().split_once(':')).collect();
        assert_eq!(fields.iter().map(|(name, _)| *name).collect::<Vec<_>>(), NAMES);
    }

    #[test]
    fn secrets_are_never_printed() {
        let file = "root_access_key = 'abcdef'\nroot_secret_key = 'very secret'";
        let settings = Settings::merge(&ServerArgs::default(), nothing, Some(file)).unwrap();
        assert!(!format!("{settings:?}").contains("very"));
    }
}
