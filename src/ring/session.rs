//! One command on one builder file: open, change, save.

use std::path::Path;

use martlet_ring::{Builder, Ring};
use martlet_ring_steps as steps;
use martlet_serving::Failure;

use super::args::{BuilderCommand, RingArgs};
use super::output::CommandOutput;
use super::{edit, locate, look, rebalance};

/// One command on one builder file, at one point in time (`now_ms`).
pub(super) struct RingSession<'a> {
    pub(super) path: &'a Path,
    pub(super) args: &'a RingArgs,
    pub(super) now_ms: u64,
}

/// Answer of a command, and the ring that `--svg` draws.
type CommandResult = Result<(CommandOutput, Option<Ring>), Failure>;

impl RingSession<'_> {
    /// Runs a command.
    pub(super) fn run(&mut self, command: &BuilderCommand) -> CommandResult {
        match command {
            BuilderCommand::Create(_) | BuilderCommand::Reconstruct { .. } => self.begin(command),
            BuilderCommand::Diff { .. } => unreachable!("needs no builder"),
            BuilderCommand::Plan(_)
            | BuilderCommand::Validate
            | BuilderCommand::Show { .. }
            | BuilderCommand::Balance { .. }
            | BuilderCommand::Dispersion
            | BuilderCommand::Search { .. }
            | BuilderCommand::Locate(_)
            | BuilderCommand::History
            | BuilderCommand::Rebalance { dry_run: true, .. } => self.look(command),
            BuilderCommand::WriteRing { file } => {
                let builder = self.open()?.0;
                let answer = rebalance::write_ring(&builder, self.path, file.as_deref())?;
                Ok((answer, builder.current_ring().ok()))
            }
            _ => self.change(command),
        }
    }

    /// Creates a builder file. An existing file is an error.
    fn begin(&self, command: &BuilderCommand) -> CommandResult {
        if self.path.exists() {
            return Err(Failure::refused(format!(
                "{} already exists: choose another name, or move it away first",
                self.path.display()
            )));
        }
        let (mut builder, line) = match command {
            BuilderCommand::Create(args) => edit::create(args)?,
            BuilderCommand::Reconstruct { ring, min_part_hours, overload } => {
                edit::reconstruct(ring, *min_part_hours, *overload, self.now_ms)?
            }
            _ => unreachable!("only `create` and `reconstruct` make a builder"),
        };
        self.record(&mut builder, &line.done);
        builder.save(self.path)?;
        Ok((CommandOutput::done(&line), builder.current_ring().ok()))
    }

    /// Changes the builder and saves it.
    fn change(&self, command: &BuilderCommand) -> CommandResult {
        let (mut builder, before) = self.open()?;
        let answer = match command {
            BuilderCommand::Rebalance { plan, .. } => {
                rebalance::rebalance(&mut builder, plan, self.now_ms, self.args.json)?
            }
            command => edit::edit(&mut builder, command)?,
        };
        let what = answer.text.lines().next().unwrap_or_default().to_owned();
        self.record(&mut builder, &what);
        self.save(&builder, &before)?;
        Ok((answer, builder.current_ring().ok()))
    }

    /// Runs a read-only command on a builder or a ring file.
    fn look(&self, command: &BuilderCommand) -> CommandResult {
        let builder = self.open_either()?;
        let ring = builder.current_ring().ok();
        let answer = match command {
            BuilderCommand::Plan(args) | BuilderCommand::Rebalance { plan: args, .. } => {
                let (answer, after) = rebalance::plan(&builder, args, self.now_ms, self.args.json)?;
                return Ok((answer, Some(after)));
            }
            BuilderCommand::Locate(args) => locate::locate(&builder, args)?,
            command => look::look(&builder, self.path, command)?,
        };
        Ok((answer, ring))
    }

    /// Saves the builder. Fails if its file has changed since it was read.
    pub(super) fn save(&self, builder: &Builder, before: &[u8]) -> Result<(), Failure> {
        if std::fs::read(self.path).ok().as_deref() != Some(before) {
            return Err(Failure::refused(format!(
                "{} was changed by another command at the same time, and nothing was written: \
                 check it, then repeat",
                self.path.display()
            )));
        }
        Ok(builder.save(self.path)?)
    }

    fn record(&self, builder: &mut Builder, what: &str) {
        steps::record(builder, self.now_ms, self.args.who.as_deref().unwrap_or_default(), what);
    }

    /// Loads the builder. Returns it with the bytes of its file.
    pub(super) fn open(&self) -> Result<(Builder, Vec<u8>), Failure> {
        if self.is_ring() {
            return Err(Failure::refused(format!(
                "{} is a ring file, and only builders can be changed: name its builder, or create \
                 one with `martlet ring NEW.builder reconstruct {}`",
                self.path.display(),
                self.path.display()
            )));
        }
        let bytes = std::fs::read(self.path).unwrap_or_default();
        Ok((Builder::load(self.path)?, bytes))
    }

    fn open_either(&self) -> Result<Builder, Failure> {
        if !self.is_ring() {
            return Ok(self.open()?.0);
        }
        let ring = Ring::load(self.path)?;
        Ok(Builder::from_ring(&ring, 0, 0.0, self.now_ms)?)
    }

    fn is_ring(&self) -> bool {
        use std::io::Read;
        let mut first = [0; 8];
        let read = std::fs::File::open(self.path).and_then(|mut file| file.read_exact(&mut first));
        read.is_ok() && &first == b"MRTLRING"
    }
}
