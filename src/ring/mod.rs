//! `martlet ring`: looks after the builder of a ring, and tells before it does what it will cost.
//!
//! Nothing here decides where data goes; [`martlet_ring`] does. A command opens the builder file
//! ([`session`]), changes it ([`edit`]), makes a ring of it ([`rebalance`]) or looks at it
//! ([`look`]), and answers in a sentence or as JSON.

mod args;
mod edit;
mod locate;
mod look;
mod plan;
mod rebalance;
mod select;
mod session;
#[cfg(test)]
mod tests;
mod text;
mod tree;

use martlet_protocol::{Clock, SystemClock};

use self::args::Command;
pub(crate) use self::args::RingArgs;
use self::session::{Answer, Session};
use crate::failure::Failure;

impl From<martlet_ring::Error> for Failure {
    fn from(error: martlet_ring::Error) -> Self {
        Self::refused(error.to_string())
    }
}

/// Does what was asked, and prints the answer.
pub(crate) fn run(args: &RingArgs) -> Result<(), Failure> {
    print!("{}", answer(args, &SystemClock)?);
    Ok(())
}

/// Does what was asked, and gives the answer in the form that was asked for.
fn answer(args: &RingArgs, clock: &dyn Clock) -> Result<String, Failure> {
    let answer = execute(args, clock)?;
    if args.json {
        let json = serde_json::to_string_pretty(&answer.json);
        return Ok(json.expect("plain data can be encoded") + "\n");
    }
    Ok(answer.text)
}

fn execute(args: &RingArgs, clock: &dyn Clock) -> Result<Answer, Failure> {
    if let Command::Diff { old, new } = &args.command {
        return look::diff(old, new);
    }
    let Some(path) = &args.builder else {
        return Err(Failure::usage(
            "name the builder file before the command: martlet ring data.builder show",
        ));
    };
    let mut session = Session { path, args, now_ms: clock.now_ms() };
    let (answer, ring) = session.run(&args.command)?;
    if let Some(picture) = &args.svg {
        let Some(ring) = ring else {
            return Err(Failure::refused(
                "there is no ring to draw yet: add devices, then rebalance",
            ));
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
