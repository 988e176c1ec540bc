//! Openings of a device that has peers, which distinguish each opening from all others (rule G1).
//!
//! ```text
//!            base: the opening before            quorum remembers current
//! opened ──▶ current: a new generation, nonce ──▶ confirmed: votes may be used
//!                                             └─▶ replaced by a later one: no votes ──▶ anew
//! ```
//!
//! 1. The new generation is on disk before the device reports it. A generation that was never
//!    confirmed never gave a vote; the next opening uses it again.
//! 2. Peers that remember `base`, or an opening older than `base`, now remember `current`. A copy
//!    of the device that was made earlier follows `base` too, under another nonce: peers refuse it.
//! 3. The refusing opening is on disk, so that the next opening needs no reply from peers. The
//!    device begins anew beside its extents, as a device with a damaged index does: peers may have
//!    collected the garbage of what it holds.
//!
//! A crash between two steps leaves a device that can't use its votes, with a generation that its
//! peers still accept.

use martlet_protocol::opening::{Incarnation, OpeningStatus};
use martlet_protocol::{Error, Result};

use super::format::Format;
use super::open::OpenDevice;
use super::{Device, DeviceState};

impl OpenDevice {
    /// Changes the format on disk, then in memory. `votes`, if any, takes effect before the next
    /// change begins, so that a change that hung overrides no later change.
    fn change(
        &self,
        votes: Option<bool>,
        next: impl FnOnce(&Format) -> Result<Format>,
    ) -> Result<()> {
        let _changing = self.changing.lock();
        let next = {
            let format = self.format.lock();
            next(&format)?
        };
        next.store(self.root())?;
        *self.format.lock() = next;
        if let Some(confirmed) = votes {
            self.index.set_confirmed(confirmed);
        }
        Ok(())
    }
}

impl Device {
    /// Returns the state of the opening, if the device is open.
    pub(crate) fn opening(&self) -> Option<OpeningStatus> {
        let opened = self.online().ok()?;
        let format = opened.format.lock();
        Some(OpeningStatus {
            device: self.id(),
            current: format.current(),
            base: format.base(),
            confirmed: format.is_confirmed(),
            has_votes: opened.index.voting_snapshot().has_votes,
            replaced_by: format.replaced_by,
        })
    }

    /// Raises the device's format to the level of its node. Returns once the format is on disk. A
    /// device that is not open is raised at its next opening. Blocks.
    pub(crate) fn raise_format(&self) -> Result<()> {
        let level = u32::from(self.level().get());
        let Ok(opened) = self.online() else { return Ok(()) };
        if opened.format.lock().level() >= level {
            return Ok(());
        }
        opened.change(None, |format| {
            let is_below = format.level() < level;
            let raised = || format.raised(level, env!("CARGO_PKG_VERSION"));
            Ok(if is_below { raised() } else { format.clone() })
        })
    }

    /// Records that its peers confirmed the opening. Blocks.
    pub(crate) fn confirm(&self, current: Incarnation) -> Result<()> {
        let opened = self.online()?;
        opened.change(Some(true), |format| {
            if format.current() != current || format.replaced_by.is_some() {
                return Err(Error::conflict("the device is already being opened"));
            }
            Ok(format.confirmed(self.config.id, &self.config.place))
        })
    }

    /// Records that its peers remember another opening. Blocks.
    pub(crate) fn refuse(&self, by: Incarnation) -> Result<()> {
        let opened = self.online()?;
        opened.index.set_confirmed(false);
        opened.change(Some(false), |format| Ok(format.replaced(by)))
    }

    /// Begins the next generation without being opened again. Blocks.
    pub(crate) fn advance(&self) -> Result<()> {
        let now_ms = self.now_ms();
        self.online()?.change(None, |format| Ok(format.opened(now_ms)))
    }

    /// Begins the device anew after its peers refused it: empty index, another identity, no votes.
    /// A device with an empty index keeps its identity, and follows the opening that refused it.
    /// Blocks.
    pub(crate) fn begin_anew(&self, is_empty: bool) -> Result<()> {
        let opened = self.online()?;
        let Some(by) = opened.format.lock().replaced_by else {
            return Err(Error::conflict("the peers did not refuse the device"));
        };
        if is_empty {
            return opened.change(None, |format| Ok(format.in_place()));
        }
        drop(opened);
        let reason = format!("its peers remember {} in its place", by.device);
        self.reopen_as_damaged(reason);
        match &*self.state.read() {
            DeviceState::Offline { reason, .. } => Err(Error::unavailable(reason.clone())),
            _ => Ok(()),
        }
    }
}
