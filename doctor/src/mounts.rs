//! Mounts of this machine, from `/proc/self/mountinfo`.

use std::path::{Path, PathBuf};

/// A mount.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mount {
    /// Mount point.
    pub(crate) point: PathBuf,
    /// Type of the file system, such as `ext4`.
    pub(crate) kind: String,
    /// Source, such as `/dev/sdb1`.
    pub(crate) source: String,
    /// Options of the mount and of its file system.
    pub(crate) options: Vec<String>,
    /// Device number, as `major:minor`.
    pub(crate) device: String,
}

impl Mount {
    /// Returns true if the mount has one of these options.
    pub(crate) fn has_any(&self, options: &[&str]) -> bool {
        self.options.iter().any(|option| options.contains(&option.as_str()))
    }
}

/// Parses the text of `mountinfo`. Lines that can't be parsed are left out.
pub(crate) fn parse(text: &str) -> Vec<Mount> {
    text.lines().filter_map(mount).collect()
}

/// Parses a line such as `36 35 8:17 / /mnt/d1 rw,noatime shared:1 - ext4 /dev/sdb1 rw,barrier=0`.
fn mount(line: &str) -> Option<Mount> {
    let (mount, file_system) = line.split_once(" - ")?;
    let mut mount = mount.split(' ').skip(2);
    let device = mount.next()?.to_owned();
    let point = unescaped(mount.nth(1)?);
    let mut options: Vec<String> = mount.next()?.split(',').map(str::to_owned).collect();
    let mut file_system = file_system.split(' ');
    let (kind, source) = (file_system.next()?.to_owned(), file_system.next()?.to_owned());
    options.extend(file_system.next().unwrap_or_default().split(',').map(str::to_owned));
    Some(Mount { point: point.into(), kind, source, options, device })
}

/// Replaces octal escapes such as `\040`, which the kernel writes for spaces and the like.
fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let octal = after.get(..3).and_then(|digits| str::from_utf8(digits).ok());
        let code = octal.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        if let Some(code) = code.filter(|_| *first == b'\\') {
            bytes.push(code);
            rest = &after[3..];
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns the mount that a path lies on: of those with the longest mount point, the latest.
pub(crate) fn of_path<'a>(mounts: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    let around = mounts.iter().filter(|mount| path.starts_with(&mount.point));
    around.max_by_key(|mount| mount.point.components().count())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro
36 22 8:17 / /mnt/d1 rw,noatime shared:9 master:2 - ext4 /dev/sdb1 rw,barrier=0
37 22 0:44 / /mnt/my\\040disk rw - tmpfs none rw,size=8192k
38 36 0:45 / /mnt/d1 ro - xfs /dev/sdc1 rw
a line that is no mount
";

    #[test]
    fn lines_become_mounts() {
        let mounts = parse(TEXT);
        assert_eq!(mounts.len(), 4);
        assert_eq!((mounts[1].kind.as_str(), mounts[1].device.as_str()), ("ext4", "8:17"));
        assert!(mounts[1].has_any(&["nobarrier", "barrier=0"]) && !mounts[0].has_any(&["ro"]));
        assert_eq!(mounts[2].point, Path::new("/mnt/my disk"));
        assert_eq!(mounts[2].source, "none");
    }

    #[test]
    fn the_latest_of_the_nearest_mounts_counts() {
        let mounts = parse(TEXT);
        let kind = |path: &str| of_path(&mounts, Path::new(path)).unwrap().kind.clone();
        assert_eq!(kind("/mnt/d1/device"), "xfs");
        assert_eq!(kind("/mnt/d10/device"), "ext4");
        assert_eq!(kind("/mnt/my disk"), "tmpfs");
        assert_eq!(of_path(&mounts, Path::new("relative")), None);
    }
}
