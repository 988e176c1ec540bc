//! Decisions about requests: sampled or not, and under whose parent.
//!
//! A client's `traceparent` with the flag `sampled` asks for a span. Any client may send one, signed or
//! not, so that the number of such requests in a second is bounded. A client's ids decide nothing
//! else: the share of sampled requests is drawn by this process, never from the id of the trace,
//! which a client could choose.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use http::{HeaderMap, HeaderName};
use martlet_protocol::trace::{ParsedParent, SpanContext, SpanId};
use parking_lot::Mutex;

use super::settings::TraceSettings;

const TRACE_PARENT: HeaderName = HeaderName::from_static("traceparent");
const SECOND: Duration = Duration::from_secs(1);

/// Place of a sampled request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SampledRequest {
    pub(super) context: SpanContext,
    /// Span of the client.
    pub(super) parent: Option<SpanId>,
}

/// Decides about requests.
pub(super) struct Sampler {
    draws: Draws,
    asked: AskedRequests,
}

impl Sampler {
    pub(super) fn new(settings: &TraceSettings) -> Self {
        Self {
            draws: Draws::new(settings.trace_sample),
            asked: AskedRequests::new(settings.max_client_traces),
        }
    }

    /// Returns the place of a request that is sampled.
    pub(super) fn sample(&self, headers: &HeaderMap) -> Option<SampledRequest> {
        let is_drawn = self.draws.draw();
        let client = client_parent(headers);
        let is_sampled = is_drawn || client.is_some() && self.asked.admit(Instant::now());
        if !is_sampled {
            return None;
        }
        Some(match client {
            Some(client) => {
                SampledRequest { context: client.new_child(), parent: Some(client.span) }
            }
            None => SampledRequest { context: SpanContext::new_root(), parent: None },
        })
    }
}

/// Returns the client's span, if the request names exactly one and the client samples it.
fn client_parent(headers: &HeaderMap) -> Option<SpanContext> {
    let mut values = headers.get_all(TRACE_PARENT).iter();
    let value = values.next()?;
    if values.next().is_some() {
        return None;
    }
    let parent = ParsedParent::parse(value.as_bytes())?;
    parent.sampled.then_some(parent.context)
}

/// Draws of a share of requests. The numbers are equally distributed, and not predictable by
/// clients.
struct Draws {
    /// Draws below this bound succeed.
    bound: u64,
    is_all: bool,
    state: AtomicU64,
}

impl Draws {
    fn new(share: f64) -> Self {
        let mut seed = [0; 8];
        getrandom::fill(&mut seed).expect("the operating system has random bytes");
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a share of all numbers, checked to lie between 0 and 1"
        )]
        let bound = (share * u64::MAX as f64) as u64;
        Self { bound, is_all: share >= 1.0, state: AtomicU64::new(u64::from_le_bytes(seed)) }
    }

    fn draw(&self) -> bool {
        if self.bound == 0 || self.is_all {
            return self.is_all;
        }
        // SplitMix64 (Steele, Lea and Flood, 2014).
        let mut mixed = self.state.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) < self.bound
    }
}

/// Bound on the requests that are sampled because their clients ask for it.
struct AskedRequests {
    per_second: u32,
    state: Mutex<AskedState>,
}

struct AskedState {
    since: Instant,
    admitted: u32,
}

impl AskedRequests {
    fn new(per_second: u32) -> Self {
        let state = AskedState { since: Instant::now(), admitted: 0 };
        Self { per_second, state: Mutex::new(state) }
    }

    fn admit(&self, now: Instant) -> bool {
        let mut state = self.state.lock();
        if now.saturating_duration_since(state.since) >= SECOND {
            *state = AskedState { since: now, admitted: 0 };
        }
        let is_admitted = state.admitted < self.per_second;
        state.admitted += u32::from(is_admitted);
        is_admitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn sampler(share: f64, asked: u32) -> Sampler {
        Sampler::new(&TraceSettings {
            trace_sample: share,
            max_client_traces: asked,
            ..TraceSettings::default()
        })
    }

    fn headers(parents: &[&'static str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for parent in parents {
            headers.append(TRACE_PARENT, http::HeaderValue::from_static(parent));
        }
        headers
    }

    #[test]
    fn the_share_of_sampled_requests_is_the_set_one() {
        let sampled = |share| {
            let sampler = sampler(share, 0);
            (0..20_000).filter(|_| sampler.sample(&headers(&[])).is_some()).count()
        };
        assert_eq!((sampled(0.0), sampled(1.0)), (0, 20_000));
        // 2,000 expected, with a standard deviation of 42.
        let tenth = sampled(0.1);
        assert!((1_750..2_250).contains(&tenth), "{tenth}");
    }

    #[test]
    fn clients_are_sampled_up_to_their_bound() {
        let sampler = sampler(0.0, 3);
        let sampled: Vec<_> =
            (0..100).filter_map(|_| sampler.sample(&headers(&[PARENT]))).collect();
        // The test may cross the end of one second.
        assert!((3..=6).contains(&sampled.len()), "{}", sampled.len());
        for SampledRequest { context, parent } in sampled {
            assert_eq!(context.trace.to_string(), PARENT[3..35]);
            assert_eq!(parent.unwrap().to_string(), PARENT[36..52]);
        }
        let asked = AskedRequests::new(1);
        let now = Instant::now();
        assert!(asked.admit(now) && !asked.admit(now) && asked.admit(now + SECOND));
    }

    #[test]
    fn malformed_repeated_and_unsampled_parents_are_ignored() {
        let never = sampler(0.0, u32::MAX);
        let always = sampler(1.0, 0);
        let unsampled = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
        let malformed = "00-00000000000000000000000000000000-00f067aa0ba902b7-01";
        for parents in [&[unsampled][..], &[malformed], &["01"], &[PARENT, PARENT]] {
            assert_eq!(never.sample(&headers(parents)), None, "{parents:?}");
            let own = always.sample(&headers(parents)).unwrap();
            assert!(own.parent.is_none() && own.context.trace.to_string() != PARENT[3..35]);
        }
        let joined = always.sample(&headers(&[PARENT])).unwrap();
        assert!(joined.parent.is_some(), "a drawn request joins its client's trace");
    }
}
