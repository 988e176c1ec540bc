//! `martlet admin checkpoints`, and `martlet admin bucket checkpoints`: sets and rules.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use martlet_admin_api::checkpoints::{
    GenerationLine, RETENTION, RULES, RetentionPage, RetiredLine, RulesLine, SETS, SetLine,
    SetPage, WithdrawnLine,
};
use martlet_protocol::{Clock, SystemClock};
use martlet_serving::Failure;

use super::client::AdminEndpoint;
use super::print;
use crate::columns::table;

/// Arguments of `martlet admin bucket checkpoints`.
#[derive(Args, Debug)]
pub(super) struct RulesArgs {
    /// Bucket
    bucket: String,
    /// Replace the rules by those of a JSON file
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Remove the rules; the bucket's sets leave the view
    #[arg(long, conflicts_with = "file")]
    remove: bool,
}

/// Subcommands of `martlet admin checkpoints`.
#[derive(Debug, Subcommand)]
pub(super) enum CheckpointCommand {
    /// List the sets of a bucket with their generations
    List {
        /// Bucket
        bucket: String,
    },
    /// Show which generations rules will withdraw, and when: a dry run, nothing is changed
    Retention {
        /// Bucket
        bucket: String,
        /// A set, with its last slash: only what `keep` withdraws of its series [default: all sets]
        set: Option<String>,
    },
    /// Take generations of a set out of the view
    Withdraw(WithdrawArgs),
}

/// Arguments of `martlet admin checkpoints withdraw`.
#[derive(Args, Debug)]
pub(super) struct WithdrawArgs {
    /// Bucket
    bucket: String,
    /// Set, with its last slash
    set: String,
    /// Number of the generation [default: all]
    #[arg(long, value_name = "NUMBER")]
    generation: Option<u64>,
    /// Delete the objects of the generations too, after the grace time
    #[arg(long)]
    delete_objects: bool,
}

impl RulesArgs {
    /// Shows, replaces or removes the rules, and prints them.
    pub(super) fn run(&self, server: &AdminEndpoint, json: bool) -> Result<(), Failure> {
        let bucket = self.bucket.clone();
        let line: RulesLine = match &self.file {
            Some(file) => {
                let rules = std::fs::read_to_string(file).map_err(|error| {
                    Failure::usage(format!("{} can't be read: {error}", file.display()))
                })?;
                server.put(RULES, &RulesLine { bucket, rules: Some(rules) })?
            }
            None if self.remove => server.put(RULES, &RulesLine { bucket, rules: None })?,
            None => server.request_json(RULES, &[("bucket", bucket.as_str())])?,
        };
        print::show(&line, json, rules_text);
        Ok(())
    }
}

impl CheckpointCommand {
    /// Sends the command's request and prints the answer.
    pub(super) fn run(&self, server: &AdminEndpoint, json: bool) -> Result<(), Failure> {
        match self {
            Self::List { bucket } => {
                print::show(&all_sets(server, bucket)?, json, |sets| sets_text(sets, now_ms()));
            }
            Self::Retention { bucket, set } => {
                let retired = all_retired(server, bucket, set.as_deref())?;
                print::show(&retired, json, |retired| retired_text(retired, now_ms()));
            }
            Self::Withdraw(args) => {
                let withdrawn = args.send(server)?;
                print::show(&withdrawn, json, |line| {
                    format!("{} generations left the view\n", line.withdrawn)
                });
            }
        }
        Ok(())
    }
}

impl WithdrawArgs {
    fn send(&self, server: &AdminEndpoint) -> Result<WithdrawnLine, Failure> {
        let generation = self.generation.map(|number| number.to_string());
        let mut query = vec![("bucket", self.bucket.as_str()), ("set", self.set.as_str())];
        query.extend(generation.as_deref().map(|number| ("generation", number)));
        if self.delete_objects {
            query.push(("delete_objects", "true"));
        }
        server.delete(SETS, &query)
    }
}

/// All sets of a bucket, from all pages.
fn all_sets(server: &AdminEndpoint, bucket: &str) -> Result<Vec<SetLine>, Failure> {
    let (mut sets, mut after) = (Vec::new(), None::<String>);
    loop {
        let mut query = vec![("bucket", bucket)];
        query.extend(after.as_deref().map(|after| ("after", after)));
        let page: SetPage = server.request_json(SETS, &query)?;
        sets.extend(page.sets);
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(sets),
        }
    }
}

