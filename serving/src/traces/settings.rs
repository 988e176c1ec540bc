//! Settings of traces.

use std::path::PathBuf;

use clap::Args;
use http::Uri;
use serde::{Deserialize, Deserializer, Serialize};

use crate::failure::Failure;
use crate::settings::{flag, list};

/// Flags for traces.
#[derive(Args, Clone, Debug, Default, Serialize)]
#[command(next_help_heading = "Traces")]
pub(crate) struct TraceArgs {
    /// URL of an OpenTelemetry collector (OTLP over HTTP), such as `<http://127.0.0.1:4318>`
    /// [default: none: no traces]
    #[arg(long, value_name = "URL", hide_short_help = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    otlp_endpoint: Option<String>,
    /// File with headers for the collector, such as its credentials: one NAME: VALUE on each line
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    otlp_headers_file: Option<PathBuf>,
    /// PEM file with the authorities of the collector's certificate [default: those of the system]
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    otlp_ca_file: Option<PathBuf>,
    /// Share of requests that are sampled, from 0 to 1 [default: 0.01]
    #[arg(long, value_name = "SHARE", hide_short_help = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_sample: Option<f64>,
    /// Maximum number of requests in a second that are sampled because their clients sample them
    /// [default: 1]
    #[arg(long, value_name = "NUMBER", hide_short_help = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    max_client_traces: Option<u32>,
    /// Put the keys of objects into spans
    #[arg(long, hide_short_help = true)]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    trace_keys: bool,
    /// Name of this service in spans [default: martlet]
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_service: Option<String>,
    /// Further attribute of this process in its spans, such as
    /// deployment.environment.name=production (repeatable)
    #[arg(long = "trace-attribute", value_name = "NAME=VALUE", hide_short_help = true)]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    trace_attributes: Vec<String>,
}

/// Settings of traces.
#[derive(Clone, Debug, Deserialize)]
#[serde(default)]
pub struct TraceSettings {
    /// URL of the collector; `/v1/traces` is appended. Without one there are no traces.
    pub otlp_endpoint: Option<String>,
    /// File with headers for the collector, one on each line. It is read for each batch.
    pub otlp_headers_file: Option<PathBuf>,
    /// PEM file with the authorities of the collector's certificate.
    pub otlp_ca_file: Option<PathBuf>,
    /// Share of requests that are sampled, from 0 to 1.
    #[serde(deserialize_with = "share")]
    pub trace_sample: f64,
    /// Maximum number of requests in a second that are sampled because their clients sample them.
    pub max_client_traces: u32,
    /// True if spans have the keys of objects.
    #[serde(deserialize_with = "flag")]
    pub trace_keys: bool,
    /// Name of the service in spans.
    pub trace_service: String,
    /// Further attributes of the process in its spans, `NAME=VALUE` each.
    #[serde(deserialize_with = "list")]
    pub trace_attributes: Vec<String>,
}

impl Default for TraceSettings {
    fn default() -> Self {
        Self {
            otlp_endpoint: None,
            otlp_headers_file: None,
            otlp_ca_file: None,
            trace_sample: 0.01,
            max_client_traces: 1,
            trace_keys: false,
            trace_service: "martlet".to_owned(),
            trace_attributes: Vec::new(),
        }
    }
}

impl TraceSettings {
    /// Names of the settings of traces.
    pub const NAMES: [&str; 8] = [
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
        if !(0.0..=1.0).contains(&self.trace_sample) {
            return Err(Failure::usage("trace_sample must be a number from 0 to 1"));
        }
        if self.trace_service.is_empty() {
            return Err(Failure::usage("trace_service must not be empty"));
        }
        if let Some(endpoint) = &self.otlp_endpoint {
            let url = endpoint_of(endpoint)?;
            if self.otlp_ca_file.is_some() && url.scheme_str() != Some("https") {
                return Err(Failure::usage("otlp_ca_file needs an https:// otlp_endpoint"));
            }
        }
        self.trace_attributes.iter().try_for_each(|text| attribute_of(text).map(drop))
    }
}

