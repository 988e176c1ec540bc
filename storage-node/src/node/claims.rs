//! Questions about the owners of extents: each device answers for itself, side by side.
//!
//! A device that hangs, or that has no votes, is silent, and the others of the node answer.

use std::time::Duration;

use futures::future::join_all;
use futures::{StreamExt, TryStreamExt};
use martlet_protocol::backend::{
    ClaimPart, ClaimSource, ClaimState, ClaimsReply, ClaimsRequest, DeviceClaims, ListReply,
    ListRequest, OwnerClaim, Want,
};
use martlet_protocol::{Entry, RegisterKey, Result, Term, UploadId};

use super::StorageNode;
use crate::index::Index;

/// Claims of one device that wait for its disk at a time.
const AT_ONCE: usize = 16;
/// Time after which a device counts as silent; callers wait longer.
const PATIENCE: Duration = Duration::from_secs(8);

/// Answers for each device of the request.
pub(super) async fn answer(node: &StorageNode, request: &ClaimsRequest) -> Vec<ClaimsReply> {
    let answers = request.devices.iter().map(|asked| async move {
        match tokio::time::timeout(PATIENCE, answer_of(node, request, asked)).await {
            Ok(Ok(states)) => ClaimsReply::Answered(states),
            Ok(Err(error)) => error.newer_term().map_or(ClaimsReply::Silent, ClaimsReply::Outdated),
            Err(_) => ClaimsReply::Silent,
        }
    });
    join_all(answers).await
}

async fn answer_of(
    node: &StorageNode,
    request: &ClaimsRequest,
    asked: &DeviceClaims,
) -> Result<Vec<ClaimState>> {
    let opened = node.online(asked.device)?;
    let registers =
        OwnerRegisters { index: &opened.index, source: request.source, term: request.term };
    let mut states = Vec::with_capacity(asked.claims.len());
    for claim in &asked.claims {
        states.push(registers.state(request.part, claim));
    }
    let mut states: Vec<ClaimState> =
        futures::stream::iter(states).buffered(AT_ONCE).try_collect().await?;
    ClaimState::bound(&mut states);
    Ok(states)
}

/// Registers or hints of one device.
struct OwnerRegisters<'a> {
    index: &'a Index,
    source: ClaimSource,
    term: Term,
}

impl OwnerRegisters<'_> {
    async fn state(&self, part: ClaimPart, claim: &OwnerClaim) -> Result<ClaimState> {
        Ok(match (part, claim.upload) {
            (ClaimPart::Upload, None) => ClaimState::default(),
            (ClaimPart::Upload, Some(upload)) => self.of_upload(claim, upload).await?,
            (ClaimPart::Object, _) => {
                let held = self.entry(&claim.object()).await?;
                let versions = self.list(&claim.versions(self.term)).await?;
                ClaimState::of_object(held.as_ref(), &versions)
            }
        })
    }

    /// Reads an upload once, before its parts: an end is final, so parts of an upload that has ended
    /// are not read. A part that is freed before it is read here belongs to an ended upload, or was
    /// replaced. Its bytes are then in the object, which callers ask about later, or needed by nothing.
    ///
    /// Hints move to primaries in any order, so those of parts are always read.
    async fn of_upload(&self, claim: &OwnerClaim, upload: UploadId) -> Result<ClaimState> {
        let held = self.entry(&claim.upload(upload)).await?;
        let has_ended = held.as_ref().is_some_and(Entry::is_ended_upload);
        let parts = if self.source == ClaimSource::Registers && has_ended {
            ListReply::default()
        } else {
            self.list(&claim.parts(upload, self.term)).await?
        };
        Ok(ClaimState::of_upload(self.source, &parts, held.as_ref()))
    }

    async fn entry(&self, key: &RegisterKey) -> Result<Option<Entry>> {
        let view = match self.source {
            ClaimSource::Registers => self.index.read(key, Want::Entry, self.term).await?,
            ClaimSource::Hints => self.index.read_hint(key, Want::Entry).await?,
        };
        Ok(view.entry)
    }

    async fn list(&self, listing: &ListRequest) -> Result<ListReply> {
        match self.source {
            ClaimSource::Registers => self.index.list(listing).await,
            ClaimSource::Hints => self.index.list_hints(listing).await,
        }
    }
}
