//! `martlet ring`: edits a ring's builder and previews the cost of changes.
//!
//! Placement itself is in [`martlet_ring`], and the steps on a builder are those of
//! [`martlet_ring_steps`]. A command opens the builder file ([`session`]), edits
//! it ([`edit`]), makes a ring from it ([`rebalance`]) or inspects it ([`look`]). Its answer is text
//! and JSON ([`output`]).

mod args;
mod edit;
mod locate;
mod look;
mod output;
mod plan;
mod rebalance;
mod session;
#[cfg(test)]
mod tests;
mod text;
mod tree;

use martlet_protocol::{Clock, SystemClock};
use martlet_serving::Failure;

use self::args::BuilderCommand;
pub(crate) use self::args::RingArgs;
use self::output::CommandOutput;
use self::session::RingSession;

/// Runs the command and prints its answer.
pub(crate) fn run(args: &RingArgs) -> Result<(), Failure> {
    print!("{}", answer(args, &SystemClock)?);
    Ok(())
}

/// Runs the command and returns its answer as text or JSON.
fn answer(args: &RingArgs, clock: &dyn Clock) -> Result<String, Failure> {
    let answer = execute(args, clock)?;
    if args.json {
        let json = serde_json::to_string_pretty(&answer.json);
        return Ok(json.expect("plain data can be encoded") + "\n");
    }
    Ok(answer.text)
}

fn execute(args: &RingArgs, clock: &dyn Clock) -> Result<CommandOutput, Failure> {
    if let BuilderCommand::Diff { old, new } = &args.command {
        return look::diff(old, new);
    }
    let Some(path) = &args.builder else {
        return Err(Failure::usage(
            "no builder file: name it before the command, as in martlet ring data.builder show",
        ));
    };
    let mut session = RingSession { path, args, now_ms: clock.now_ms() };
    let (answer, ring) = session.run(&args.command)?;
    if let Some(picture) = &args.svg {
        let Some(ring) = ring else {
            return Err(Failure::refused("there is no ring to draw: add devices, then rebalance"));
        };
        std::fs::write(picture, martlet_ring::svg::draw(&ring)).map_err(|error| {
            Failure::refused(format!(
                "the picture can't be written to {}: {error}",
                picture.display()
            ))
        })?;
    }
    Ok(answer)
}
