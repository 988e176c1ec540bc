//! Fuzz targets: the check of one input, its seeds, and the replay of kept inputs by unit tests.
//!
//! A crate describes its targets in a module `fuzzing`. The programs in `fuzz/` run them on inputs
//! that libFuzzer makes, and `fuzz/corpus` keeps the inputs that reached new code.

use std::fs;
use std::path::{Path, PathBuf};

/// A fuzz target.
#[derive(Clone, Copy, Debug)]
pub struct FuzzTarget {
    /// Name of the target, and of its folder in `fuzz/corpus`.
    pub name: &'static str,
    /// Checks one input, and returns true if the code under test accepts the input. Panics if a
    /// property doesn't hold.
    pub check: fn(&[u8]) -> bool,
    /// Returns inputs that are accepted, made by the encoders of the code under test.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Maximum heap that one check may take, in bytes, for any input of up to
    /// [`FuzzTarget::INPUT_BYTES_MAX`].
    pub heap_bytes_max: usize,
}

/// Number of inputs that a replay has run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// Seeds, all of which were accepted.
    pub seeds: usize,
    /// Kept inputs.
    pub kept: usize,
    /// Kept inputs that were accepted.
    pub accepted: usize,
}

impl FuzzTarget {
    /// Maximum length of an input in bytes.
    pub const INPUT_BYTES_MAX: usize = 64 * 1024;

    /// Returns the folder of the kept inputs.
    pub fn corpus(&self) -> PathBuf {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
        root.expect("a crate is a folder of the repository").join("fuzz/corpus").join(self.name)
    }

    /// Checks all seeds and all kept inputs.
    ///
    /// # Panics
    /// If a property doesn't hold, if a seed isn't accepted, or if no input is kept.
    pub fn replay(&self) -> Replayed {
        let seeds = (self.seeds)();
        for (at, seed) in seeds.iter().enumerate() {
            assert!(seed.len() <= Self::INPUT_BYTES_MAX, "{}: seed {at} is too long", self.name);
            assert!((self.check)(seed), "{}: seed {at} is refused", self.name);
        }
        let (mut kept, mut accepted) = (0, 0);
        for path in self.kept() {
            let input = fs::read(&path).expect("a kept input can be read");
            // The name of the input comes before its panic.
            println!("{}", path.display());
            kept += 1;
            accepted += usize::from((self.check)(&input));
        }
        assert!(kept > 0, "{}: no input is kept in {}", self.name, self.corpus().display());
        let replayed = Replayed { seeds: seeds.len(), kept, accepted };
        println!("{}: {replayed:?}", self.name);
        replayed
    }

    /// Returns the paths of the kept inputs, sorted.
    fn kept(&self) -> Vec<PathBuf> {
        let Ok(folder) = fs::read_dir(self.corpus()) else { return Vec::new() };
        let mut paths: Vec<PathBuf> = folder.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        paths
    }
}

/// Values at the front of an input. Missing bytes count as zeros.
#[derive(Clone, Debug)]
pub struct InputReader<'a> {
    rest: &'a [u8],
}

impl<'a> InputReader<'a> {
    /// Reads an input from its first byte on.
    pub fn new(input: &'a [u8]) -> Self {
        Self { rest: input }
    }

    /// Takes a byte.
    pub fn byte(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or_default()
    }

    /// Takes a number of two bytes, little-endian.
    pub fn number(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    /// Takes up to `length` bytes.
    pub fn bytes(&mut self, length: usize) -> &'a [u8] {
        let (bytes, rest) = self.rest.split_at(length.min(self.rest.len()));
        self.rest = rest;
        bytes
    }

    /// Takes a length of one byte, and as many bytes.
    pub fn block(&mut self) -> &'a [u8] {
        let length = usize::from(self.byte());
        self.bytes(length)
    }

    /// Takes a block as a text. Bytes that are no UTF-8 are replaced.
    pub fn text(&mut self) -> String {
        String::from_utf8_lossy(self.block()).into_owned()
    }

    /// Takes all remaining bytes.
    pub fn rest(self) -> &'a [u8] {
        self.rest
    }

    /// Returns true if no byte is left.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }
}

/// Cuts bytes into pieces. Each byte of `cuts` is a length less one; the lengths repeat. Without
/// cuts the bytes are one piece.
pub fn pieces<'a>(bytes: &'a [u8], cuts: &[u8]) -> Vec<&'a [u8]> {
    if cuts.is_empty() {
        return vec![bytes];
    }
    let (mut found, mut rest) = (Vec::new(), bytes);
    for cut in cuts.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (piece, left) = rest.split_at((usize::from(*cut) + 1).min(rest.len()));
        found.push(piece);
        rest = left;
    }
    found
}

/// Returns a block of a seed: its length in one byte, then its bytes.
///
/// # Panics
/// If the block has more than 255 bytes.
pub fn block(bytes: &[u8]) -> Vec<u8> {
    let length = u8::try_from(bytes.len()).expect("blocks of seeds are short");
    [&[length], bytes].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_the_bytes_again() {
        let bytes: Vec<u8> = (0..=255).collect();
        for cuts in [&[][..], &[0], &[2, 0, 9], &[255]] {
            let found = pieces(&bytes, cuts);
            assert_eq!(found.concat(), bytes, "{cuts:?}");
        }
        assert_eq!(pieces(&bytes[..7], &[1, 2]).iter().map(|it| it.len()).max(), Some(3));
        assert!(pieces(b"", &[3]).is_empty());
    }

    #[test]
    fn missing_bytes_are_zeros() {
        let input = [block(b"ab"), vec![7]].concat();
        let mut reader = InputReader::new(&input);
        assert_eq!(reader.text(), "ab");
        assert_eq!((reader.number(), reader.byte()), (7, 0));
        assert!(reader.is_empty() && reader.block().is_empty() && reader.rest().is_empty());
    }

    #[test]
    #[should_panic(expected = "seed 1 is refused")]
    fn a_seed_that_is_refused_fails_the_replay() {
        let check = |input: &[u8]| input != b"no";
        let seeds = || vec![b"yes".to_vec(), b"no".to_vec()];
        FuzzTarget { name: "none", check, seeds, heap_bytes_max: 0 }.replay();
    }

    #[test]
    #[should_panic(expected = "no input is kept")]
    fn a_target_without_kept_inputs_fails_the_replay() {
        FuzzTarget { name: "none", check: |_| true, seeds: Vec::new, heap_bytes_max: 0 }.replay();
    }
}
