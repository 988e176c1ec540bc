//! Settings of a process: flags override the environment, the environment a file, the file
//! defaults.
//!
//! Each role has a struct of its own settings; [`CommonSettings`] holds the settings of all roles.
//! An unknown name is refused with a list of the known names.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use figment::Figment;
use figment::providers::{Format, Serialized, Toml};
use figment::value::{Dict, Value};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};

use super::listen::{ConnectionLimits, HEAD_BYTES_MAX, Limits};
use crate::failure::Failure;
use crate::units::parse_span;

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
}

impl Default for CommonSettings {
    fn default() -> Self {
        Self {
            header_timeout: Duration::from_mins(1),
            body_idle_timeout: Duration::from_mins(1),
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
        }
    }
}

impl CommonSettings {
    /// Names of the settings of every role.
    pub const NAMES: [&str; 12] = [
        "header_timeout",
        "body_idle_timeout",
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
        Ok(())
    }
}

impl CommonSettings {
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

/// Merged settings of all sources.
#[derive(Clone)]
pub struct MergedSettings(Figment);

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
        let file = path.map(|path| read(&path)).transpose()?;
        Self::gather(names, args, environment, file.as_deref())
    }

    /// Merges settings from the given sources. Unknown names in the file are usage errors.
    pub fn gather(
        names: &[&str],
        args: &impl Serialize,
        environment: impl Fn(&str) -> Option<String>,
        file: Option<&str>,
    ) -> Result<Self, Failure> {
        let names: Vec<&str> = names.iter().copied().chain(CommonSettings::NAMES).collect();
        let file = Figment::from(Toml::string(file.unwrap_or_default()));
        let in_file: Dict = file.extract().map_err(sentence)?;
        if let Some(unknown) = in_file.keys().find(|name| !names.contains(&name.as_str())) {
            return Err(Failure::usage(format!(
                "there is no setting \"{unknown}\"; there are: {}",
                names.join(", ")
            )));
        }
        let figment = file
            .merge(Serialized::defaults(from_environment(&names, environment)))
            .merge(Serialized::defaults(args));
        Ok(Self(figment))
    }

    /// Replaces the value of one setting.
    #[must_use]
    pub fn with(self, name: &str, value: impl Serialize) -> Self {
        Self(self.0.merge((name, value)))
    }

    /// Extracts one struct of settings.
    pub fn extract<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        self.0.extract().map_err(sentence)
    }
}

fn read(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path).map_err(|error| {
        Failure::usage(format!("the settings in {} can't be read: {error}", path.display()))
    })
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

/// Turns a parse error into a usage error that names the setting.
#[expect(clippy::needless_pass_by_value, reason = "map_err passes the error by value")]
fn sentence(error: figment::Error) -> Failure {
    let at = error.path.join(".");
    Failure::usage(if at.is_empty() {
        format!("the settings can't be parsed: {}", error.kind)
    } else {
        format!("the setting \"{at}\" is not valid: {}", error.kind)
    })
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
        assert_eq!(fields.map(|(name, _)| name).collect::<Vec<_>>(), CommonSettings::NAMES);
    }

    #[test]
    fn an_unknown_name_is_told_with_those_that_there_are() {
        let gathered =
            MergedSettings::gather(&["mine"], &CommonArgs::default(), |_| None, Some("yours = 1"));
        let refusal = gathered.err().map(|failure| failure.to_string()).unwrap_or_default();
        assert!(refusal.starts_with("there is no setting \"yours\"; there are: mine, header_"));
    }

    #[test]
    fn the_common_settings_are_read_beside_others() {
        let environment = |name: &str| match name {
            "MARTLET_MAX_CONNECTIONS" => Some("7".to_owned()),
            _ => None,
        };
        let file = "mine = 3\nheader_timeout = '1500ms'\nlog = 'warn'";
        let merged =
            MergedSettings::gather(&["mine"], &CommonArgs::default(), environment, Some(file))
                .unwrap();
        let common: CommonSettings = merged.extract().unwrap();
        assert_eq!((common.max_connections, common.log.as_str()), (7, "warn"));
        assert_eq!(common.header_timeout, Duration::from_millis(1500));
        assert!(CommonSettings { max_connections: 0, ..common.clone() }.check().is_err());
        assert!(CommonSettings { max_threads: 0, ..common.clone() }.check().is_err());
        let half = CommonSettings { admin_tls_key: Some("/k".into()), ..common };
        assert!(half.check().unwrap_err().to_string().contains("admin_tls_certificate"));
    }
}