fn rules_text(line: &RulesLine) -> String {
    match &line.rules {
        Some(rules) => format!("{}\n", rules.trim_end()),
        None => format!("{} has no checkpoint rules\n", line.bucket),
    }
}

fn now_ms() -> u64 {
    SystemClock.now_ms()
}

fn sets_text(sets: &[SetLine], now_ms: u64) -> String {
    let cells = ["set", "generation", "state", "objects", "bytes", "age", "held for", "reason"];
    let mut rows = vec![cells.map(str::to_owned).to_vec()];
    for set in sets {
        rows.extend(set.generations.iter().map(|generation| row(&set.set, generation, now_ms)));
    }
    table(&rows, &[1, 3, 4, 5, 6])
}

fn row(set: &str, line: &GenerationLine, now_ms: u64) -> Vec<String> {
    let held_ms = line.held_until_ms.saturating_sub(now_ms);
    vec![
        set.to_owned(),
        line.generation.to_string(),
        line.state.clone(),
        line.objects.to_string(),
        line.bytes.to_string(),
        span(now_ms.saturating_sub(line.noted_ms)),
        if held_ms == 0 { "-".to_owned() } else { span(held_ms) },
        line.reason.clone().unwrap_or_default(),
    ]
}

/// A time of some seconds to days, in its largest unit.
fn span(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7199 => format!("{} min", seconds / 60),
        7200..=172_799 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// All withdrawals of a bucket that are to come, from all pages.
fn all_retired(
    server: &AdminEndpoint,
    bucket: &str,
    set: Option<&str>,
) -> Result<Vec<RetiredLine>, Failure> {
    let (mut retired, mut after) = (Vec::new(), None::<String>);
    loop {
        let mut query = vec![("bucket", bucket)];
        query.extend(set.map(|set| ("set", set)));
        query.extend(after.as_deref().map(|after| ("after", after)));
        let page: RetentionPage = server.request_json(RETENTION, &query)?;
        retired.extend(page.withdrawals);
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(retired),
        }
    }
}

fn retired_text(retired: &[RetiredLine], now_ms: u64) -> String {
    if retired.is_empty() {
        return "rules will withdraw nothing\n".to_owned();
    }
    let cells = ["set", "generation", "in", "objects", "reason"];
    let mut rows = vec![cells.map(str::to_owned).to_vec()];
    rows.extend(retired.iter().map(|line| {
        let left_ms = line.due_ms.saturating_sub(now_ms);
        vec![
            line.set.clone(),
            line.generation.to_string(),
            if left_ms == 0 { "now".to_owned() } else { span(left_ms) },
            if line.deletes_objects { "deleted" } else { "kept" }.to_owned(),
            line.reason.clone(),
        ]
    }));
    table(&rows, &[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generations_are_listed_with_their_reasons() {
        let generation = |number, state: &str, reason: Option<&str>| GenerationLine {
            generation: number,
            state: state.into(),
            objects: 3,
            bytes: 4096,
            noted_ms: 1_000_000,
            held_until_ms: if number == 1 { 1_000_000 + 3 * 3_600_000 } else { 0 },
            reason: reason.map(str::to_owned),
        };
        let generations = vec![
            generation(1, "committed", None),
            generation(12, "pending", Some("1 of 2 objects are missing: b")),
        ];
        let text = sets_text(&[SetLine { set: "run/step-1/".into(), generations }], 1_060_000);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[1].starts_with("run/step-1/") && lines[1].contains("committed"));
        assert!(lines[1].contains("60 s") && lines[1].contains(" 2 h"), "{text}");
        assert!(lines[2].contains("12") && lines[2].ends_with("missing: b"));
    }

    #[test]
    fn rules_and_retention_are_printed_in_words() {
        let line =
            |rules: Option<&str>| RulesLine { bucket: "b".into(), rules: rules.map(str::to_owned) };
        assert_eq!(rules_text(&line(None)), "b has no checkpoint rules\n");
        assert_eq!(rules_text(&line(Some("{}\n"))), "{}\n");
        assert_eq!(retired_text(&[], 5), "rules will withdraw nothing\n");
        let retired = |due_ms, deletes_objects| RetiredLine {
            set: "s/".into(),
            generation: 3,
            reason: "abandoned".into(),
            due_ms,
            deletes_objects,
        };
        let text = retired_text(&[retired(5, true), retired(400_000, false)], 5_000);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].contains("now") && lines[1].contains("deleted"), "{text}");
        assert!(lines[2].contains("6 min") && lines[2].ends_with("abandoned"), "{text}");
    }
}
