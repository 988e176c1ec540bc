//! Logs on standard error: text for people or one JSON object a line.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use super::settings::{Common, LogFormat};
use crate::failure::Failure;

/// Starts logging for the whole process.
pub(crate) fn start(settings: &Common) -> Result<(), Failure> {
    let filter = EnvFilter::try_new(&settings.log).map_err(|error| {
        Failure::usage(format!("\"{}\" is no filter for logs: {error}", settings.log))
    })?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = match settings.log_format {
        LogFormat::Text => {
            let ansi = std::io::stderr().is_terminal();
            builder.with_ansi(ansi).with_target(false).try_init()
        }
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    started.map_err(|error| Failure::refused(format!("logging could not be started: {error}")))
}
