//! Reduction of a failing sequence to a small one (delta debugging): parts of it are left out as
//! long as it fails.

use std::future::Future;

use crate::operation::Numbered;

/// Runs that a reduction may take.
const RUNS_MAX: usize = 300;

/// Returns a subsequence that fails, with its failure. `run` returns the failure of a sequence.
/// Leaving out any one operation of the result makes it pass, unless the reduction ended early.
pub(crate) async fn shrunk<F, R>(
    sequence: Vec<Numbered>,
    failure: String,
    mut run: F,
) -> (Vec<Numbered>, String)
where
    F: FnMut(Vec<Numbered>) -> R,
    R: Future<Output = Result<(), String>>,
{
    let (mut sequence, mut failure) = (sequence, failure);
    let mut length = (sequence.len() / 2).max(1);
    let mut runs = 0;
    loop {
        let mut at = 0;
        let before = sequence.len();
        while at < sequence.len() && runs < RUNS_MAX {
            let end = sequence.len().min(at + length);
            let rest = [&sequence[..at], &sequence[end..]].concat();
            runs += 1;
            match run(rest.clone()).await {
                Err(other) => (sequence, failure) = (rest, other),
                Ok(()) => at = end,
            }
        }
        if runs >= RUNS_MAX || (length == 1 && sequence.len() == before) {
            return (sequence, failure);
        }
        length = (length / 2).max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::{Bucket, Operation};

    #[tokio::test]
    async fn all_but_what_fails_is_left_out() {
        let operation = Operation::HeadBucket { bucket: Bucket::First };
        let numbered = |step| Numbered { step, operation: operation.clone() };
        let fails = |sequence: Vec<Numbered>| async move {
            let has = |step| sequence.iter().any(|it| it.step == step);
            if has(17) && has(60) { Err("both".to_owned()) } else { Ok(()) }
        };
        let all = (0..100).map(numbered).collect();
        let (rest, failure) = shrunk(all, "all".into(), fails).await;
        assert_eq!(rest.iter().map(|it| it.step).collect::<Vec<_>>(), [17, 60]);
        assert_eq!(failure, "both");
    }
}
