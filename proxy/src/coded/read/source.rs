//! Choice of a fragment's source: its home; other fragments at home if that is out or late; then
//! any device with fragments.

use std::future::pending;
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use martlet_erasure::FragmentIndex;
use martlet_protocol::{DeviceId, Error, Result};
use tokio::time::{Instant, sleep_until};

use super::census::Census;
use super::reconstruction::Reconstruction;
use super::stripe::{FragmentLocation, Stripe};
use crate::extents::FragmentReader;

/// Source of a fragment's bytes.
pub(super) enum FragmentSource {
    /// A stored fragment.
    Stored(FragmentLocation, FragmentReader),
    /// Reconstruction from other fragments.
    Reconstruction(Reconstruction),
}

/// Longest wait for a home if reconstruction has failed.
const SILENCE_MAX: Duration = Duration::from_secs(2);

struct SourceSearch {
    stripe: Arc<Stripe>,
    fragment: FragmentIndex,
    columns: Range<u64>,
    hedge: Hedge,
}

enum Hedge {
    Unmade,
    Made(Reconstruction),
    Failed,
}

/// Opens a non-empty range of a fragment's columns. The first bytes have arrived when this returns.
pub(super) async fn open_fragment(
    stripe: Arc<Stripe>,
    fragment: FragmentIndex,
    columns: Range<u64>,
) -> Result<FragmentSource> {
    stripe.health().count_read();
    let mut search = SourceSearch { stripe, fragment, columns, hedge: Hedge::Unmade };
    match search.at_home().await {
        Some(source) => Ok(source),
        None => search.anywhere().await,
    }
}

impl SourceSearch {
    /// Reads from the fragment's home, or reconstructs it from fragments at home.
    async fn at_home(&mut self) -> Option<FragmentSource> {
        for location in self.stripe.locations(self.fragment) {
            if self.stripe.health().shuns(location.device) {
                continue;
            }
            if let Some(source) = self.hedged(location).await {
                return Some(source);
            }
        }
        if let Hedge::Unmade = self.hedge {
            self.hedge = Hedge::Made(self.recover(false));
        }
        let mut reconstruction = self.take_hedge()?;
        reconstruction.first().await.ok().map(|()| FragmentSource::Reconstruction(reconstruction))
    }

    /// Reads from a location of the fragment. If it is late, reconstruction runs too, and the first
    /// result counts.
    async fn hedged(&mut self, location: FragmentLocation) -> Option<FragmentSource> {
        let stripe = self.stripe.clone();
        let (health, device) = (stripe.health(), location.device);
        let mut opening = pin!(stripe.open(location, self.columns.clone()));
        let begun = Instant::now();
        let mut check_at = begun + health.patience(device);
        loop {
            let is_unmade = matches!(self.hedge, Hedge::Unmade);
            let is_failed = matches!(self.hedge, Hedge::Failed);
            tokio::select! {
                biased;
                opened = &mut opening => {
                    return opened.ok().map(|reader| FragmentSource::Stored(location, reader));
                }
                decoded = self.hedge.first() => {
                    if let Some(reconstruction) = self.take_hedge().filter(|_| decoded.is_ok()) {
                        health.overtaken(device, begun.elapsed());
                        return Some(FragmentSource::Reconstruction(reconstruction));
                    }
                }
                () = sleep_until(check_at), if is_unmade => {
                    check_at = Instant::now() + health.patience(device);
                    health.overtaken(device, begun.elapsed());
                    self.make_hedge(device);
                }
                () = sleep_until(begun + SILENCE_MAX), if is_failed => return None,
            }
        }
    }

    /// Starts reconstruction within the hedging budget. A shunned device needs no budget.
    fn make_hedge(&mut self, late: DeviceId) {
        let health = self.stripe.health();
        let reads = u32::try_from(self.stripe.needed(self.columns.start)).unwrap_or(u32::MAX);
        if health.is_shunned(late) || health.may_hedge_by(reads) {
            self.hedge = Hedge::Made(self.recover(false));
        }
    }

    fn take_hedge(&mut self) -> Option<Reconstruction> {
        match std::mem::replace(&mut self.hedge, Hedge::Failed) {
            Hedge::Made(reconstruction) => Some(reconstruction),
            Hedge::Unmade | Hedge::Failed => None,
        }
    }

    fn recover(&self, patient: bool) -> Reconstruction {
        Reconstruction::begin(&self.stripe, self.fragment, self.columns.clone(), patient)
    }

    /// Runs a census, then reads the fragment from a reported location or reconstructs it.
    async fn anywhere(&self) -> Result<FragmentSource> {
        let (stripe, start) = (&self.stripe, self.columns.start);
        let mut census = Census::begin(stripe)?;
        let is_enough = || {
            !stripe.locations(self.fragment).is_empty()
                || stripe.sources(self.fragment, start).len() >= stripe.needed(start)
        };
        loop {
            let is_over = !census.go_on(is_enough).await;
            let failures = stripe.failures();
            if let Some(source) = self.found().await {
                return Ok(source);
            }
            if is_over || stripe.failures() == failures {
                return Err(self.lost(census.silent()));
            }
        }
    }

    /// Reads from locations that the census reported, or reconstructs.
    async fn found(&self) -> Option<FragmentSource> {
        for location in self.stripe.locations(self.fragment) {
            if let Ok(reader) = self.stripe.open(location, self.columns.clone()).await {
                return Some(FragmentSource::Stored(location, reader));
            }
        }
        let mut reconstruction = self.recover(true);
        reconstruction.first().await.ok().map(|()| FragmentSource::Reconstruction(reconstruction))
    }

    /// The error for a fragment that can't be read. An entry names the fragment, so "not found"
    /// would be wrong.
    fn lost(&self, silent: usize) -> Error {
        let (stripe, start) = (&self.stripe, self.columns.start);
        let left = stripe.sources(self.fragment, start).len();
        let (extent, fragment, needed) = (stripe.id(), self.fragment, stripe.needed(start));
        let message = format!(
            "{fragment} of extent {extent} is missing, and only {left} of the {needed} other \
             fragments needed are left"
        );
        if silent == 0 && !stripe.may_recover() {
            return Error::internal(message);
        }
        Error::unavailable(format!("{message}; {silent} devices don't answer"))
    }
}

impl Hedge {
    /// Waits for the first bytes; never returns if no reconstruction runs.
    async fn first(&mut self) -> Result<()> {
        match self {
            Self::Made(reconstruction) => reconstruction.first().await,
            Self::Unmade | Self::Failed => pending().await,
        }
    }
}
