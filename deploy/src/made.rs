//! Traces of a cluster that was made before. What is lost of such a cluster is restored from a copy,
//! and never made again: keys that were replaced would lock its machines out of their data.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use martlet_serving::Failure;

use crate::files::read_text;
use crate::names::{AUTHORITY, CLUSTER_DIR, FIRST, SETTINGS};
use crate::spec::{ClusterSpec, NodeRole, NodeSpec};

/// Output folder with the traces of a cluster that was made before.
pub(crate) struct MadeBefore<'a> {
    pub(crate) out: &'a Path,
    /// Folders of machines, also of those that the file no longer names.
    machines: Vec<PathBuf>,
    is_made: bool,
}

impl<'a> MadeBefore<'a> {
    /// Looks for a ring in the output folder. Keys are written before builders, and builders before
    /// rings: so an apply that was cut off before its builders leaves no trace.
    pub(crate) fn find(spec: &ClusterSpec, out: &'a Path) -> Self {
        let named = spec.nodes.iter().map(|node| out.join(node.name()));
        let machines: Vec<PathBuf> = named.chain(left_over(spec, out)).collect();
        let own = out.join(CLUSTER_DIR);
        let is_made = own.join("index.builder").exists()
            || machines.iter().chain([&own]).any(|folder| folder.join("index.ring").exists());
        Self { out, machines, is_made }
    }

    /// Refuses to make a key of the folder anew if the cluster may have another.
    pub(crate) fn check_new(&self, name: &str) -> Result<(), Failure> {
        let is_new = if name == FIRST { !self.machines_have(FIRST) } else { !self.is_made };
        if is_new { Ok(()) } else { Err(self.missing(name)) }
    }

    /// Refuses to make an authority if machines may have certificates of another. A cluster without
    /// TLS that turns it on gets one.
    pub(crate) fn check_new_authority(&self, name: &str) -> Result<(), Failure> {
        let had_one =
            self.out.join(CLUSTER_DIR).join(AUTHORITY).exists() || self.machines_have(AUTHORITY);
        if !self.is_made || !had_one {
            return Ok(());
        }
        Err(Failure::refused(format!(
            "{} is missing: restore it from a copy; no machine has the key of the authority",
            self.out.join(CLUSTER_DIR).join(name).display()
        )))
    }

    /// Path of a ring file of the cluster, in the folder of builders or of a machine.
    pub(crate) fn ring(&self, name: &str) -> Option<PathBuf> {
        let own = self.out.join(CLUSTER_DIR);
        let folders = [&own].into_iter().chain(&self.machines);
        folders.map(|folder| folder.join(format!("{name}.ring"))).find(|path| path.exists())
    }

    /// Machine that makes the first tenant: the one that had this task before, or the first proxy of
    /// the file in a cluster that has no first tenant yet. A machine that gets the task later would
    /// make keys and buckets again that were deleted.
    pub(crate) fn maker_of_first<'b>(&self, spec: &'b ClusterSpec) -> Option<&'b NodeSpec> {
        spec.first.as_ref()?;
        let mut proxies = spec.nodes.iter().filter(|node| node.has(NodeRole::Proxy));
        let had_it = |folder: &Path| {
            let settings = read_text(&folder.join(SETTINGS)).ok().flatten().unwrap_or_default();
            folder.join(FIRST).exists() || settings.contains("first_key_file")
        };
        if self.machines.iter().any(|folder| had_it(folder)) {
            return proxies.find(|node| had_it(&self.out.join(node.name())));
        }
        let is_assigned = self.is_made && self.out.join(CLUSTER_DIR).join(FIRST).exists();
        if is_assigned { None } else { proxies.next() }
    }

    fn machines_have(&self, name: &str) -> bool {
        self.machines.iter().any(|folder| folder.join(name).exists())
    }

    fn missing(&self, name: &str) -> Failure {
        Failure::refused(format!(
            "{} is missing: restore it from a copy, or from a machine's /etc/martlet",
            self.out.join(CLUSTER_DIR).join(name).display()
        ))
    }
}

/// Folders of machines in the output folder that the file no longer names.
pub(crate) fn left_over(spec: &ClusterSpec, out: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(out) else { return Vec::new() };
    let known: BTreeSet<&str> = spec.nodes.iter().map(NodeSpec::name).collect();
    let mut left: Vec<PathBuf> = entries
        .flatten()
        .filter(|entry| entry.file_name().to_str().is_some_and(|name| !known.contains(name)))
        .map(|entry| entry.path())
        .filter(|path| path.join(SETTINGS).exists())
        .collect();
    left.sort();
    left
}
