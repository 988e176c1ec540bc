//! Settings of a process: flags override the environment, the environment a file, the file
//! defaults.
//!
//! Each role has a struct of its own settings; [`CommonSettings`] holds the settings of all roles.
//! An unknown name in the file is refused with its line and the nearest known name.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use figment::Figment;
use figment::error::Kind;
use figment::providers::{Format, Serialized, Toml};
use figment::value::{Dict, Value};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};

use super::listen::{ConnectionLimits, HEAD_BYTES_MAX, Limits};
use crate::disclosure::{PLAIN, SECRET, ShownSettings, shown};
use crate::failure::Failure;
use crate::settings_file::SettingsFile;
use crate::traces::settings::{TraceArgs, TraceSettings};
use crate::units::{Size, parse_span};

/// Folder of the audit log in a data folder.
const AUDIT_FOLDER: &str = "audit";

/// Flags of every role.
#[derive(Args, Clone, Debug, Default, Serialize)]
pub struct CommonArgs {
    /// TOML file with settings
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    pub config: Option<PathBuf>,
    /// Format of logs on standard error [default: text]
    #[arg(long, value_enum, value_name = "FORMAT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    log_format: Option<LogFormat>,
    /// Log level (error, warn, info, debug) or filter, such as info,martlet=debug
    #[arg(long, value_name = "FILTER")]
    #[serde(skip_serializing_if = "Option::is_none")]
    log: Option<String>,
    #[command(flatten)]
    #[serde(flatten)]
    admin: AdminPortArgs,
    #[command(flatten)]
    #[serde(flatten)]
    connections: ConnectionArgs,
    #[command(flatten)]
    #[serde(flatten)]
    traces: TraceArgs,
}

/// Flags for the admin address of every role.
#[derive(Args, Clone, Debug, Default, Serialize)]
struct AdminPortArgs {
    /// PEM file with the certificate chain of the admin address, for HTTPS
    #[arg(long, value_name = "FILE", requires = "admin_tls_key")]
    #[serde(skip_serializing_if = "Option::is_none")]
    admin_tls_certificate: Option<PathBuf>,
    /// PEM file with the private key of the admin address
    #[arg(long, value_name = "FILE", requires = "admin_tls_certificate")]
    #[serde(skip_serializing_if = "Option::is_none")]
    admin_tls_key: Option<PathBuf>,
    /// Serve the admin address in clear even where other machines can reach it
    #[arg(long)]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    admin_allow_clear: bool,
    /// Accept the token of the root secret or of the cluster's key at the admin address [default:
    /// true]
    #[arg(long, value_name = "BOOL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    admin_allow_token: Option<bool>,
    /// Folder of the audit log of changes by the admin API, or off [default: audit in the data
    /// folder]
    #[arg(long, value_name = "FOLDER")]
    #[serde(skip_serializing_if = "Option::is_none")]
    audit_log: Option<PathBuf>,
}

/// Flags for connections and threads of every role.
#[derive(Args, Clone, Debug, Default, Serialize)]
#[command(next_help_heading = "Connections and threads")]
struct ConnectionArgs {
    /// Timeout for the head of a request, and between requests [default: 1m]
    #[arg(long, value_name = "SPAN", hide_short_help = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    header_timeout: Option<String>,
    /// Timeout for the next byte of a body, in either direction [default: 1m]
    #[arg(long, value_name = "SPAN", hide_short_help = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    body_idle_timeout: Option<String>,
    /// Minimum bytes per second of a body; 0 for none [default: 1KiB]
    #[arg(long, value_name = "SIZE", hide_short_help = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    min_body_rate: Option<String>,
    /// Time for requests under way when the process stops [default: 30s]
    #[arg(long, value_name = "SPAN", hide_short_help = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    drain_timeout: Option<String>,
    /// Maximum number of connections [default: 4096]
    #[arg(long, value_name = "NUMBER", hide_short_help = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    max_connections: Option<usize>,
    /// Maximum number of connections without a signed request [default: a quarter of all]
    #[arg(long, value_name = "NUMBER", hide_short_help = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    max_unauthenticated: Option<usize>,
    /// Maximum number of these connections from one address [default: half of them]
    #[arg(long, value_name = "NUMBER", hide_short_help = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    max_unauthenticated_per_address: Option<usize>,
    /// Threads for work that doesn't wait for a disk [default: one for each processor]
    #[arg(long, value_name = "NUMBER", hide_short_help = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    max_threads: Option<usize>,
}

