//! `martlet admin cluster`: the format level of a cluster.

use clap::Subcommand;
use martlet_admin_api::{FINALIZE, FinalizeReply};
use martlet_serving::Failure;

use super::client::AdminEndpoint;
use super::print;

/// Subcommands of `martlet admin cluster`.
#[derive(Debug, Subcommand)]
pub(super) enum ClusterCommand {
    /// Let all processes write the newest formats of this release; there is no way back
    #[command(after_help = "\
Run it after an upgrade, once the new release has proved itself. Until then the cluster can return \
to the release before. Each storage node must answer, and each process must run the new release; \
the command names those that don't. See docs/UPGRADES.md.

Example:
  martlet admin --cluster-key-file cluster.key cluster finalize")]
    Finalize,
}

impl ClusterCommand {
    /// Runs the command and prints its answer.
    pub(super) fn run(&self, server: &AdminEndpoint, json: bool) -> Result<(), Failure> {
        match self {
            Self::Finalize => {
                let reply: FinalizeReply = server.post(FINALIZE, &())?;
                print::show(&reply, json, |reply| finalized(*reply));
            }
        }
        Ok(())
    }
}

fn finalized(reply: FinalizeReply) -> String {
    let FinalizeReply { level, before } = reply;
    if level == before {
        return format!("the format level is {level}, the newest of this release: nothing to do\n");
    }
    format!("raised the format level from {before} to {level}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_that_stays_is_no_rise() {
        let stays = finalized(FinalizeReply { level: 2, before: 2 });
        assert!(stays.contains("nothing to do"), "{stays}");
        let rises = finalized(FinalizeReply { level: 3, before: 2 });
        assert!(rises.contains("from 2 to 3"), "{rises}");
    }
}
