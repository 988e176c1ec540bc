//! Start of a cluster process: it binds its life to its parent's, then executes its role.
//!
//! `up` starts `martlet cluster child --parent PID -- storage-node --config …`. The parent-death
//! signal and the process id survive `exec`. The kernel ties the signal to the thread that started
//! the process, so `up` starts all processes from its main thread.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use martlet_serving::Failure;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

/// Path of the running program: its file, or `/proc/self/exe` if that file was removed.
pub(super) fn this_program() -> PathBuf {
    match std::env::current_exe() {
        Ok(path) if path.is_file() => path,
        _ => PathBuf::from("/proc/self/exe"),
    }
}

/// Executes `martlet` with these arguments. The kernel kills this process when its parent dies.
/// Returns only on failure.
pub(super) fn become_role(parent: u32, arguments: &[String]) -> Result<(), Failure> {
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|error| {
        Failure::refused(format!("the parent-death signal can't be set: {error}"))
    })?;
    // The parent may have exited before the signal was set.
    let now = getppid().map(|pid| pid.as_raw_nonzero().get().unsigned_abs());
    if now != Some(parent) {
        return Err(Failure::refused("the `martlet cluster up` that started this process is gone"));
    }
    let error = Command::new(this_program()).arg0("martlet").args(arguments).exec();
    Err(Failure::refused(format!("the role can't be started: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_of_another_parent_does_not_start() {
        // This process may now be bound to its parent; the test runner outlives it.
        let refusal = become_role(u32::MAX, &["--version".to_owned()]).unwrap_err();
        assert!(refusal.to_string().contains("is gone"), "{refusal}");
        set_parent_process_death_signal(None).unwrap();
    }

    #[test]
    fn the_program_is_a_file_that_can_be_started() {
        assert!(this_program().exists());
    }
}
