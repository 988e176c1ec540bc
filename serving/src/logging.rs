//! Logs on standard error: text for people, or one JSON object on each line. Lines about a client's
//! request end with its request id, and those about a sampled request with its trace.

use std::io::IsTerminal;

use martlet_protocol::http::current_request;
use martlet_protocol::trace::current_trace;
use tracing::{Event, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::{Format, JsonFields, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use super::settings::{CommonSettings, LogFormat};
use crate::failure::Failure;

/// Starts logging for the whole process. Lines that can't be written, as on a full disk, are lost.
pub fn start(settings: &CommonSettings) -> Result<(), Failure> {
    let filter = EnvFilter::try_new(&settings.log).map_err(|error| {
        Failure::usage(format!("\"{}\" is not a log filter: {error}", settings.log))
    })?;
    // The library reports a failed write on the same standard error, and panics if that fails too.
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .log_internal_errors(false);
    let started = match settings.log_format {
        LogFormat::Text => {
            let ansi = std::io::stderr().is_terminal();
            let lines = Format::default().with_target(false).with_ansi(ansi);
            builder.with_ansi(ansi).event_format(RequestIdFormat::text(lines)).try_init()
        }
        LogFormat::Json => {
            builder.fmt_fields(JsonFields::new()).event_format(RequestIdFormat::json()).try_init()
        }
    };
    started.map_err(|error| Failure::refused(format!("logging could not be started: {error}")))
}

/// Process id of the first process of a container.
const FIRST_PROCESS: u32 = 1;

/// Returns true if a log keeps what this process prints on standard output: the journal, or the log
/// of a container. Others than the process's own user may read such a log.
pub fn keeps_output() -> bool {
    let output = std::io::stdout();
    if output.is_terminal() {
        return false;
    }
    let file = rustix::fs::fstat(&output)
        .map_or(String::new(), |it| format!("{}:{}", it.st_dev, it.st_ino));
    let journal = std::env::var("JOURNAL_STREAM").ok();
    is_kept(&file, journal.as_deref(), std::process::id())
}

/// Returns true if the output goes to the journal's file (`device:inode`, from its variable), or is
/// that of a container's first process.
fn is_kept(output: &str, journal: Option<&str>, process: u32) -> bool {
    process == FIRST_PROCESS || (!output.is_empty() && journal == Some(output))
}

/// Formatter that appends the id of the current task's request, and its trace if it is sampled, to
/// each line. It looks both up only when a line is written, so unlogged requests cost nothing.
pub(crate) struct RequestIdFormat<F> {
    lines: F,
    /// Appends a name and its id to a line.
    add: fn(&mut String, &str, &str),
}

impl<F> RequestIdFormat<F> {
    fn text(lines: F) -> Self {
        Self { lines, add: |line, name, id| line.extend([" ", name, "=", id]) }
    }
}

impl RequestIdFormat<Format<tracing_subscriber::fmt::format::Json>> {
    pub(crate) fn json() -> Self {
        let lines = Format::default().json().flatten_event(true);
        Self {
            lines,
            add: |line, name, id| {
                if line.pop() == Some('}') {
                    line.extend([",\"", name, "\":\"", id, "\"}"]);
                }
            },
        }
    }
}

impl<S, N, F> FormatEvent<S, N> for RequestIdFormat<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> std::fmt::Result {
        let id = current_request();
        // Ids of internal requests come from other processes; a quote in an id would break the
        // line.
        let is_plain = |id: &&str| id.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let id = id.as_ref().and_then(|id| id.to_str().ok()).filter(is_plain);
        let trace = current_trace();
        if id.is_none() && trace.is_none() {
            return self.lines.format_event(context, writer, event);
        }
        let mut line = String::new();
        self.lines.format_event(context, Writer::new(&mut line), event)?;
        line.truncate(line.trim_end_matches('\n').len());
        if let Some(id) = id {
            (self.add)(&mut line, "request_id", id);
        }
        if let Some(trace) = trace {
            (self.add)(&mut line, "trace_id", &trace.to_string());
        }
        writeln!(writer, "{line}")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use martlet_protocol::http::in_request;
    use martlet_protocol::trace::{FinishedSpan, SpanContext, SpanScope, SpanSink};

    use super::*;
    use crate::testing::{CapturedLines, json_lines};

    #[test]
    fn output_is_kept_by_the_journal_and_by_the_log_of_a_container() {
        assert!(is_kept("8:17", Some("8:17"), 400), "the journal's own file");
        assert!(!is_kept("8:17", Some("8:18"), 400), "standard error alone goes to the journal");
        assert!(!is_kept("8:17", None, 400) && !is_kept("", Some(""), 400));
        assert!(is_kept("8:17", None, 1), "the first process of a container");
    }

    #[test]
    fn a_line_for_a_request_ends_in_its_id() {
        let (lines, _on) = json_lines();
        let id = http::HeaderValue::from_static("00AB");
        in_request(&id, || tracing::warn!(n = 7, "of \"it\""));
        tracing::warn!("of nothing");
        let odd = http::HeaderValue::from_static("00\"AB");
        in_request(&odd, || tracing::warn!("of what has no plain id"));
        let text = lines.text();
        let all: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(all.len(), 3);
        assert_eq!((&all[0]["request_id"], &all[0]["n"]), (&"00AB".into(), &7.into()));
        assert_eq!(all[0]["message"], "of \"it\"");
        assert!(all[1..].iter().all(|line| line.get("request_id").is_none()));
    }

    #[test]
    fn a_line_for_a_sampled_request_names_its_trace() {
        struct Dropped;
        impl SpanSink for Dropped {
            fn record(&self, _: FinishedSpan) {}
        }
        let (lines, _on) = json_lines();
        let context = SpanContext::new_root();
        let scope = SpanScope::of_remote(context, Arc::new(Dropped));
        let id = http::HeaderValue::from_static("00AB");
        scope.enter(|| in_request(&id, || tracing::info!("sampled")));
        scope.enter(|| tracing::info!("without an id"));
        in_request(&id, || tracing::info!("not sampled"));
        let text = lines.text();
        let all: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(all[0]["trace_id"], context.trace.to_string());
        assert_eq!(
            (&all[0]["request_id"], &all[1]["trace_id"]),
            (&"00AB".into(), &all[0]["trace_id"])
        );
        assert!(all[2].get("trace_id").is_none() && all[2]["request_id"] == "00AB");
    }

    #[test]
    fn a_line_for_people_ends_in_it_too() {
        let lines = CapturedLines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || writer.clone())
            .event_format(RequestIdFormat::text(Format::default().with_ansi(false)))
            .finish();
        let _on = tracing::subscriber::set_default(subscriber);
        let id = http::HeaderValue::from_static("00AB");
        in_request(&id, || tracing::info!(n = 7, "said"));
        tracing::info!("unasked");
        let text = lines.text();
        let ends: Vec<&str> = text.lines().map(|line| line.split_once(": ").unwrap().1).collect();
        assert_eq!(ends, ["said n=7 request_id=00AB", "unasked"]);
    }
}
