//! Time that a scan waits for devices that don't answer.

use std::time::Duration;

/// Time in a whole scan: a node restarts within it.
const SILENCE_MAX: Duration = Duration::from_mins(10);
/// First pause between two attempts, and the longest one. Each pause of a question is twice the one
/// before, so an answer that stays unknown is asked for 24 times more, once in a scan.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Patience of a scan.
#[derive(Debug)]
pub(super) struct Patience {
    left: Duration,
}

/// Pauses between attempts at one question.
#[derive(Debug)]
pub(super) struct Pauses {
    next: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { left: SILENCE_MAX }
    }
}

impl Default for Pauses {
    fn default() -> Self {
        Self { next: PAUSE_MIN }
    }
}

impl Patience {
    /// Waits for the next attempt. Returns false if no time is left.
    pub(super) async fn wait(&mut self, pauses: &mut Pauses) -> bool {
        let pause = pauses.next.min(self.left);
        if pause.is_zero() {
            return false;
        }
        self.left -= pause;
        pauses.next = (pauses.next * 2).min(PAUSE_MAX);
        tokio::time::sleep(pause).await;
        true
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_scan_waits_ten_minutes_in_all_with_few_retries() {
        let (began, mut patience) = (Instant::now(), Patience::default());
        let (mut pauses, mut attempts) = (Pauses::default(), 0);
        while patience.wait(&mut pauses).await {
            attempts += 1;
        }
        assert_eq!((began.elapsed(), attempts), (SILENCE_MAX, 24));
        assert!(!patience.wait(&mut Pauses::default()).await, "the next question waits no more");
    }
}
