//! Questions about the owners of extents, over several devices.

use super::MemoryBackend;
use super::device::MemoryDevice;
use crate::backend::{
    ClaimPart, ClaimSource, ClaimState, ClaimsReply, ClaimsRequest, DeviceClaims, ListReply,
    OwnerClaim, Want,
};
use crate::error::Result;

impl MemoryBackend {
    /// Answers for each device of the request.
    pub(super) fn claims(&self, request: &ClaimsRequest) -> Vec<ClaimsReply> {
        let of = |asked| match self.claims_of(request, asked) {
            Ok(states) => ClaimsReply::Answered(states),
            Err(error) => error.newer_term().map_or(ClaimsReply::Silent, ClaimsReply::Outdated),
        };
        request.devices.iter().map(of).collect()
    }

    fn claims_of(&self, request: &ClaimsRequest, asked: &DeviceClaims) -> Result<Vec<ClaimState>> {
        let device = match request.source {
            ClaimSource::Registers => self.voting(asked.device)?,
            ClaimSource::Hints => self.device(asked.device)?,
        };
        let states = asked.claims.iter().map(|claim| device.claim(request, claim));
        let mut states = states.collect::<Result<Vec<_>>>()?;
        ClaimState::bound(&mut states);
        Ok(states)
    }
}

impl MemoryDevice {
    fn claim(&self, request: &ClaimsRequest, claim: &OwnerClaim) -> Result<ClaimState> {
        let (source, term) = (request.source, request.term);
        let list = |listing| -> Result<ListReply> {
            match source {
                ClaimSource::Registers => self.list(&listing),
                ClaimSource::Hints => self.list_hints(&listing),
            }
        };
        let read = |key| match source {
            ClaimSource::Registers => self.read(&key, Want::Entry, term),
            ClaimSource::Hints => self.read_hint(&key, Want::Entry),
        };
        Ok(match (request.part, claim.upload) {
            (ClaimPart::Upload, None) => ClaimState::default(),
            (ClaimPart::Upload, Some(upload)) => {
                let parts = list(claim.parts(upload, term))?;
                let held = read(claim.upload(upload))?.entry;
                ClaimState::of_upload(source, &parts, held.as_ref())
            }
            (ClaimPart::Object, _) => {
                let held = read(claim.object())?.entry;
                ClaimState::of_object(held.as_ref(), &list(claim.versions(term))?)
            }
        })
    }
}
