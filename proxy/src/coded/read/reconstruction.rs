//! Stepwise reconstruction of a fragment from others, with the next step running ahead.
//!
//! A read holds at most the fragments and the result of two steps. The total memory of gathering
//! steps is bounded too. A step runs to its end even if its reader is slow, and keeps only its
//! result, at most 1 MiB. So slow readers don't block others; the limit of concurrent requests
//! bounds their number.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use martlet_erasure::{FragmentIndex, Recovery};
use martlet_protocol::limits::BLOCK_BYTES;
use martlet_protocol::{Error, Result, trace};
use tokio::task::JoinHandle;

use super::collector::{CollectedFragment, collect_fragments};
use super::stripe::Stripe;

/// Bytes of source fragments in one step.
const STEP_BYTES: u64 = 2 * 1024 * 1024;
/// Maximum number of columns in one step.
const STEP_COLUMNS_MAX: u64 = 1024 * 1024;
/// Concurrent steps.
const STEPS: usize = 2;

/// Columns of a fragment under reconstruction.
pub(super) struct Reconstruction {
    stripe: Arc<Stripe>,
    fragment: FragmentIndex,
    /// Columns without a step yet.
    rest: Range<u64>,
    steps: VecDeque<Step>,
    first: Option<Bytes>,
    patient: bool,
}

/// A running step; dropping it aborts it.
struct Step(JoinHandle<Result<Bytes>>);

impl Drop for Step {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Reconstruction {
    /// Starts reconstruction of `columns`. Unless `patient`, gathering fails early when devices are
    /// silent.
    pub(super) fn begin(
        stripe: &Arc<Stripe>,
        fragment: FragmentIndex,
        columns: Range<u64>,
        patient: bool,
    ) -> Self {
        let (stripe, steps) = (stripe.clone(), VecDeque::new());
        Self { stripe, fragment, rest: columns, steps, first: None, patient }
    }

    /// Waits for the first bytes, which [`Self::poll_bytes`] returns again.
    pub(super) async fn first(&mut self) -> Result<()> {
        let first = poll_fn(|context| self.poll_bytes(context)).await.transpose()?;
        self.first = first;
        Ok(())
    }

    /// The next bytes; none at the end.
    pub(super) fn poll_bytes(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        while self.steps.len() < STEPS && !self.rest.is_empty() {
            self.begin_step();
        }
        let Some(Step(step)) = self.steps.front_mut() else { return Poll::Ready(None) };
        let decoded = ready!(Pin::new(step).poll(context));
        self.steps.pop_front();
        let failed = |error| Error::internal("a fragment was not recovered").with_source(error);
        Poll::Ready(Some(decoded.map_err(failed).and_then(|decoded| decoded)))
    }

    fn begin_step(&mut self) {
        let columns = step(&self.stripe, &self.rest);
        self.rest.start = columns.end;
        let (stripe, fragment, patient) = (self.stripe.clone(), self.fragment, self.patient);
        let work = async move {
            let client = stripe.client.clone();
            let columns_bytes = usize::try_from(columns.end - columns.start).unwrap_or(usize::MAX);
            // The sources and the result.
            let held = columns_bytes.saturating_mul(stripe.needed(columns.start) + 1);
            let share = held.min(client.recovery_bytes_max);
            let share = u32::try_from(share).unwrap_or(u32::MAX);
            let _share = client.recoveries.acquire_many(share).await;
            let collected = collect_fragments(&stripe, fragment, &columns, patient).await?;
            make(&stripe, fragment, &columns, &collected)
        };
        self.steps.push_back(Step(tokio::spawn(trace::carried(work))));
    }
}

/// Columns of the next step. It ends at a step boundary or at the end of the last data fragment:
/// fewer fragments suffice after that.
fn step(stripe: &Stripe, rest: &Range<u64>) -> Range<u64> {
    let needed = stripe.needed(rest.start) as u64;
    let step = (STEP_BYTES / needed.max(1)).min(STEP_COLUMNS_MAX);
    let step = (step - step % BLOCK_BYTES).max(BLOCK_BYTES);
    let mut end = ((rest.start / step + 1) * step).min(rest.end);
    let last = FragmentIndex(stripe.geometry.needed() - 1);
    let short = stripe.geometry.stored_bytes(last);
    if rest.start < short && short < end {
        end = short;
    }
    rest.start..end
}

/// Decodes the wanted fragment from the collected ones.
fn make(
    stripe: &Stripe,
    wanted: FragmentIndex,
    columns: &Range<u64>,
    collected: &[CollectedFragment],
) -> Result<Bytes> {
    let usable: Vec<_> = collected.iter().map(|(fragment, _)| *fragment).collect();
    let wanted = [wanted].into_iter().collect();
    let recovery =
        Recovery::new(&stripe.codec(), &stripe.geometry, columns.clone(), wanted, &usable)?;
    let bytes_of = |fragment: FragmentIndex| {
        let found = collected.iter().find(|(collected, _)| *collected == fragment);
        found.map(|(_, bytes)| bytes.clone()).unwrap_or_default()
    };
    let reads = recovery.reads(columns);
    let read: Vec<_> = reads.iter().map(|read| bytes_of(read.fragment)).collect();
    let mut decoded = vec![Vec::new()];
    recovery.recover(columns, &read, &mut decoded)?;
    Ok(decoded.remove(0).into())
}
