//! Pauses: the common pause of all requests to a server that limits them, and those of retries.

use std::time::Duration;

use parking_lot::Mutex;
use rand::Rng;
use tokio::time::{Instant, sleep, sleep_until};

const FIRST: Duration = Duration::from_millis(200);
const LONGEST: Duration = Duration::from_secs(20);

/// Waits before the attempt after `failures` failed ones: a random part of 0.2 s, doubled for each
/// failure, at most 20 s.
pub(crate) async fn back_off(failures: u32) {
    sleep(random_part(doubled(failures.saturating_sub(1)))).await;
}

fn doubled(times: u32) -> Duration {
    LONGEST.min(FIRST * 2_u32.saturating_pow(times.min(20)))
}

/// Returns a duration from half of `span` to all of it.
fn random_part(span: Duration) -> Duration {
    span.mul_f64(rand::rng().random_range(0.5..=1.0))
}

/// Common pause of all requests to one server. Each refusal doubles the pause, up to 20 s; each
/// success after a pause halves the next one.
#[derive(Debug, Default)]
pub(crate) struct Throttle(Mutex<ThrottleState>);

#[derive(Debug, Default)]
struct ThrottleState {
    level: u32,
    until: Option<Instant>,
}

impl Throttle {
    /// Waits until the pause has ended.
    pub(crate) async fn wait(&self) {
        let until = self.0.lock().until;
        if let Some(until) = until {
            sleep_until(until).await;
        }
    }

    /// Begins a pause, unless one is running: many requests in flight get the same refusal.
    pub(crate) fn slow_down(&self) {
        let mut state = self.0.lock();
        let now = Instant::now();
        if state.until.is_some_and(|until| until > now) {
            return;
        }
        state.until = Some(now + random_part(doubled(state.level)));
        state.level = (state.level + 1).min(10);
    }

    /// Takes note of a success.
    pub(crate) fn succeeded(&self) {
        let mut state = self.0.lock();
        if state.until.is_some_and(|until| until <= Instant::now()) {
            state.level = state.level.saturating_sub(1);
            state.until = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_wave_of_refusals_is_one_pause() {
        let throttle = Throttle::default();
        let begun = Instant::now();
        throttle.wait().await;
        assert_eq!(begun.elapsed(), Duration::ZERO);
        for _ in 0..50 {
            throttle.slow_down();
        }
        throttle.wait().await;
        assert!((FIRST / 2..=FIRST + Duration::from_millis(2)).contains(&begun.elapsed()));
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_double_and_end_with_successes() {
        let throttle = Throttle::default();
        for level in 0..12 {
            throttle.slow_down();
            let begun = Instant::now();
            throttle.wait().await;
            let pause = begun.elapsed();
            assert!(pause >= doubled(level.min(10)) / 2 && pause <= LONGEST * 2, "{pause:?}");
        }
        for _ in 0..20 {
            throttle.succeeded();
            throttle.0.lock().until = Some(Instant::now());
        }
        assert_eq!(throttle.0.lock().level, 0);
    }
}