/// Reads the URL of a collector.
pub(super) fn endpoint_of(endpoint: &str) -> Result<Uri, Failure> {
    if endpoint.contains('@') {
        return Err(Failure::usage(
            "otlp_endpoint must not contain credentials: use otlp_headers_file",
        ));
    }
    let uri = endpoint.parse::<Uri>().ok().filter(|uri| {
        let is_plain = uri.query().is_none() && uri.host().is_some_and(|host| !host.is_empty());
        is_plain && matches!(uri.scheme_str(), Some("http" | "https"))
    });
    uri.ok_or_else(|| {
        Failure::usage(format!(
            "the otlp_endpoint \"{endpoint}\" must have the form http://host:4318 or https://host"
        ))
    })
}

/// Splits an attribute, `NAME=VALUE`.
pub(super) fn attribute_of(text: &str) -> Result<(&str, &str), Failure> {
    text.split_once('=').filter(|(name, value)| !name.is_empty() && !value.is_empty()).ok_or_else(
        || Failure::usage(format!("trace_attributes must be NAME=VALUE each, not \"{text}\"")),
    )
}

/// Deserializes a share, also from text, as the environment has it.
fn share<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum ShareForm {
        Number(f64),
        Text(String),
    }
    match ShareForm::deserialize(deserializer)? {
        ShareForm::Number(number) => Ok(number),
        ShareForm::Text(text) => {
            text.parse().map_err(|_| serde::de::Error::custom("write a number from 0 to 1"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::MergedSettings;

    fn settings(text: &str) -> Result<TraceSettings, Failure> {
        let environment = |name: &str| (name == "MARTLET_TRACE_SAMPLE").then(|| "0.25".to_owned());
        let merged =
            MergedSettings::gather(&[], &TraceArgs::default(), environment, Some(text)).unwrap();
        let settings: TraceSettings = merged.extract()?;
        settings.check().map(|()| settings)
    }

    #[test]
    fn every_setting_of_traces_has_a_name() {
        let printed = format!("{:#?}", TraceSettings::default());
        let fields = printed.lines().filter_map(|line| line.trim().split_once(':'));
        assert_eq!(fields.map(|(name, _)| name).collect::<Vec<_>>(), TraceSettings::NAMES);
    }

    #[test]
    fn settings_come_from_the_environment_and_a_file() {
        let read = settings(
            "otlp_endpoint = 'https://c:4318/x'\nmax_client_traces = 0\n\
             trace_attributes = ['zone=a', 'b=c=d']",
        );
        let read = read.unwrap();
        assert!((read.trace_sample - 0.25).abs() < f64::EPSILON && read.max_client_traces == 0);
        assert_eq!(read.trace_attributes, ["zone=a", "b=c=d"]);
        assert!(TraceSettings::default().check().is_ok());
    }

    #[test]
    fn settings_that_cannot_work_are_refused_by_their_names() {
        for (text, named) in [
            ("otlp_endpoint = 'collector:4318'", "otlp_endpoint"),
            ("otlp_endpoint = 'ftp://c'", "otlp_endpoint"),
            ("otlp_endpoint = 'http://user:secret@c'", "otlp_headers_file"),
            ("otlp_endpoint = 'http://c'\notlp_ca_file = '/ca.pem'", "https"),
            ("trace_service = ''", "trace_service"),
            ("trace_attributes = 'zone'", "trace_attributes"),
        ] {
            let refusal = settings(text).unwrap_err().to_string();
            assert!(refusal.contains(named) && !refusal.contains("secret"), "{refusal}");
        }
        for share in [-0.1, 1.1, f64::NAN] {
            let wrong = TraceSettings { trace_sample: share, ..TraceSettings::default() };
            assert!(wrong.check().unwrap_err().to_string().contains("trace_sample"));
        }
    }
}