/// Settings of every role.
#[derive(Clone, Debug, Deserialize)]
#[serde(default)]
pub struct CommonSettings {
    /// Timeout for the head of a request, and for the idle time between requests.
    #[serde(deserialize_with = "span")]
    pub header_timeout: Duration,
    /// Timeout for the next byte of a body, in either direction.
    #[serde(deserialize_with = "span")]
    pub body_idle_timeout: Duration,
    /// Minimum bytes per second of a request's body, and of a reply of a data port, while the process
    /// waits for the client. 0 means no minimum.
    pub min_body_rate: Size,
    /// Drain time for requests under way when the process stops.
    #[serde(deserialize_with = "span")]
    pub drain_timeout: Duration,
    /// Maximum number of connections. Beyond it the oldest idle connection is closed, keyless ones
    /// first. If all are busy, a new connection is answered 503, or closed if it uses TLS.
    pub max_connections: usize,
    /// Maximum number of connections without a signed request. Default: a quarter of all.
    pub max_unauthenticated: Option<usize>,
    /// Maximum number of connections from one address without a signed request. Default: half of
    /// `max_unauthenticated`.
    pub max_unauthenticated_per_address: Option<usize>,
    /// Number of runtime threads. Disk work has other threads.
    pub max_threads: usize,
    /// Format of log lines.
    pub log_format: LogFormat,
    /// Filter of log lines.
    pub log: String,
    /// PEM file with the TLS certificate of the admin address. Without one the address is served in
    /// clear.
    pub admin_tls_certificate: Option<PathBuf>,
    /// PEM file with the certificate's private key.
    pub admin_tls_key: Option<PathBuf>,
    /// True if an admin address in clear may be one that other machines reach.
    #[serde(deserialize_with = "flag")]
    pub admin_allow_clear: bool,
    /// False if the tokens of the root secret and of the cluster's key are refused.
    #[serde(deserialize_with = "flag")]
    pub admin_allow_token: bool,
    /// Folder of the audit log; `off` for none. Default: `audit` in the data folder.
    pub audit_log: Option<PathBuf>,
    /// Settings of traces.
    #[serde(skip)]
    pub traces: TraceSettings,
    /// All settings of the process that are set, in the form in which they may be shown.
    #[serde(skip)]
    pub shown: ShownSettings,
    /// Sources of these settings: `flag`, `environment`, or the line of a file.
    #[serde(skip)]
    pub sources: SettingSources,
}

impl Default for CommonSettings {
    fn default() -> Self {
        Self {
            header_timeout: Duration::from_mins(1),
            body_idle_timeout: Duration::from_mins(1),
            min_body_rate: Size(1 << 10),
            drain_timeout: Duration::from_secs(30),
            max_connections: 4096,
            max_unauthenticated: None,
            max_unauthenticated_per_address: None,
            max_threads: cores(),
            log_format: LogFormat::Text,
            // s3s logs every client mistake as an error, together with the body.
            log: "info,s3s=off".to_owned(),
            admin_tls_certificate: None,
            admin_tls_key: None,
            admin_allow_clear: false,
            admin_allow_token: true,
            audit_log: None,
            traces: TraceSettings::default(),
            shown: ShownSettings::new(),
            sources: SettingSources::new(),
        }
    }
}

impl CommonSettings {
    /// Names of the settings of every role.
    pub const NAMES: [&str; 23] = [
        "header_timeout",
        "body_idle_timeout",
        "min_body_rate",
        "drain_timeout",
        "max_connections",
        "max_unauthenticated",
        "max_unauthenticated_per_address",
        "max_threads",
        "log_format",
        "log",
        "admin_tls_certificate",
        "admin_tls_key",
        "admin_allow_clear",
        "admin_allow_token",
        "audit_log",
        "otlp_endpoint",
        "otlp_headers_file",
        "otlp_ca_file",
        "trace_sample",
        "max_client_traces",
        "trace_keys",
        "trace_service",
        "trace_attributes",
    ];

