//! Places of addresses in the files that a process has mapped, for functions without a name.
//!
//! Names are read from the file of the program at its path. After an upgrade the path has another file,
//! and the process still runs the earlier one: its functions have no names until it starts again.

use std::fs;
use std::path::Path;

/// Mark of a removed file in `/proc`.
const DELETED: &str = " (deleted)";

/// Mapped files, from `/proc/self/maps` (see `proc_pid_maps(5)`).
#[derive(Debug, Default, PartialEq)]
pub(super) struct ProgramFiles {
    mappings: Vec<Mapping>,
    is_replaced: bool,
}

/// Part of a mapped file.
#[derive(Debug, PartialEq)]
struct Mapping {
    start: usize,
    end: usize,
    /// Address of the file's first byte.
    base: usize,
    file: String,
}

impl ProgramFiles {
    /// Reads the mappings of this process. None are known where they can't be read.
    pub(super) fn read() -> Self {
        let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
        Self::of(&maps, &fs::read_link("/proc/self/exe").unwrap_or_default())
    }

    /// Parses mappings. `program` is the link of the process to its program.
    fn of(maps: &str, program: &Path) -> Self {
        let mut mappings: Vec<Mapping> = Vec::new();
        for mapping in maps.lines().filter_map(Mapping::parse) {
            let first = mappings.iter().find(|it| it.file == mapping.file);
            let base = first.map_or(mapping.base, |first| first.base);
            mappings.push(Mapping { base, ..mapping });
        }
        let is_replaced = program.to_string_lossy().ends_with(DELETED);
        Self { mappings, is_replaced }
    }

    /// Returns an address as the name of its file and the offset from the file's first byte, as
    /// `addr2line` takes it. An address in no file stays as it is.
    pub(super) fn place(&self, address: usize) -> String {
        let of = |it: &&Mapping| (it.start..it.end).contains(&address);
        match self.mappings.iter().find(of) {
            Some(Mapping { base, file, .. }) => format!("{file}+{:#x}", address - base),
            None => format!("{address:#x}"),
        }
    }

    /// Returns a remark if the file of the program was replaced.
    pub(super) fn remark(&self) -> Option<&'static str> {
        self.is_replaced.then_some(
            "the file of the program was replaced or removed since the process began: functions without a \
             name are offsets in the earlier file",
        )
    }
}

impl Mapping {
    /// Parses `START-END PERMISSIONS OFFSET DEVICE INODE PATH`; none for memory without a file.
    fn parse(line: &str) -> Option<Self> {
        let (place, path) = line.split_at_checked(line.find('/')?)?;
        let mut fields = place.split_ascii_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let offset = fields.nth(1)?;
        let [start, end, offset] =
            [start, end, offset].map(|digits| usize::from_str_radix(digits, 16));
        let (start, end, offset) = (start.ok()?, end.ok()?, offset.ok()?);
        let path = path.strip_suffix(DELETED).unwrap_or(path);
        let file = path.rsplit('/').next().unwrap_or(path).to_owned();
        Some(Self { start, end, base: start.checked_sub(offset)?, file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
55d0a0000000-55d0a0100000 r--p 00000000 fe:00 1234    /usr/bin/martlet (deleted)
55d0a0100000-55d0a0900000 r-xp 000ff000 fe:00 1234    /usr/bin/martlet (deleted)
55d0a1000000-55d0a1100000 rw-p 00000000 00:00 0       [heap]
7f0000000000-7f0000200000 r-xp 00002000 fe:00 99      /lib/x86 64/libc.so.6
nonsense /x
";

    #[test]
    fn an_address_is_an_offset_in_its_file() {
        let files = ProgramFiles::of(MAPS, Path::new("/usr/bin/martlet"));
        for (address, place) in [
            (0x55d0_a010_0010, "martlet+0x100010"),
            (0x55d0_a000_0000, "martlet+0x0"),
            (0x7f00_0000_0010, "libc.so.6+0x2010"),
            (0x55d0_a100_0010, "0x55d0a1000010"),
            (0x7f00_0020_0000, "0x7f0000200000"),
        ] {
            assert_eq!(files.place(address), place);
        }
        assert_eq!(files.remark(), None);
    }

    #[test]
    fn a_replaced_program_has_a_remark() {
        let files = ProgramFiles::of(MAPS, Path::new("/usr/bin/martlet (deleted)"));
        assert!(files.remark().unwrap().contains("was replaced"));
    }

    #[test]
    fn functions_of_this_program_are_in_its_file() {
        let files = ProgramFiles::read();
        let mut address = 0;
        backtrace::trace(|frame| {
            address = frame.ip().addr();
            false
        });
        let place = files.place(address);
        let own = std::env::current_exe().unwrap();
        let own = own.file_name().unwrap().to_string_lossy().into_owned();
        assert!(place.starts_with(&format!("{own}+0x")), "{place}");
        assert_eq!(files.remark(), None);
    }
}
