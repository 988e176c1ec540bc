//! File extents: raw bytes from offset 0, then a footer.

use std::path::{Path, PathBuf};

use martlet_protocol::ExtentId;
use martlet_protocol::Result;
use martlet_protocol::limits::ALIGN_BYTES;

use crate::disk::DiskFile;

use super::buffer::{ALIGN, AlignedBuffer};
use super::seal::{Description, SECTOR, Seal, SealLocation, SectorState, small};

/// Maximum length of a footer: checksums of 1,024 blocks, an owner with the longest key, and the
/// head.
const FOOTER_BYTES_MAX: usize = 4 * ALIGN;

/// Result of reading the end of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Footer {
    /// The write never ended.
    Unfinished,
    /// A valid head without its body: torn write or bit rot.
    Torn,
    /// Contradictory.
    Rotten,
    /// The extent's description; its bytes are not verified.
    Good(Description),
}

/// Path of an extent's file: `extents/<first byte of the id>/<id>`, in hexadecimal.
pub(super) fn path(root: &Path, id: ExtentId) -> PathBuf {
    root.join("extents").join(name(id))
}

/// Path of an extent's file within the folder of all file extents.
pub(super) fn name(id: ExtentId) -> PathBuf {
    let name = id.to_string();
    Path::new(&name[..2]).join(&name)
}

/// Encodes a file's footer, a multiple of 4 KiB, which ends the file:
///
/// ```text
/// 0           body (see [`SealSector`](super::seal::SealSector)), zeros
/// end - 512   head
/// ```
///
/// The file's length is the extent's length, rounded up to 4 KiB, plus the footer's length. The
/// file has its maximum length before its first byte is written. So a file whose last sector is
/// zero was never finished.
pub(super) fn encode(description: &Description) -> Vec<u8> {
    let (mut head, body) = description.encode();
    let mut footer = body;
    let length = (footer.len() + SECTOR).next_multiple_of(ALIGN);
    footer.resize(length, 0);
    let (body, sector) = footer.split_at_mut(length - SECTOR);
    head.body_bytes = small(body.len());
    Seal::file().write(sector, head, body);
    footer
}

/// Reads the end of a file.
pub(super) fn inspect(file: &dyn DiskFile) -> Result<Footer> {
    let length = file.length()?;
    if length < 2 * ALIGN_BYTES || !length.is_multiple_of(ALIGN_BYTES) {
        return Ok(Footer::Unfinished);
    }
    let bytes = FOOTER_BYTES_MAX.min(usize::try_from(length).unwrap_or(usize::MAX));
    // Aligned, for files read with direct I/O.
    let mut end = AlignedBuffer::new(bytes);
    file.read_at(end.all_mut(), length - bytes as u64)?;
    let end = end.all();
    let (before, sector) = end.split_at(end.len() - SECTOR);
    let head = match Seal::file().read(sector, SealLocation::default()) {
        SectorState::Good(head) => head,
        SectorState::Absent if sector.iter().all(|byte| *byte == 0) => {
            return Ok(Footer::Unfinished);
        }
        SectorState::Absent | SectorState::Rotten => return Ok(Footer::Rotten),
    };
    let footer_bytes = u64::from(head.body_bytes) + SECTOR as u64;
    let data_bytes = u64::from(head.length).next_multiple_of(ALIGN_BYTES);
    let Some(start) = before.len().checked_sub(head.body_bytes as usize) else {
        return Ok(Footer::Rotten);
    };
    if data_bytes + footer_bytes != length {
        return Ok(Footer::Rotten);
    }
    Ok(Seal::file().open(&head, &before[start..]).map_or(Footer::Torn, Footer::Good))
}

/// Length of a finished file with a footer of `footer_bytes`.
pub(super) fn file_bytes(length: u64, footer_bytes: usize) -> u64 {
    length.next_multiple_of(ALIGN_BYTES) + footer_bytes as u64
}
