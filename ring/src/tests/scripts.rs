//! Runs the scripts in `testdata`: one command a line, with its indented output below.
//!
//! ```text
//! add r1z1-a@10.0.0.1:6200/sda 100
//!   d0
//! ```
//!
//! With `MARTLET_WRITE_SCRIPTS` set, the output is written instead of compared: review the
//! difference before committing it.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use martlet_protocol::DeviceId;

use crate::builder::Builder;
use crate::builder::device_location::DeviceLocation;
use crate::builder::rebalance::RebalanceContext;
use crate::error::{Error, Result};
use crate::figures::Figures;
use crate::testing::settings;

const HOUR_MS: u64 = 3_600_000;

/// A builder with the current time.
struct ScriptedBuilder {
    builder: Builder,
    hour: u64,
}

impl ScriptedBuilder {
    /// Runs a command and returns its output.
    fn run(&mut self, line: &str) -> Result<String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let builder = &mut self.builder;
        match words.as_slice() {
            ["create", power, replicas] => {
                let settings = settings(number(power), float(replicas));
                *builder = Builder::create(settings, [7; 16])?;
                Ok(String::new())
            }
            ["hour", hour] => {
                self.hour = number(hour);
                Ok(String::new())
            }
            ["add", place, weight] => {
                let place: DeviceLocation = place.parse()?;
                Ok(format!("{}\n", builder.add(place.with(float(weight), ""))?))
            }
            ["remove", id] => builder.remove(device(id), false).map(|()| String::new()),
            ["remove", id, "--force"] => builder.remove(device(id), true).map(|()| String::new()),
            ["weight", id, weight] => {
                builder.set_weight(device(id), float(weight)).map(|()| String::new())
            }
            ["drain", id, steps] => {
                builder.drain(device(id), number(steps)).map(|()| String::new())
            }
            ["overload", overload] => builder.set_overload(float(overload)).map(|()| String::new()),
            ["replicas", count] => builder.set_replicas(float(count)).map(|()| String::new()),
            ["min-part-hours", hours] => {
                builder.set_min_part_hours(number(hours));
                Ok(String::new())
            }
            ["pretend-min-part-hours-passed"] => {
                builder.pretend_min_part_hours_passed();
                Ok(String::new())
            }
            ["settle"] => Ok(format!("{} replicas were moving\n", builder.settle()?)),
            ["increase-part-power"] => {
                Ok(format!("part power {}\n", builder.increase_part_power()?))
            }
            ["rebalance"] => self.rebalance(),
            ["show"] => show(builder),
            ["write"] => Ok(format!("epoch {}\n", builder.ring()?.epoch())),
            ["advice"] => Ok(builder.advice().join("\n") + "\n"),
            _ => panic!("no such command: {line}"),
        }
    }

    fn rebalance(&mut self) -> Result<String> {
        let occasion = RebalanceContext { now_ms: self.hour * HOUR_MS, seed: 1 };
        let report = self.builder.rebalance(occasion)?;
        Ok(format!(
            "epoch {}: {} moved, {} placed, {} partitions locked, balance {:.2}, dispersion {:.2}, \
             {} more to go\n",
            report.epoch,
            report.moved,
            report.placed,
            report.locked,
            report.balance,
            report.dispersion,
            report.rebalances_to_go
        ))
    }
}

fn show(builder: &Builder) -> Result<String> {
    let mut text = String::new();
    let figures = Figures::of_builder(builder)?;
    for (device, figure) in builder.devices().zip(&figures.devices) {
        let (weight, parts) = (device.weight, figure.parts);
        writeln!(text, "{} {device} weight {weight}: {parts}", device.id)
            .expect("a string takes it");
    }
    Ok(text)
}

fn number<T: std::str::FromStr<Err: std::fmt::Debug>>(word: &str) -> T {
    word.parse().unwrap()
}

fn float(word: &str) -> f64 {
    word.parse().unwrap()
}

fn device(word: &str) -> DeviceId {
    DeviceId(number(word.strip_prefix('d').unwrap()))
}

/// Returns a script with the actual output of its commands.
fn replay(script: &str) -> String {
    let builder = Builder::create(settings(8, 3.0), [7; 16]).unwrap();
    let mut stage = ScriptedBuilder { builder, hour: 1000 };
    let mut text = String::new();
    for line in script.lines().filter(|line| !line.starts_with("  ")) {
        text += line;
        text.push('\n');
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let came = stage.run(line).unwrap_or_else(|error: Error| format!("refused: {error}\n"));
        for line in came.lines() {
            writeln!(text, "  {line}").expect("a string takes it");
        }
    }
    text
}

#[test]
fn scripts_come_out_as_written() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    paths.sort();
    assert!(paths.len() >= 3, "{paths:?}");
    for path in paths {
        let script = std::fs::read_to_string(&path).unwrap();
        let came = replay(&script);
        if std::env::var_os("MARTLET_WRITE_SCRIPTS").is_some() {
            std::fs::write(&path, came).unwrap();
        } else {
            assert_eq!(came, script, "{}", path.display());
        }
    }
}
