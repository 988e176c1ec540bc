//! Memory, sockets and limits of a process, as the kernel reports them.

use std::fs;

/// Returns the present resident memory in bytes.
pub fn resident_bytes(pid: u32) -> u64 {
    status_kib(pid, "VmRSS:") * 1024
}

/// Returns the peak resident memory in bytes since the start or the last [`forget_peak`].
pub fn peak_bytes(pid: u32) -> u64 {
    status_kib(pid, "VmHWM:") * 1024
}

/// Resets the peak resident memory.
pub fn forget_peak(pid: u32) {
    fs::write(format!("/proc/{pid}/clear_refs"), "5").unwrap();
}

/// Raises the test's own limit of open files to the system's maximum. Panics if it is below
/// `wanted`.
pub fn raise_file_limit(wanted: u64) {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
    assert!(limit.current.is_none_or(|most| most >= wanted), "the limit of open files is too low");
}

/// Returns the number of open sockets.
pub fn sockets(pid: u32) -> usize {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let targets = descriptors.flatten().filter_map(|it| fs::read_link(it.path()).ok());
    targets.filter(|target| target.to_string_lossy().starts_with("socket:")).count()
}

fn status_kib(pid: u32, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_figures_make_sense() {
        let pid = std::process::id();
        assert!(resident_bytes(pid) > 100_000);
        assert!(peak_bytes(pid) >= resident_bytes(pid) / 2);
        let before = sockets(pid);
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(sockets(pid) > before);
        drop(socket);
    }
}
