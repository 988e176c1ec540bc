//! Replays the scripts in `testdata`: a command line after `$`, then its expected output, with its
//! exit code unless that is 0.
//!
//! With `MARTLET_WRITE_SCRIPTS` set, the actual output is written instead of compared. Review the
//! difference before you commit it.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use clap::Parser;
use martlet_protocol::ManualClock;
use martlet_serving::Failure;

use super::RingArgs;

/// 2026-03-01 12:00 UTC.
const START_MS: u64 = 1_772_366_400_000;

/// `martlet ring` as the whole command line has it.
#[derive(Parser)]
#[command(name = "martlet ring")]
struct RingCommandLine {
    #[command(flatten)]
    args: RingArgs,
}

/// Folder with a script's files, and the script's clock.
struct ScriptFolder {
    folder: tempfile::TempDir,
    clock: ManualClock,
}

impl ScriptFolder {
    /// Runs a command and returns its output. Words that end in `.builder`, `.ring`, `.json`,
    /// `.svg` or `.txt` are files in the stage's folder.
    fn run(&self, line: &str) -> String {
        let words = std::iter::once("martlet-ring".to_owned()).chain(words(line).map(|word| {
            let is_file = ["builder", "ring", "json", "svg", "txt"]
                .iter()
                .any(|ending| word.rsplit_once('.').is_some_and(|(_, last)| last == *ending));
            if is_file { self.path(&word).display().to_string() } else { word }
        }));
        let outcome = match RingCommandLine::try_parse_from(words) {
            Ok(line) => super::answer(&line.args, &self.clock),
            Err(error) => Err(Failure::usage(error.to_string())),
        };
        let printed = match outcome {
            Ok(text) => text,
            Err(Failure::Refused(sentence)) => format!("exit 1: {sentence}\n"),
            Err(Failure::Usage(sentence)) => {
                format!("exit 2: {}\n", sentence.lines().next().unwrap_or_default())
            }
        };
        printed.replace(&format!("{}/", self.folder.path().display()), "")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

/// Splits a line into words. Quoted text is one word.
fn words(line: &str) -> impl Iterator<Item = String> {
    let parts = line.split('"').enumerate();
    parts.flat_map(|(at, part)| -> Vec<String> {
        if at % 2 == 1 {
            return vec![part.to_owned()];
        }
        part.split_whitespace().map(str::to_owned).collect()
    })
}

/// Replays a script. Returns its commands with their actual output.
fn replay(script: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let stage = ScriptFolder { folder, clock: ManualClock::at(START_MS) };
    let mut text = String::new();
    let mut lines = script.lines().peekable();
    while let Some(line) = lines.next() {
        if line.starts_with('#') {
            writeln!(text, "{line}").unwrap();
        } else if let Some(hours) = line.strip_prefix("$ wait ") {
            stage.clock.advance_ms(hours.parse::<u64>().unwrap() * 3_600_000);
            writeln!(text, "{line}\n").unwrap();
        } else if let Some(name) = line.strip_prefix("$ file ") {
            let mut content = String::new();
            while let Some(line) = lines.next_if(|line| line.starts_with("| ")) {
                writeln!(content, "{}", &line[2..]).unwrap();
            }
            std::fs::write(stage.path(name), &content).unwrap();
            writeln!(text, "{line}").unwrap();
            for quoted in content.lines() {
                writeln!(text, "| {quoted}").unwrap();
            }
            text.push('\n');
        } else if let Some(command) = line.strip_prefix("$ ") {
            writeln!(text, "{line}\n{}", stage.run(command)).unwrap();
        }
    }
    text
}

#[test]
fn scripts_come_out_as_written() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/ring/testdata");
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty());
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

/// Every command answers in JSON too, and `--svg` draws a picture.
#[test]
fn every_command_answers_in_json() {
    let folder = tempfile::tempdir().unwrap();
    let stage = ScriptFolder { folder, clock: ManualClock::at(START_MS) };
    let script = "\
        create --part-power 8 --min-part-hours 0\n\
        add r1z1-a@10.0.0.1:6200/sda 100 r1z2-b@10.0.0.2:6200/sda 100 r1z3-c@10.0.0.3:6200/sda 100\n\
        rebalance\nwrite-ring\nadd r1z1-a@10.0.0.1:6200/sdb 100\nset-weight d3 50\n\
        set-info d3 --meta new\nset-overload 0.1\nset-min-part-hours 1\nset-replicas 2.5\n\
        increase-part-power\nplan\nrebalance --dry-run\nrebalance\nsettle\n\
        pretend-min-part-hours-passed\ndrain d3 --steps 1\nrebalance\nremove d3\nrebalance\n\
        validate\nshow\nbalance\ndispersion\nsearch r1z1\nhistory\nlocate photos\n\
        locate --partition 0\nlocate --extent 00112233445566778899aabbccddeeff\n\
        locate 00112233445566778899aabbccddeeff cat.jpg";
    for command in script.lines() {
        let printed = stage.run(&format!("data.builder --json {command}"));
        let parsed: Result<serde_json::Value, _> = serde_json::from_str(&printed);
        assert!(parsed.is_ok_and(|json| json.is_object()), "{command}: {printed}");
    }
    stage.run("data.builder write-ring new.ring");
    let diff = stage.run("diff data.ring new.ring --json");
    assert!(serde_json::from_str::<serde_json::Value>(&diff).is_ok(), "{diff}");
    stage.run("new.ring show --svg ring.svg");
    assert!(std::fs::read_to_string(stage.path("ring.svg")).unwrap().starts_with("<svg"));
}

/// Two concurrent edits of one builder: the second edit fails, and the first one is kept.
#[test]
fn a_builder_changed_meanwhile_is_not_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let stage = ScriptFolder { folder, clock: ManualClock::at(START_MS) };
    stage.run("data.builder create");
    let path = stage.path("data.builder");
    let words = ["martlet-ring", path.to_str().unwrap(), "set-overload", "0.1"];
    let line = RingCommandLine::try_parse_from(words).unwrap();
    let session = super::RingSession { path: &path, args: &line.args, now_ms: START_MS };
    let (builder, bytes) = session.open().unwrap();
    stage.run("data.builder set-overload 0.2");
    let error = session.save(&builder, &bytes).unwrap_err();
    assert!(error.to_string().contains("changed by another command"), "{error}");
    assert!(stage.run("data.builder show").contains("overload 0.2"));
}
