//! `martlet admin checkpoints`, and `martlet admin bucket checkpoints`: sets and rules.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use martlet_admin_api::checkpoints::{
    GenerationLine, RETENTION, RULES, RetiredLine, RulesLine, SETS, SetLine, SetPage, WithdrawnLine,
};
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
    /// Show which generations of a set's series retention would withdraw now
    Retention {
        /// Bucket
        bucket: String,
        /// A set of the series, with its last slash
        set: String,
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
                print::show(&all_sets(server, bucket)?, json, |sets| sets_text(sets));
            }
            Self::Retention { bucket, set } => {
                let query = [("bucket", bucket.as_str()), ("set", set.as_str())];
                let retired: Vec<RetiredLine> = server.request_json(RETENTION, &query)?;
                print::show(&retired, json, |retired| retired_text(retired));
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

fn sets_text(sets: &[SetLine]) -> String {
    let cells = ["set", "generation", "state", "objects", "bytes", "reason"];
    let mut rows = vec![cells.map(str::to_owned).to_vec()];
    for set in sets {
        rows.extend(set.generations.iter().map(|generation| row(&set.set, generation)));
    }
    table(&rows, &[1, 3, 4])
}

fn row(set: &str, line: &GenerationLine) -> Vec<String> {
    vec![
        set.to_owned(),
        line.generation.to_string(),
        line.state.clone(),
        line.objects.to_string(),
        line.bytes.to_string(),
        line.reason.clone().unwrap_or_default(),
    ]
}

fn retired_text(retired: &[RetiredLine]) -> String {
    if retired.is_empty() {
        return "retention would withdraw nothing\n".to_owned();
    }
    let line = |it: &RetiredLine| format!("{} generation {}\n", it.set, it.generation);
    retired.iter().map(line).collect()
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
            noted_ms: 5,
            held_until_ms: 0,
            reason: reason.map(str::to_owned),
        };
        let generations = vec![
            generation(1, "committed", None),
            generation(12, "pending", Some("1 of 2 objects are missing: b")),
        ];
        let text = sets_text(&[SetLine { set: "run/step-1/".into(), generations }]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[1].starts_with("run/step-1/") && lines[1].contains("committed"));
        assert!(lines[2].contains("12") && lines[2].ends_with("missing: b"));
    }

    #[test]
    fn rules_and_retention_are_told_in_words() {
        let line =
            |rules: Option<&str>| RulesLine { bucket: "b".into(), rules: rules.map(str::to_owned) };
        assert_eq!(rules_text(&line(None)), "b has no checkpoint rules\n");
        assert_eq!(rules_text(&line(Some("{}\n"))), "{}\n");
        assert_eq!(retired_text(&[]), "retention would withdraw nothing\n");
        let retired = RetiredLine { set: "s/".into(), generation: 3 };
        assert_eq!(retired_text(&[retired]), "s/ generation 3\n");
    }
}