    /// Refuses invalid values.
    pub fn check(&self) -> Result<(), Failure> {
        if self.max_connections == 0 {
            return Err(Failure::usage("max_connections must be at least 1"));
        }
        if [self.max_unauthenticated, self.max_unauthenticated_per_address].contains(&Some(0)) {
            return Err(Failure::usage(
                "max_unauthenticated and max_unauthenticated_per_address must be at least 1, since \
                 every connection starts unauthenticated",
            ));
        }
        if self.max_threads == 0 {
            return Err(Failure::usage("max_threads must be at least 1"));
        }
        if self.admin_tls_certificate.is_some() != self.admin_tls_key.is_some() {
            return Err(Failure::usage(
                "TLS at the admin address needs both admin_tls_certificate and admin_tls_key",
            ));
        }
        self.traces.check()
    }
}

impl CommonSettings {
    /// Returns the folder of the audit log of a process whose data folder is `data_dir`, unless the
    /// log is off.
    pub fn audit_folder(&self, data_dir: &Path) -> Option<PathBuf> {
        match &self.audit_log {
            None => Some(data_dir.join(AUDIT_FOLDER)),
            Some(folder) if folder.as_os_str() == "off" => None,
            Some(folder) => Some(folder.clone()),
        }
    }

    /// Returns the bounds on connections of S3 clients.
    pub fn places(&self) -> ConnectionLimits {
        let all = self.max_connections;
        let keyless = self.max_unauthenticated.unwrap_or(all / 4).clamp(1, all);
        let keyless_per_address =
            self.max_unauthenticated_per_address.unwrap_or(keyless / 2).clamp(1, keyless);
        ConnectionLimits { all, keyless, keyless_per_address }
    }

    /// Returns the limits on connections of S3 clients.
    pub fn limits(&self) -> Limits {
        Limits {
            places: self.places(),
            header_timeout: self.header_timeout,
            write_idle: self.body_idle_timeout,
            head_bytes: HEAD_BYTES_MAX,
        }
    }
}

/// Returns the number of processors that this process may use.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Format of logs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Human-readable lines.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Secret text that `Debug` does not print.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct SecretText(pub String);

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretText(…)")
    }
}

/// Sources of settings by their names.
pub type SettingSources = BTreeMap<String, String>;

/// Merged settings of all sources.
#[derive(Clone)]
pub struct MergedSettings {
    values: Figment,
    file: SettingsFile,
    sources: SettingSources,
}

impl MergedSettings {
    /// Gathers the settings of a process at its start. `names` lists the role's settings besides
    /// the common ones.
    pub fn at_start(
        names: &[&str],
        args: &impl Serialize,
        config: Option<&Path>,
    ) -> Result<Self, Failure> {
        let environment = |name: &str| std::env::var(name).ok();
        let path =
            config.map(Path::to_owned).or_else(|| environment("MARTLET_CONFIG").map(Into::into));
        let file = path.as_deref().map(SettingsFile::read).transpose()?;
        Self::merge(names, args, environment, file.unwrap_or_default())
    }

    /// Merges settings from the given sources. Unknown names in the file are usage errors.
    pub fn gather(
        names: &[&str],
        args: &impl Serialize,
        environment: impl Fn(&str) -> Option<String>,
        file: Option<&str>,
    ) -> Result<Self, Failure> {
        Self::merge(names, args, environment, SettingsFile::of_text(file.unwrap_or_default()))
    }

