//! Stream over the columns of one fragment, from its devices or by reconstruction.
//!
//! Invariants:
//! * A device whose stream broke or stalled is not queried for this fragment again before the
//!   census reports it there. After a corrupt reply it is never queried again.
//! * Every new source returns bytes before it can fail again, so a read terminates.

use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, Stream};
use martlet_erasure::{FragmentColumns, FragmentIndex, Geometry};
use martlet_protocol::extent::ExtentRef;
use martlet_protocol::{Error, ErrorKind, PolicyId, Result};
use tokio::time::Instant;

use super::source::{FragmentSource, open_fragment};
use super::stripe::Stripe;
use crate::extents::{ExtentClient, IDLE_MAX, READER_IDLE_MAX};

enum StreamState {
    Open(FragmentSource),
    Opening(BoxFuture<'static, Result<FragmentSource>>),
    Ended,
}

/// Columns of one fragment.
pub(crate) struct FragmentStream {
    stripe: Arc<Stripe>,
    fragment: FragmentIndex,
    /// Columns not returned yet.
    columns: Range<u64>,
    state: StreamState,
    returned_at: Instant,
}

impl FragmentStream {
    /// Opens a non-empty range of a fragment. Its first bytes have arrived when this returns.
    pub(crate) async fn open(
        client: &Arc<ExtentClient>,
        policy: PolicyId,
        extent: ExtentRef,
        geometry: Geometry,
        range: FragmentColumns,
    ) -> Result<Self> {
        let stripe = Arc::new(Stripe::new(client, policy, extent, geometry));
        let FragmentColumns { fragment, columns } = range;
        let source = open_fragment(stripe.clone(), fragment, columns.clone()).await?;
        let (state, returned_at) = (StreamState::Open(source), Instant::now());
        Ok(Self { stripe, fragment, columns, state, returned_at })
    }

    /// Bytes not returned yet.
    pub(crate) fn left(&self) -> u64 {
        self.columns.end - self.columns.start
    }

    /// Next bytes of the current source; none at the end.
    fn poll_source(
        source: &mut FragmentSource,
        left: u64,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes>>> {
        match source {
            FragmentSource::Stored(_, reader) => reader.poll_bytes(left, IDLE_MAX, context),
            FragmentSource::Reconstruction(reconstruction) => reconstruction.poll_bytes(context),
        }
    }

    /// Opens a new source at the current position. A source that broke while its reader paused
    /// isn't blamed, unless it was corrupt.
    fn resume(&mut self, error: &Error) {
        if let StreamState::Open(FragmentSource::Stored(location, reader)) = &self.state {
            let was_away = self.returned_at.elapsed() > READER_IDLE_MAX && !reader.is_awaited();
            if error.kind() == ErrorKind::Corrupt || !was_away {
                self.stripe.fail(*location, error);
            }
        }
        let (stripe, columns) = (self.stripe.clone(), self.columns.clone());
        self.state = StreamState::Opening(open_fragment(stripe, self.fragment, columns).boxed());
    }
}

impl Stream for FragmentStream {
    type Item = Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            let left = self.left();
            let source = match &mut self.state {
                StreamState::Ended => return Poll::Ready(None),
                StreamState::Open(source) => source,
                StreamState::Opening(opening) => {
                    match ready!(opening.poll_unpin(context)) {
                        Ok(source) => self.state = StreamState::Open(source),
                        Err(error) => {
                            self.state = StreamState::Ended;
                            return Poll::Ready(Some(Err(error)));
                        }
                    }
                    continue;
                }
            };
            match ready!(Self::poll_source(source, left, context)) {
                Some(Ok(bytes)) => {
                    self.columns.start += bytes.len() as u64;
                    self.returned_at = Instant::now();
                    return Poll::Ready(Some(Ok(bytes)));
                }
                Some(Err(error)) if left > 0 => self.resume(&error),
                end => {
                    self.state = StreamState::Ended;
                    return Poll::Ready(end);
                }
            }
        }
    }
}
