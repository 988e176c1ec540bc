//! `martlet top`: a terminal view of a process and its cluster.
//!
//! The crate `martlet-top` holds the figures, the keys and the drawing. This module requests, reads
//! keys and owns the terminal:
//!
//! ```text
//! fetch thread ──answers──▶ ┌───────────────┐
//! input thread ──keys─────▶ │ screen thread │ ──▶ terminal
//! signal thread ─stop─────▶ └───────────────┘
//! screen thread ──parts to request, one set at a time──▶ fetch thread
//! ```

mod event;
mod fetch;
mod signals;
mod terminal;

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use clap::Args;
use martlet_serving::{Failure, parse_span};
use martlet_top::{Part, View, escaped, plain};

use self::event::Fetched;
use self::fetch::Source;
use crate::admin::AdminConnectionArgs;

/// Bounds of the interval.
const INTERVAL_MIN: Duration = Duration::from_millis(500);
const INTERVAL_MAX: Duration = Duration::from_mins(1);
/// Names of terminals without colours.
const WITHOUT_COLOUR: [&str; 6] = ["ansi-m", "linux-m", "vt100", "vt102", "vt220", "xterm-mono"];

/// Arguments of `martlet top`.
#[derive(Args, Debug)]
#[command(after_help = "\
Query a proxy or a server for requests and latencies: they are those of the queried process. Any \
member of a cluster shows the nodes, devices, rings and workers of all.

Keys: 1 to 6 or Tab choose a screen, / filters, s sorts, p pauses, ? lists all keys, q quits. NO_COLOR \
turns colours off.

Examples:
  martlet top
  martlet top --admin-config admin.toml
  martlet top --admin-address n1:6201 --admin-ca ca.crt --admin-key-file ops.key --interval 5s
  martlet top --once | grep '^!'                 # the warnings, for scripts; JSON: martlet admin status")]
pub(crate) struct TopArgs {
    #[command(flatten)]
    connection: AdminConnectionArgs,
    /// Time between two readings, from 500ms to 1m
    #[arg(long, value_name = "SPAN", default_value = "2s", value_parser = parse_interval)]
    interval: Duration,
    /// Print one reading as plain text, with rates over one interval
    #[arg(long)]
    once: bool,
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    let interval = parse_span(text)?;
    if (INTERVAL_MIN..=INTERVAL_MAX).contains(&interval) {
        return Ok(interval);
    }
    Err(format!("\"{text}\" is out of bounds: write a span from 500ms to 1m"))
}

/// Shows the cluster until the user quits, or prints one reading.
///
/// # Errors
/// The credential is refused, there is no terminal, or the only reading fails.
pub(crate) fn run(args: &TopArgs) -> Result<(), Failure> {
    let term = std::env::var("TERM").unwrap_or_default();
    if !args.once {
        check_terminal(io::stdout().is_terminal(), &term)?;
    }
    let source = Source::new(args.connection.resolve()?.endpoint()?);
    let no_color = std::env::var("NO_COLOR").unwrap_or_default();
    let interval_ms = u64::try_from(args.interval.as_millis()).expect("a minute at most");
    let view = View::new(&source.address(), interval_ms, has_colour(&no_color, &term));
    if args.once { once(&source, view, args.interval) } else { terminal::run(source, view) }
}

fn check_terminal(is_terminal: bool, term: &str) -> Result<(), Failure> {
    if !is_terminal {
        return Err(Failure::usage(
            "the standard output is no terminal: print one reading with martlet top --once",
        ));
    }
    if term.is_empty() || term == "dumb" {
        return Err(Failure::usage(
            "the terminal can't place text, or TERM is not set: print one reading with martlet top \
             --once",
        ));
    }
    Ok(())
}

fn has_colour(no_color: &str, term: &str) -> bool {
    no_color.is_empty() && !WITHOUT_COLOUR.contains(&term)
}

/// Requests all parts, and the metrics once more after the interval. Prints the view.
fn once(source: &Source, mut view: View, interval: Duration) -> Result<(), Failure> {
    for part in Part::ALL {
        apply(&mut view, source, part)?;
    }
    source.wait_until(interval)?;
    apply(&mut view, source, Part::Metrics)?;
    match io::stdout().write_all(plain(&view).as_bytes()) {
        // A reader that has seen enough is no failure.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::refused(format!("the reading can't be printed: {error}")))
        }
        _ => Ok(()),
    }
}

/// Requests a part. Without a status, there is no reading.
fn apply(view: &mut View, source: &Source, part: Part) -> Result<(), Failure> {
    let answer = match source.fetch(part) {
        Fetched::Answer(answer) => answer,
        Fetched::Refused(failure) => return Err(failure),
    };
    match &answer.reply {
        Err(reason) if part == Part::Status => Err(Failure::refused(escaped(reason))),
        _ => {
            view.apply(answer);
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_have_bounds() {
        assert_eq!(parse_interval("500ms"), Ok(INTERVAL_MIN));
        assert_eq!(parse_interval("1m"), Ok(INTERVAL_MAX));
        for wrong in ["499ms", "61s", "2", "2h", ""] {
            assert!(parse_interval(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_output_that_can_not_be_drawn_on_is_refused_with_the_remedy() {
        for (is_terminal, term) in [(false, "xterm"), (true, "dumb"), (true, "")] {
            let refusal = check_terminal(is_terminal, term).unwrap_err();
            assert!(refusal.to_string().contains("--once"), "{refusal}");
        }
        assert_eq!(check_terminal(true, "linux"), Ok(()));
    }

    #[test]
    fn colours_can_be_off() {
        assert!(has_colour("", "xterm-256color"));
        assert!(!has_colour("1", "xterm-256color") && !has_colour("", "vt100"));
    }
}
