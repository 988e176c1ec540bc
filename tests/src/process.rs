//! What the kernel knows of a process.

use std::fs;

/// Resident memory now, in bytes.
pub fn resident_bytes(pid: u32) -> u64 {
    status_kib(pid, "VmRSS:") * 1024
}

/// Resident memory at its highest so far, or since [`forget_peak`], in bytes.
pub fn peak_bytes(pid: u32) -> u64 {
    status_kib(pid, "VmHWM:") * 1024
}

/// Lets the highest resident memory be counted from now on.
pub fn forget_peak(pid: u32) {
    fs::write(format!("/proc/{pid}/clear_refs"), "5").unwrap();
}

/// How many file descriptors it has open.
pub fn descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
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
        assert!(descriptors(pid) >= 3);
    }
}
