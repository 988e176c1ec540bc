//! Model of a cluster of 1,000 nodes with 12 devices of 10⁸ objects.
//!
//! ```text
//! constants ──▶ pace ──▶ repair ──┬─▶ changes      hours and bytes of ring changes
//!                                 ├─▶ durability   losses a year, beside markov's closed forms
//!                                 └─▶ churn        passes of workers, garbage of a month
//! cluster ── real rings ──────────┘   memory       bytes of a node
//!                                     results ──▶ report, pictures
//! ```
//!
//! The rings are real: `martlet-ring` places, moves and removes as it does for operators. Hours come
//! from constants, each with its source: a constant of the code, a measurement, or an assumption.
//! No bytes are stored, and no clock is read: a seed gives one result.

#![allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "a model computes in floating point, and its numbers are far from any bound"
)]

mod changes;
mod chart;
mod churn;
mod cluster;
mod constants;
mod durability;
mod error;
mod estimate;
mod markov;
mod memory;
mod pace;
mod pictures;
mod random;
mod repair;
mod report;
mod results;
mod run;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};

use cluster::Shape;
use constants::Constants;
use error::{Error, Result};
use run::{Plan, Progress};

/// Simulate repair, durability, ring changes, churn and memory of a large cluster.
///
/// Prints Markdown tables, and writes scale-model.json, scale-model.md and four pictures.
#[derive(Debug, Parser)]
#[command(name = "scale-model")]
struct Arguments {
    /// Seed of all random numbers; equal seeds give equal results
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Racks, each a zone of the rings; at least 12: the 11 fragments of 8+3, and one to lose
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u32).range(12..=250))]
    racks: u32,
    /// Nodes of a rack
    #[arg(long, default_value_t = 25, value_parser = clap::value_parser!(u32).range(1..=250))]
    nodes_a_rack: u32,
    /// Devices of a node
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..=250))]
    devices: u32,
    /// Years to simulate for each policy; a quarter of them again at accelerated failures
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(8..=100_000))]
    years: u32,
    /// Another value of a constant, as NAME=VALUE; repeat for several. The first table names them
    #[arg(long = "set", value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// Folder for the files; made if it is missing
    #[arg(long, default_value = "scale-model")]
    out: PathBuf,
}

/// Most devices: a tenth is added, and ids have 16 bits.
const DEVICES_MAX: u32 = 50_000;

fn main() -> ExitCode {
    match try_main(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("scale-model: {error}");
            ExitCode::FAILURE
        }
    }
}

fn try_main(arguments: &Arguments) -> Result<()> {
    let plan = plan(arguments)?;
    make_folder(&arguments.out)?;
    eprintln!("scale-model: seed {}, {} devices", plan.seed, plan.shape.devices());
    let results = run::run(&plan, &Bar::new())?;
    let text = report::markdown(&results);
    write(&arguments.out, "scale-model.md", &text)?;
    write(&arguments.out, "scale-model.json", &serde_json::to_string_pretty(&results)?)?;
    for picture in pictures::pictures(&results) {
        write(&arguments.out, picture.file, &picture.svg)?;
    }
    println!("{text}");
    Ok(())
}

fn plan(arguments: &Arguments) -> Result<Plan> {
    let Arguments { seed, racks, nodes_a_rack, devices, years, .. } = *arguments;
    let shape = Shape { racks, nodes_a_rack, devices_a_node: devices };
    if shape.devices() > DEVICES_MAX {
        let message = format!(
            "{} devices are too many: the model takes {DEVICES_MAX} at most, so use fewer racks, \
             nodes or devices",
            shape.devices()
        );
        return Err(Error::Invalid(message));
    }
    let mut constants = Constants::default();
    for text in &arguments.set {
        constants.set(text)?;
    }
    Ok(Plan { shape, constants, seed, years })
}

fn make_folder(path: &Path) -> Result<()> {
    std::fs::create_dir_all(path)
        .map_err(|source| Error::Write { path: path.display().to_string(), source })
}

fn write(folder: &Path, file: &str, text: &str) -> Result<()> {
    let path = folder.join(file);
    std::fs::write(&path, text)
        .map_err(|source| Error::Write { path: path.display().to_string(), source })
}

/// Progress on standard error: a line for each stage, and a bar on a terminal.
struct Bar(ProgressBar);

impl Bar {
    fn new() -> Self {
        let style = ProgressStyle::with_template("  {bar:30} {pos}/{len} {eta}");
        let bar = ProgressBar::new(1);
        if let Ok(style) = style {
            bar.set_style(style);
        }
        Self(bar)
    }
}

impl Progress for Bar {
    fn stage(&self, name: String, steps: u32) {
        self.0.suspend(|| eprintln!("{name}"));
        self.0.reset();
        self.0.set_length(steps.into());
    }

    fn step(&self) {
        self.0.inc(1);
        if self.0.length() == Some(self.0.position()) {
            self.0.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::{Arguments, plan};

    #[test]
    fn arguments_are_checked() {
        Arguments::command().debug_assert();
        let parse = |arguments: &[&str]| {
            let all = ["scale-model"].iter().chain(arguments);
            Arguments::try_parse_from(all).map_err(|it| it.to_string())
        };
        assert_eq!(plan(&parse(&[]).unwrap()).unwrap().shape.devices(), 12_000);
        assert!(parse(&["--racks", "3"]).unwrap_err().contains("12..=250"));
        let many = parse(&["--nodes-a-rack", "200"]).unwrap();
        assert!(plan(&many).unwrap_err().to_string().contains("too many"));
        let wrong = parse(&["--set", "fills=1"]).unwrap();
        assert!(plan(&wrong).unwrap_err().to_string().contains("NAME=VALUE"));
    }
}
