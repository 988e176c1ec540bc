//! Memory of the process as the kernel counts it: `/proc/self/status` and `/proc/self/smaps`.
//!
//! The allocator's own counts need calls of its C functions, which code without `unsafe` can't make.
//! Its memory is the anonymous mappings, beside the stacks of threads.

use std::collections::BTreeMap;
use std::fs;
use std::io;

use martlet_admin_api::profile::{MappingLine, MemoryProfile};

/// Most kinds of mappings in a profile; the smallest ones are added up.
const LINES_MAX: usize = 32;
/// Kind of the mappings beyond.
const OTHERS: &str = "others";

/// Reads the memory of this process.
pub(super) fn read() -> io::Result<MemoryProfile> {
    let status = fs::read_to_string("/proc/self/status")?;
    let mappings = fs::read_to_string("/proc/self/smaps")?;
    let bytes = |name: &str| bytes_of(&status, name).unwrap_or_default();
    Ok(MemoryProfile {
        resident_bytes: bytes("VmRSS"),
        resident_bytes_max: bytes("VmHWM"),
        anonymous_bytes: bytes("RssAnon"),
        file_bytes: bytes("RssFile"),
        swapped_bytes: bytes("VmSwap"),
        virtual_bytes: bytes("VmSize"),
        threads: field(&status, "Threads").and_then(|text| text.parse().ok()).unwrap_or_default(),
        allocator: "mimalloc".to_owned(),
        mappings: lines(&mappings),
    })
}

/// Returns the text of a field, `NAME: TEXT`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim()))
}

fn bytes_of(text: &str, name: &str) -> Option<u64> {
    kilobytes(field(text, name)?)
}

fn kilobytes(text: &str) -> Option<u64> {
    text.strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Adds up the mappings of `/proc/self/smaps` by their kinds, the largest resident ones first.
fn lines(smaps: &str) -> Vec<MappingLine> {
    let mut kinds: BTreeMap<String, MappingLine> = BTreeMap::new();
    let mut current: Option<String> = None;
    for line in smaps.lines() {
        let (first, rest) = line.split_once(' ').unwrap_or((line, ""));
        if let Some(name) = first.strip_suffix(':') {
            let sum = current.as_ref().and_then(|kind| kinds.get_mut(kind));
            let (Some(sum), Some(bytes)) = (sum, kilobytes(rest.trim())) else { continue };
            match name {
                "Size" => sum.virtual_bytes += bytes,
                "Rss" => sum.resident_bytes += bytes,
                "Swap" => sum.swapped_bytes += bytes,
                "AnonHugePages" => sum.huge_bytes += bytes,
                _ => {}
            }
        } else if first.contains('-') {
            let kind = kind_of(rest);
            let new = || MappingLine { kind: kind.clone(), ..MappingLine::default() };
            kinds.entry(kind.clone()).or_insert_with(new).count += 1;
            current = Some(kind);
        }
    }
    let mut lines: Vec<MappingLine> = kinds.into_values().collect();
    lines.sort_by(|a, b| b.resident_bytes.cmp(&a.resident_bytes).then(a.kind.cmp(&b.kind)));
    if lines.len() > LINES_MAX {
        let rest = lines.split_off(LINES_MAX - 1);
        lines.push(others(&rest));
    }
    lines
}

/// Returns the kind of a mapping by the fields behind its addresses: `anonymous`, a name of the
/// kernel without its brackets, or the folder and end of a file's path.
fn kind_of(fields: &str) -> String {
    // Permissions, offset, device, inode; then a name that may have spaces.
    let mut rest = fields;
    for _ in 0..4 {
        let trimmed = rest.trim_start();
        rest = trimmed.split_once(' ').map_or("", |(_, rest)| rest);
    }
    let name = rest.trim();
    match name.strip_prefix('[').and_then(|name| name.strip_suffix(']')) {
        _ if name.is_empty() => "anonymous".to_owned(),
        Some(name) => name.split(':').next().unwrap_or(name).to_owned(),
        None => file_kind(name),
    }
}

/// Returns the kind of a mapped file. Files of devices have ids for names, of which there are many.
fn file_kind(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or(path);
    if name.contains(".so") || name == "martlet" {
        return name.to_owned();
    }
    "files".to_owned()
}

fn others(lines: &[MappingLine]) -> MappingLine {
    let sum = |field: fn(&MappingLine) -> u64| lines.iter().map(field).sum();
    MappingLine {
        kind: OTHERS.to_owned(),
        count: sum(|line| line.count),
        virtual_bytes: sum(|line| line.virtual_bytes),
        resident_bytes: sum(|line| line.resident_bytes),
        swapped_bytes: sum(|line| line.swapped_bytes),
        huge_bytes: sum(|line| line.huge_bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
55d0c0000000-55d0c0001000 r-xp 00000000 08:01 12 /usr/bin/martlet
Size:                  4 kB
Rss:                   4 kB
7f0000000000-7f0000100000 rw-p 00000000 00:00 0 \n\
Size:               1024 kB
Rss:                 512 kB
AnonHugePages:       256 kB
Swap:                  8 kB
VmFlags: rd wr mr mw me ac sd
7f1000000000-7f1000100000 rw-p 00000000 00:00 0 \n\
Size:               1024 kB
Rss:                 100 kB
7f2000000000-7f2000001000 r--s 00000000 08:01 99 /data/d1/extents/ab/one two
Size:                  4 kB
Rss:                   0 kB
7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0 [stack]
Size:                132 kB
Rss:                  16 kB
";

    #[test]
    fn mappings_are_added_up_by_their_kinds() {
        let lines = lines(SMAPS);
        let kinds: Vec<_> =
            lines.iter().map(|it| (&*it.kind, it.count, it.resident_bytes)).collect();
        let kib = 1024;
        assert_eq!(
            kinds,
            [
                ("anonymous", 2, 612 * kib),
                ("stack", 1, 16 * kib),
                ("martlet", 1, 4 * kib),
                ("files", 1, 0)
            ]
        );
        assert_eq!((lines[0].huge_bytes, lines[0].swapped_bytes), (256 * kib, 8 * kib));
        assert_eq!(lines[0].virtual_bytes, 2048 * kib);
    }

    #[test]
    fn a_profile_has_few_lines() {
        let mapping = |n| format!("1-2 r--p 0 0:0 {n} /lib/lib{n}.so\nSize: 4 kB\nRss: {n} kB\n");
        let many: Vec<String> = (0..100).map(mapping).collect();
        let lines = lines(&many.concat());
        assert_eq!((lines.len(), &*lines[LINES_MAX - 1].kind), (LINES_MAX, OTHERS));
        let resident: u64 = lines.iter().map(|line| line.resident_bytes).sum();
        assert_eq!(resident, (0..100).sum::<u64>() * 1024);
    }

    #[test]
    fn the_memory_of_this_process_is_read() {
        let profile = read().unwrap();
        assert!(profile.resident_bytes > 1 << 20 && profile.threads >= 1, "{profile:?}");
        assert!(profile.resident_bytes_max >= profile.resident_bytes / 2);
        assert!(profile.mappings.iter().any(|line| line.kind == "anonymous"));
    }
}
