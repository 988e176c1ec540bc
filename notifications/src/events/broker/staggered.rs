//! Attempts at several places, of which the first success counts.
//!
//! An attempt begins when its predecessor has failed or has taken [`STAGGER`]. So a place that is
//! silent delays the others by that time only, and places behind one that works get no traffic.

use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::time::timeout;

use super::super::retry::DeliveryFailure;

/// Time of an attempt after which the next one begins beside it.
const STAGGER: Duration = Duration::from_secs(1);

/// Returns the value of the first attempt that succeeds.
///
/// # Errors
/// The last failure, if all attempts have failed.
pub(super) async fn first_success<T, F>(attempts: Vec<F>) -> Result<T, DeliveryFailure>
where
    F: Future<Output = Result<T, DeliveryFailure>>,
{
    let mut waiting = attempts.into_iter();
    let mut running = FuturesUnordered::new();
    let mut failure = DeliveryFailure::away("no address is known");
    loop {
        if let Some(attempt) = waiting.next() {
            running.push(attempt);
        } else if running.is_empty() {
            return Err(failure);
        }
        match timeout(STAGGER, running.next()).await {
            Ok(Some(Ok(value))) => return Ok(value),
            Ok(Some(Err(error))) => failure = error,
            Ok(None) | Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use futures::FutureExt;
    use futures::future::{BoxFuture, pending, ready};

    use super::*;

    type Attempt = BoxFuture<'static, Result<u32, DeliveryFailure>>;

    fn failing(reason: &str) -> Attempt {
        ready(Err(DeliveryFailure::away(reason))).boxed()
    }

    fn unexpected() -> Result<u32, DeliveryFailure> {
        panic!("an attempt began that was not needed")
    }

    #[tokio::test]
    async fn a_silent_place_delays_the_next_one_by_a_bounded_time() {
        let began = Instant::now();
        let attempts: Vec<Attempt> = vec![pending().boxed(), failing("x"), ready(Ok(7)).boxed()];
        assert_eq!(first_success(attempts).await, Ok(7));
        assert!(began.elapsed() >= STAGGER, "the first had its time");
    }

    #[tokio::test]
    async fn places_behind_one_that_works_get_no_traffic() {
        let unused: Attempt = async { unexpected() }.boxed();
        assert_eq!(first_success(vec![ready(Ok(7)).boxed(), unused]).await, Ok(7));
    }

    #[tokio::test]
    async fn the_last_failure_is_returned() {
        let outcome = first_success(vec![failing("x"), failing("y")]).await;
        assert_eq!(outcome, Err(DeliveryFailure::away("y")));
        let outcome = first_success(Vec::<Attempt>::new()).await;
        assert_eq!(outcome, Err(DeliveryFailure::away("no address is known")));
    }
}