    fn merge(
        names: &[&str],
        args: &impl Serialize,
        environment: impl Fn(&str) -> Option<String>,
        file: SettingsFile,
    ) -> Result<Self, Failure> {
        let names: Vec<&str> = names.iter().copied().chain(CommonSettings::NAMES).collect();
        file.check_names(&names)?;
        let from_environment = from_environment(&names, environment);
        let mut sources = file.sources();
        let variables = from_environment.keys().cloned();
        sources.extend(variables.map(|name| (name, "environment".to_owned())));
        if let Ok(Value::Dict(_, flags)) = Value::serialize(args) {
            let given = flags.into_iter().filter(|(_, value)| !matches!(value, Value::Empty(..)));
            sources.extend(given.map(|(name, _)| (name, "flag".to_owned())));
        }
        let values = Figment::from(Toml::string(file.text()))
            .merge(Serialized::defaults(from_environment))
            .merge(Serialized::defaults(args));
        Ok(Self { values, file, sources })
    }

    /// Replaces the value of one setting.
    #[must_use]
    pub fn with(self, name: &str, value: impl Serialize) -> Self {
        Self { values: self.values.merge((name, value)), ..self }
    }

    /// Extracts one struct of settings.
    pub fn extract<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        self.values.extract().map_err(|error| self.sentence(&error))
    }

    /// Extracts the settings of every role, with the shown form of all settings.
    pub fn common(&self) -> Result<CommonSettings, Failure> {
        let shown = shown(self.extract()?);
        let sources = self.sources.iter().filter(|(name, _)| shown.contains_key(*name));
        let sources = sources.map(|(name, source)| (name.clone(), source.clone())).collect();
        Ok(CommonSettings { shown, sources, traces: self.extract()?, ..self.extract()? })
    }

    /// Turns a parse error into a usage error that names the setting and, if the value is from the
    /// file, its line.
    fn sentence(&self, error: &figment::Error) -> Failure {
        let at = error.path.join(".");
        let source = error.metadata.as_ref().map_or("", |metadata| &*metadata.name);
        let place = match error.path.first() {
            Some(name) if source.contains("TOML") => self.file.place_of(name),
            _ => String::new(),
        };
        Failure::usage(if at.is_empty() {
            format!("the settings can't be parsed: {}", error.kind)
        } else {
            let why = cause(error.path.first().map_or("", String::as_str), &error.kind);
            format!("the setting \"{at}\"{place} is not valid: {why}")
        })
    }
}

/// Returns the cause of a parse error. Values of settings that are not plain stay out of it.
fn cause(name: &str, kind: &Kind) -> String {
    match kind {
        _ if PLAIN.contains(&name) => kind.to_string(),
        Kind::InvalidType(_, expected) | Kind::InvalidValue(_, expected) => {
            format!("its value must be {expected}")
        }
        Kind::Message(_) if SECRET.contains(&name) => "its value can't be used".to_owned(),
        _ => kind.to_string(),
    }
}

/// Reads settings from environment variables. Only values of `max_…` and `…_seconds` become
/// numbers.
fn from_environment(names: &[&str], environment: impl Fn(&str) -> Option<String>) -> Dict {
    let mut dict = Dict::new();
    for name in names {
        let Some(text) = environment(&format!("MARTLET_{}", name.to_uppercase())) else {
            continue;
        };
        let value = match text.parse::<u64>() {
            Ok(number) if name.starts_with("max_") || name.ends_with("_seconds") => {
                Value::from(number)
            }
            _ => Value::from(text),
        };
        dict.insert((*name).to_owned(), value);
    }
    dict
}

/// Deserializes a list, or one text of items separated by commas.
pub fn list<'de, D: Deserializer<'de>, T: From<String> + Deserialize<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum ListForm {
        One(String),
        Many(Vec<String>),
    }
    let items = match ListForm::deserialize(deserializer)? {
        ListForm::One(text) => text.split(',').map(|item| item.trim().to_owned()).collect(),
        ListForm::Many(items) => items,
    };
    Ok(items.into_iter().filter(|item| !item.is_empty()).map(T::from).collect())
}

/// Deserializes a span of time.
pub fn span<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse_span(&text).map_err(serde::de::Error::custom)
}

/// Deserializes a boolean, also from text, as the environment has it.
pub fn flag<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum FlagForm {
        Flag(bool),
        Text(String),
    }
    match FlagForm::deserialize(deserializer)? {
        FlagForm::Flag(flag) => Ok(flag),
        FlagForm::Text(text) => {
            text.parse().map_err(|_| serde::de::Error::custom("write true or false"))
        }
    }
}

