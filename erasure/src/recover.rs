//! Recovery of fragments from others, for degraded reads and repairs.
//!
//! A [`Recovery`] determines once the fragments to read and their coefficients; then it processes
//! any columns, a few at a time. Columns are independent: a degraded read processes only the
//! columns of its range. A repair processes a fragment in blocks, and keeps k+w blocks in memory, w
//! being the number of recovered fragments.
//!
//! Data fragments without bytes in the requested columns are zeros and aren't read. So an extent
//! shorter than F is recovered from any one of its fragments, whatever k.

use std::ops::Range;

use martlet_protocol::{Error, Result};

use crate::code::{FragmentIndex, Fragments};
use crate::codec::{Codec, STRIDE_BYTES, check_bytes, combine};
use crate::encode::size;
use crate::geometry::{FragmentColumns, Geometry};

/// Recovery of some fragments of one extent from others.
#[derive(Clone, Debug)]
pub struct Recovery {
    geometry: Geometry,
    columns: Range<u64>,
    wanted: Vec<LostFragment>,
    sources: Vec<FragmentIndex>,
}

#[derive(Clone, Debug)]
struct LostFragment {
    fragment: FragmentIndex,
    /// Coefficient of each source; empty if the fragment has no byte in the columns.
    coefficients: Vec<u8>,
}

impl Recovery {
    /// Prepares to recover `wanted` over `columns` from the first sufficient fragments of `usable`,
    /// in order of preference. Wanted fragments are never read.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`](martlet_protocol::ErrorKind::Unavailable) if `usable` has too few
    /// fragments.
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

    /// Columns of the recovery.
    pub fn columns(&self) -> Range<u64> {
        self.columns.clone()
    }

    /// Recovered fragments, in the order of [`recover`](Self::recover).
    pub fn wanted(&self) -> impl Iterator<Item = FragmentIndex> {
        self.wanted.iter().map(|wanted| wanted.fragment)
    }

    /// Returns the pieces to read for `columns`, in the order of [`recover`](Self::recover). A
    /// piece is empty if its fragment ends before these columns; it needs no read.
    pub fn reads(&self, columns: &Range<u64>) -> Vec<FragmentColumns> {
        let piece = |fragment: &FragmentIndex| FragmentColumns {
            fragment: *fragment,
            columns: self.geometry.clip(*fragment, columns),
        };
        self.sources.iter().map(piece).collect()
    }

    /// Columns of the recovery in blocks, each up to the next multiple of `block_bytes`.
    pub fn steps(&self, block_bytes: u64) -> impl Iterator<Item = Range<u64>> + use<> {
        let Range { start: mut at, end } = self.columns;
        let block_bytes = block_bytes.max(1);
        std::iter::from_fn(move || {
            let from = at;
            at = (from / block_bytes + 1).saturating_mul(block_bytes).min(end);
            (from < end).then_some(from..at)
        })
    }

    /// Recovers the wanted fragments over `columns` from the pieces of [`reads`](Self::reads).
    /// `made` has a buffer for each wanted fragment; the buffers are overwritten, and can be
    /// reused.
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

/// Returns the first of `usable` that determine `wanted` together with `zeros`.
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
            "only {} of the {needed} fragments needed are left",
            sources.len()
        )));
    }
    Ok(sources)
}

fn with_rows(
    wanted: Fragments,
    sources: usize,
    mut row: impl FnMut(FragmentIndex) -> Option<Vec<u8>>,
) -> Vec<LostFragment> {
    let with_row = |fragment| {
        let mut coefficients = row(fragment).unwrap_or_default();
        coefficients.truncate(sources);
        LostFragment { fragment, coefficients }
    };
    wanted.iter().map(with_row).collect()
}

/// Range of the stride at `from`, within `length`.
fn within(length: usize, from: usize) -> Range<usize> {
    from.min(length)..(from + STRIDE_BYTES).min(length)
}
