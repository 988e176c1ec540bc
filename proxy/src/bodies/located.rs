//! Places of the extents under a range, and of their pieces.

use std::ops::Range;

use martlet_erasure::FragmentColumns;
use martlet_protocol::entry::Manifest;
use martlet_protocol::extent::{ExtentRef, overlap};
use martlet_protocol::{ExtentId, PolicyId, Result};

use super::reader::BodyReader;
use crate::coded::read::geometry;
use crate::located::{
    LOCATED_EXTENTS_MAX, LOCATED_PIECES_MAX, LocatedCode, LocatedExtent, LocatedExtents,
    LocatedPiece,
};

impl BodyReader {
    /// Locates bytes `range` of a manifest's extents, up to a page of them.
    pub(crate) async fn locate(
        &self,
        manifest: &Manifest,
        range: Range<u64>,
    ) -> Result<LocatedExtents> {
        let mut page = LocatedExtents::default();
        let (mut offset, mut pieces) = (0, 0);
        for extent in &manifest.extents {
            let length = u64::from(extent.length);
            if let Some(selected) = overlap(&range, offset, length) {
                let located = self.pieces_of(manifest.policy, *extent, offset, selected)?;
                let is_full = page.extents.len() == LOCATED_EXTENTS_MAX
                    || pieces + located.pieces.len() > LOCATED_PIECES_MAX;
                if is_full {
                    page.next = Some(offset.max(range.start));
                    break;
                }
                pieces += located.pieces.len();
                page.extents.push(located);
            }
            offset += length;
        }
        let ids: Vec<ExtentId> =
            page.extents.iter().flat_map(|it| &it.pieces).map(|piece| piece.id).collect();
        let holders = self.extents.holders_in_place(manifest.policy, &ids).await?;
        let pieces = page.extents.iter_mut().flat_map(|it| &mut it.pieces);
        for (piece, holders) in pieces.zip(holders) {
            piece.holders = holders;
        }
        Ok(page)
    }

    /// Pieces of an extent under `selected`, without their holders.
    fn pieces_of(
        &self,
        policy: PolicyId,
        extent: ExtentRef,
        offset: u64,
        selected: Range<u64>,
    ) -> Result<LocatedExtent> {
        let length = u64::from(extent.length);
        let Some(geometry) = geometry(&self.extents.cluster(), policy, length)? else {
            let (number, id, from) = (0, extent.id, 0);
            let holders = Vec::new();
            let piece = LocatedPiece { number, id, from, length, selected, holders };
            return Ok(LocatedExtent { extent, offset, code: None, pieces: vec![piece] });
        };
        let fragment_bytes = geometry.fragment_bytes();
        let code = geometry.code();
        let code = LocatedCode { k: code.k(), m: code.m(), fragment_bytes };
        let piece = |FragmentColumns { fragment, columns }| LocatedPiece {
            number: fragment.0,
            id: extent.id.fragment(fragment.0),
            from: u64::from(fragment.0) * fragment_bytes,
            length: geometry.stored_bytes(fragment),
            selected: columns,
            holders: Vec::new(),
        };
        let pieces = geometry.fragment_ranges(selected)?.into_iter().map(piece).collect();
        Ok(LocatedExtent { extent, offset, code: Some(code), pieces })
    }
}
