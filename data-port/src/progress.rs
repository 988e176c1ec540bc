//! Progress of a reply: the bytes that its client took, and the time for which it may still wait.

use std::io;
use std::time::Duration;

use tokio::time::{Instant, timeout};

/// Progress of one reply.
///
/// The client has a budget of waiting time. Waiting uses the budget up. Bytes that the client takes
/// refill it at the minimum rate, up to its initial value. Without a minimum rate any byte refills it.
/// The S3 port has an equal rule for bodies of requests.
#[derive(Debug)]
pub(crate) struct ReplyProgress {
    sent: u64,
    /// Initial waiting time. Zero means no limit.
    idle: Duration,
    bytes_per_second_min: u64,
    /// Remaining waiting time.
    left: Duration,
}

impl ReplyProgress {
    /// Begins a reply whose client may take no byte for `idle`.
    pub(crate) fn new(idle: Duration, bytes_per_second_min: u64) -> Self {
        Self { sent: 0, idle, bytes_per_second_min, left: idle }
    }

    /// Number of bytes that the client took.
    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    /// Waits for the client. Ends with `TimedOut` once no waiting time is left.
    pub(crate) async fn wait<T>(
        &mut self,
        work: impl Future<Output = io::Result<T>>,
    ) -> io::Result<T> {
        if self.idle.is_zero() {
            return work.await;
        }
        let began = Instant::now();
        let outcome = timeout(self.left, work).await;
        self.waited(began.elapsed());
        outcome.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    /// Records a time for which the client was waited for.
    pub(crate) fn waited(&mut self, time: Duration) {
        self.left = self.left.saturating_sub(time);
    }

    /// Records bytes that the client took.
    pub(crate) fn took(&mut self, bytes: u64) {
        if bytes == 0 {
            return;
        }
        self.sent += bytes;
        let earned_us = bytes.saturating_mul(1_000_000).checked_div(self.bytes_per_second_min);
        self.left = earned_us.map_or(self.idle, |earned_us| {
            self.left.saturating_add(Duration::from_micros(earned_us)).min(self.idle)
        });
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    const IDLE: Duration = Duration::from_secs(10);

    /// Lets a client take `bytes` each three seconds, for an hour at most.
    async fn trickle(progress: &mut ReplyProgress, bytes: u64) -> io::Result<()> {
        for _ in 0..1200 {
            let pause = async {
                sleep(Duration::from_secs(3)).await;
                Ok(())
            };
            progress.wait(pause).await?;
            progress.took(bytes);
        }
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_below_the_minimum_rate_is_cut() {
        let mut progress = ReplyProgress::new(IDLE, 1024);
        let error = trickle(&mut progress, 1024).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        // Of ten seconds each wait leaves two less, and the fifth one finds two.
        assert_eq!(progress.sent(), 4 * 1024);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_at_the_minimum_rate_goes_on() {
        let mut progress = ReplyProgress::new(IDLE, 1024);
        trickle(&mut progress, 3 * 1024).await.unwrap();
        let mut any_byte = ReplyProgress::new(IDLE, 0);
        trickle(&mut any_byte, 1).await.unwrap();
        let mut patient = ReplyProgress::new(Duration::ZERO, 1024);
        trickle(&mut patient, 1).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_taken_fast_earn_no_more_than_the_initial_time() {
        for rate in [0, 1024] {
            let mut progress = ReplyProgress::new(IDLE, rate);
            progress.took(1 << 30);
            progress.took(0);
            let silent = progress.wait(async {
                sleep(Duration::from_secs(11)).await;
                Ok(())
            });
            assert_eq!(silent.await.unwrap_err().kind(), io::ErrorKind::TimedOut);
            progress.took(0);
            let more = progress.wait(async {
                sleep(Duration::from_secs(1)).await;
                Ok(())
            });
            assert!(more.await.is_err(), "no byte earns no time");
        }
    }
}
