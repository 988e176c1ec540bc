//! Fragments out of others: what a degraded read and a repair both do.
//!
//! A [`Recovery`] says once which fragments to read and how to add them up; then it works on any
//! columns, a few at a time. Columns are independent of each other: a reader takes just those under
//! its range, a repair goes through a fragment in blocks and keeps k+w blocks in memory, w being the
//! fragments that it makes.
//!
//! Data fragments that have no byte in the columns asked for are zeros and need no reading. So an
//! extent shorter than F is recovered from any one of its fragments, whatever k.

use std::ops::Range;

use martlet_protocol::{Error, Result};

use crate::code::{FragmentIndex, Fragments};
use crate::codec::{Codec, STRIDE_BYTES, check_bytes, combine};
use crate::encode::size;
use crate::geometry::{Geometry, Piece};

/// How to make some fragments of one extent out of others.
#[derive(Clone, Debug)]
pub struct Recovery {
    geometry: Geometry,
    columns: Range<u64>,
    wanted: Vec<Wanted>,
    sources: Vec<FragmentIndex>,
}

#[derive(Clone, Debug)]
struct Wanted {
    fragment: FragmentIndex,
    /// One for each source; none where the fragment has no byte in the columns.
    coefficients: Vec<u8>,
}

impl Recovery {
    /// Makes `wanted` over `columns` out of the first of `usable` that are enough; what is best
    /// read comes first there. Wanted fragments aren't read, even if they are usable.
    pub fn new(
        codec: &Codec,
        geometry: &Geometry,
        columns: Range<u64>,
        wanted: Fragments,
        usable: &[FragmentIndex],
    ) -> Result<Self> {
        codec.check_geometry(geometry)?;
        geometry.check_columns(&columns)?;
        let code = codec.code();
        for fragment in wanted.iter().chain(usable.iter().copied()) {
            code.check(fragment)?;
        }
        let empty = |fragment: FragmentIndex| geometry.stored_bytes(fragment) <= columns.start;
        let zeros: Fragments = code.data().filter(|fragment| empty(*fragment)).collect();
        let sources = choose(codec, usable, wanted, zeros)?;
        let made = wanted.without(zeros);
        let mut rows = if made.is_empty() {
            Vec::new()
        } else {
            let all: Vec<_> = sources.iter().copied().chain(zeros.iter()).collect();
            codec.rows(&all[..usize::from(code.k())], made)
        }
        .into_iter();
        let row = |fragment| if made.contains(fragment) { rows.next() } else { None };
        let wanted = with_rows(wanted, sources.len(), row);
        Ok(Self { geometry: *geometry, columns, wanted, sources })
    }

    /// The columns that it was made for.
    pub fn columns(&self) -> Range<u64> {
        self.columns.clone()
    }

    /// What it makes, in the order of [`recover`](Self::recover).
    pub fn wanted(&self) -> impl Iterator<Item = FragmentIndex> {
        self.wanted.iter().map(|wanted| wanted.fragment)
    }

    /// What to read for `columns`, in the order that [`recover`](Self::recover) takes it. A piece is
    /// empty where its fragment ends before these columns: nothing is to be asked for it.
    pub fn reads(&self, columns: &Range<u64>) -> Vec<Piece> {
        let piece = |fragment: &FragmentIndex| Piece {
            fragment: *fragment,
            columns: self.geometry.clip(*fragment, columns),
        };
        self.sources.iter().map(piece).collect()
    }

    /// Its columns in blocks, each up to the next multiple of `block_bytes`.
    pub fn steps(&self, block_bytes: u64) -> impl Iterator<Item = Range<u64>> + use<> {
        let Range { start: mut at, end } = self.columns;
        let block_bytes = block_bytes.max(1);
        std::iter::from_fn(move || {
            let from = at;
            at = (from / block_bytes + 1).saturating_mul(block_bytes).min(end);
            (from < end).then_some(from..at)
        })
    }

    /// Makes the wanted fragments over `columns` out of what [`reads`](Self::reads) named. `made` has
    /// a buffer for each wanted fragment; they are overwritten, and may be used again and again.
    pub fn recover(
        &self,
        columns: &Range<u64>,
        read: &[impl AsRef<[u8]>],
        made: &mut [Vec<u8>],
    ) -> Result<()> {
        self.check(columns, read, made)?;
        for (wanted, made) in self.wanted.iter().zip(made.iter_mut()) {
            let columns = self.geometry.clip(wanted.fragment, columns);
            made.resize(size(columns.end - columns.start), 0);
        }
        let columns = size(columns.end - columns.start);
        for from in (0..columns).step_by(STRIDE_BYTES) {
            for (position, input) in read.iter().enumerate() {
                let input = within(input.as_ref().len(), from);
                self.add(position, &read[position].as_ref()[input], from, made);
            }
        }
        Ok(())
    }

    fn add(&self, position: usize, input: &[u8], from: usize, made: &mut [Vec<u8>]) {
        for (wanted, made) in self.wanted.iter().zip(made) {
            let Some(coefficient) = wanted.coefficients.get(position) else { continue };
            let sum = within(made.len(), from);
            let sum = &mut made[sum];
            let input = &input[..input.len().min(sum.len())];
            combine(*coefficient, input, sum, position == 0);
        }
    }

    fn check(
        &self,
        columns: &Range<u64>,
        read: &[impl AsRef<[u8]>],
        made: &[Vec<u8>],
    ) -> Result<()> {
        let inside = self.columns.start <= columns.start && columns.end <= self.columns.end;
        if !inside || columns.start > columns.end {
            return Err(Error::invalid(format!(
                "columns {}..{} of a recovery of {}..{}",
                columns.start, columns.end, self.columns.start, self.columns.end
            )));
        }
        if read.len() != self.sources.len() || made.len() != self.wanted.len() {
            return Err(Error::invalid(format!(
                "a recovery of {} out of {} got {} and {}",
                self.wanted.len(),
                self.sources.len(),
                made.len(),
                read.len()
            )));
        }
        for (piece, bytes) in self.reads(columns).iter().zip(read) {
            check_bytes(piece.fragment, bytes.as_ref(), &piece.columns)?;
        }
        Ok(())
    }
}

/// The first of `usable` that give `wanted` together with `zeros`, which everyone has.
fn choose(
    codec: &Codec,
    usable: &[FragmentIndex],
    wanted: Fragments,
    zeros: Fragments,
) -> Result<Vec<FragmentIndex>> {
    let needed = usize::from(codec.code().k()) - zeros.len();
    let mut sources = Vec::with_capacity(needed);
    for fragment in usable {
        let known = zeros.contains(*fragment) || sources.contains(fragment);
        if !known && !wanted.contains(*fragment) && sources.len() < needed {
            sources.push(*fragment);
        }
    }
    if sources.len() < needed && !wanted.without(zeros).is_empty() {
        return Err(Error::unavailable(format!(
            "{} fragments are left of the {needed} that it takes",
            sources.len()
        )));
    }
    Ok(sources)
}

fn with_rows(
    wanted: Fragments,
    sources: usize,
    mut row: impl FnMut(FragmentIndex) -> Option<Vec<u8>>,
) -> Vec<Wanted> {
    let with_row = |fragment| {
        let mut coefficients = row(fragment).unwrap_or_default();
        coefficients.truncate(sources);
        Wanted { fragment, coefficients }
    };
    wanted.iter().map(with_row).collect()
}

/// The stride that begins at `from`, as far as `length` reaches.
fn within(length: usize, from: usize) -> Range<usize> {
    from.min(length)..(from + STRIDE_BYTES).min(length)
}
