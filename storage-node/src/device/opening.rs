//! Openings of a device beside peers: each is one that they can tell from all others (rule G1).
//!
//! ```text
//!            base: the opening before            quorum remembers current
//! opened ──▶ current: a new generation, nonce ──▶ confirmed: votes may be used
//!                                             └─▶ replaced by a later one: no votes ──▶ anew
//! ```
//!
//! 1. The new generation is on disk before anybody hears of it. One that was never confirmed never
//!    gave a vote, and is taken up again by the next opening.
//! 2. Peers that remember `base`, or what is older than `base`, remember `current` from then on. A copy
//!    of the device that was made before follows `base` too, under another nonce: it is refused.
//! 3. What refused it is on disk, so that the next opening asks nobody. The device begins anew beside
//!    its extents, as one whose index is damaged does: what it holds may have been collected elsewhere.
//!
//! A crash between any two steps leaves a device without the use of its votes, and with a generation
//! that its peers still take.

use martlet_protocol::{DeviceId, Error, Result};

use super::format::{Format, Incarnation};
use super::open::Opened;
use super::{Device, DeviceConfig, Shared, State};

/// An opening of a device, and how it stands with its peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpeningStatus {
    /// The device's id in the rings.
    pub device: DeviceId,
    /// The opening.
    pub current: Incarnation,
    /// Whom it follows: the opening of the device that was confirmed last, or whose place it took.
    pub base: Option<Incarnation>,
    /// True when peers confirmed it.
    pub confirmed: bool,
    /// True when the device has its votes on disk.
    pub has_votes: bool,
    /// What its peers remember instead.
    pub replaced_by: Option<Incarnation>,
}

/// The opening that begins now, on disk.
pub(super) fn begin(format: Format, config: &DeviceConfig, shared: &Shared) -> Result<Format> {
    if !shared.introduced {
        return Ok(format);
    }
    let opened = format.opened(shared.clock.now_ms());
    if opened != format {
        opened.store(&config.path)?;
    }
    Ok(opened)
}

impl Opened {
    /// Changes the format, on disk before it returns. Nobody sees it change before. `votes`, if any, come
    /// into force before the next change begins: a change that hung undoes no later one.
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
    /// How the opening stands, if the device is open.
    pub(crate) fn opening(&self) -> Option<OpeningStatus> {
        let opened = self.online().ok()?;
        let format = opened.format.lock();
        Some(OpeningStatus {
            device: self.id(),
            current: format.current(),
            base: format.base(),
            confirmed: format.is_confirmed(),
            has_votes: opened.index.standing().has_votes,
            replaced_by: format.replaced_by,
        })
    }

    /// Its peers confirmed the opening. Blocks.
    pub(crate) fn confirm(&self, current: Incarnation) -> Result<()> {
        let opened = self.online()?;
        opened.change(Some(true), |format| {
            if format.current() != current || format.replaced_by.is_some() {
                return Err(Error::conflict("another opening of the device is under way"));
            }
            Ok(format.confirmed(self.config.id, &self.config.place))
        })
    }

    /// Its peers remember another. Blocks.
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

    /// Begins anew after it was refused: with an empty index, another identity, and no votes. One
    /// that is empty stays as it is, and follows what refused it. Blocks.
    pub(crate) fn begin_anew(&self, is_empty: bool) -> Result<()> {
        let opened = self.online()?;
        let Some(by) = opened.format.lock().replaced_by else {
            return Err(Error::conflict("its peers did not refuse the device"));
        };
        if is_empty {
            return opened.change(None, |format| Ok(format.in_place()));
        }
        drop(opened);
        let reason = format!("its peers remember {} in its place", by.device);
        self.reopen_as_damaged(reason);
        match &*self.state.read() {
            State::Offline { reason, .. } => Err(Error::unavailable(reason.clone())),
            _ => Ok(()),
        }
    }
}