/// Reads a number from an environment variable that only tests set.
pub fn number_from(variable: &str) -> Result<Option<u64>, Failure> {
    let Ok(text) = std::env::var(variable) else {
        return Ok(None);
    };
    let number = text.parse().map_err(|_| {
        Failure::usage(format!("{variable} must be a whole number, not \"{text}\""))
    })?;
    Ok(Some(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_common_setting_has_a_name() {
        let printed = format!("{:#?}", CommonSettings::default());
        let fields = printed.lines().filter_map(|line| line.trim().split_once(':'));
        let structs = ["traces", "shown", "sources"];
        let fields = fields.map(|(name, _)| name).filter(|name| !structs.contains(name));
        assert_eq!(fields.collect::<Vec<_>>(), CommonSettings::NAMES);
        assert!(CommonSettings::NAMES.ends_with(&TraceSettings::NAMES));
    }

    #[test]
    fn an_invalid_value_is_refused_with_its_line_if_it_is_from_the_file() {
        let refusal = |args: &CommonArgs, text: &str| {
            let merged = MergedSettings::gather(&["mine"], args, |_| None, Some(text)).unwrap();
            merged.extract::<CommonSettings>().unwrap_err().to_string()
        };
        let file = "mine = 1\n\nmax_threads = 'many'";
        let refused = refusal(&CommonArgs::default(), file);
        assert!(refused.starts_with("the setting \"max_threads\" in line 3 is not"), "{refused}");
        let connections =
            ConnectionArgs { drain_timeout: Some("soon".into()), ..ConnectionArgs::default() };
        let args = CommonArgs { connections, ..CommonArgs::default() };
        let refused = refusal(&args, "drain_timeout = '1s'");
        assert!(refused.starts_with("the setting \"drain_timeout\" is not valid"), "{refused}");
    }

    #[test]
    fn an_invalid_secret_is_not_repeated() {
        #[derive(Debug, Deserialize)]
        struct Secrets {
            #[expect(dead_code, reason = "its type is tested")]
            root_secret_key: Option<SecretText>,
        }
        let (args, text) = (CommonArgs::default(), "root_secret_key = 424242424242");
        let merged = MergedSettings::gather(&["root_secret_key"], &args, |_| None, Some(text));
        let refusal = merged.unwrap().extract::<Secrets>().unwrap_err().to_string();
        assert!(refusal.contains("root_secret_key") && refusal.contains("must be"), "{refusal}");
        assert!(!refusal.contains("4242"), "{refusal}");
    }

    #[test]
    fn the_common_settings_are_read_beside_others() {
        let environment = |name: &str| match name {
            "MARTLET_MAX_CONNECTIONS" => Some("7".to_owned()),
            _ => None,
        };
        let file = "mine = 3\nheader_timeout = '1500ms'\nlog = 'warn'\nmax_connections = 9";
        let args = CommonArgs { log: Some("warn".to_owned()), ..CommonArgs::default() };
        let merged = MergedSettings::gather(&["mine"], &args, environment, Some(file)).unwrap();
        let common = merged.common().unwrap();
        assert_eq!((common.max_connections, common.log.as_str()), (7, "warn"));
        assert_eq!(common.shown["max_connections"], "7");
        assert_eq!(common.shown["mine"], "(not shown)");
        let sources = [
            ("header_timeout", "line 2"),
            ("log", "flag"),
            ("max_connections", "environment"),
            ("mine", "line 1"),
        ];
        assert_eq!(common.sources, sources.map(|(name, of)| (name.into(), of.into())).into());
        assert_eq!(common.header_timeout, Duration::from_millis(1500));
        assert!(CommonSettings { max_connections: 0, ..common.clone() }.check().is_err());
        assert!(CommonSettings { max_threads: 0, ..common.clone() }.check().is_err());
        let half = CommonSettings { admin_tls_key: Some("/k".into()), ..common };
        assert!(half.check().unwrap_err().to_string().contains("admin_tls_certificate"));
    }
}
