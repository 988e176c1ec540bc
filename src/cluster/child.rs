//! How a process of the cluster begins: it asks the kernel to be killed when its parent is gone, then
//! becomes the role that it is to play.
//!
//! `up` starts `martlet cluster child --parent PID -- storage-node --config …`; the wish survives
//! becoming another program, and the process id stays. It is bound to the thread that started the
//! process, so `up` starts all of them from its main thread.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use crate::failure::Failure;

/// The program that runs: the file it was started from, or what is left of it in memory where that
/// file was removed.
pub(super) fn this_program() -> PathBuf {
    match std::env::current_exe() {
        Ok(path) if path.is_file() => path,
        _ => PathBuf::from("/proc/self/exe"),
    }
}

/// Becomes `martlet` with these arguments, for as long as the parent lives. Returns only to say why
/// it could not.
pub(super) fn become_role(parent: u32, arguments: &[String]) -> Result<(), Failure> {
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|error| {
        Failure::refused(format!("the kernel won't bind this process to its parent: {error}"))
    })?;
    // The parent may have gone before the wish was heard.
    let now = getppid().map(|pid| pid.as_raw_nonzero().get().unsigned_abs());
    if now != Some(parent) {
        return Err(Failure::refused("the cluster that started this process is gone"));
    }
    let error = Command::new(this_program()).arg0("martlet").args(arguments).exec();
    Err(Failure::refused(format!("the role can't be started: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_of_somebody_else_does_not_begin() {
        // This process may be bound to its parent: whoever runs the tests outlives it.
        let refusal = become_role(u32::MAX, &["--version".to_owned()]).unwrap_err();
        assert!(refusal.to_string().contains("is gone"), "{refusal}");
        set_parent_process_death_signal(None).unwrap();
    }

    #[test]
    fn the_program_is_a_file_that_can_be_started() {
        assert!(this_program().exists());
    }
}
