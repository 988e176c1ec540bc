//! Closed forms for the loss of a partition whose replicas fail independently.
//!
//! Two forms check the simulation. [`Replicas::losses`] holds for repair times of any distribution:
//! in an alternating renewal process the share of time without a replica depends on the mean repair
//! time alone. [`Replicas::mean_time_to_loss`] solves the Markov chain of exponential repair times,
//! which all run side by side.

/// Replicas of a partition, of which all but `spare` are necessary.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Replicas {
    pub(crate) width: u32,
    /// Number of replicas that may be missing.
    pub(crate) spare: u32,
    /// Failures of one replica in a unit of time.
    pub(crate) failures: f64,
    /// Mean time from the failure to the end of the repair.
    pub(crate) repair: f64,
}

impl Replicas {
    /// Returns the number of losses in a unit of time: `spare` replicas are missing, and another
    /// one fails.
    pub(crate) fn losses(&self) -> f64 {
        let cycle = 1.0 / self.failures + self.repair;
        let missing = self.repair / cycle;
        let alive = f64::from(self.width - self.spare);
        binomial(self.width, self.spare)
            * missing.powi(self.spare as i32)
            * (1.0 - missing).powi((self.width - self.spare) as i32)
            * alive
            * self.failures
    }

    /// Returns the mean time from complete replicas to the loss, by the Markov chain of the number
    /// of missing replicas.
    pub(crate) fn mean_time_to_loss(&self) -> f64 {
        let mut step = 0.0;
        let mut total = 0.0;
        for missing in 0..=self.spare {
            let failures = f64::from(self.width - missing) * self.failures;
            let repairs = f64::from(missing) / self.repair;
            // Mean time to one more missing replica: directly, or after falling back.
            step = 1.0 / failures + repairs / failures * step;
            total += step;
        }
        total
    }
}

fn binomial(of: u32, take: u32) -> f64 {
    (0..take).map(|at| f64::from(of - at) / f64::from(at + 1)).product()
}

#[cfg(test)]
mod tests {
    use super::{Replicas, binomial};

    #[test]
    fn a_mirror_has_its_known_mean_time() {
        // (3λ + μ) / 2λ², as in every text on disk arrays.
        let (failures, repair) = (0.01, 2.0);
        let pair = Replicas { width: 2, spare: 1, failures, repair };
        let known = (3.0 * failures + 1.0 / repair) / (2.0 * failures * failures);
        assert!((pair.mean_time_to_loss() / known - 1.0).abs() < 1e-12);
        let single = Replicas { width: 1, spare: 0, failures, repair };
        assert!((single.mean_time_to_loss() - 100.0).abs() < 1e-9);
    }

    #[test]
    fn both_forms_agree_where_repairs_are_short() {
        for (width, spare) in [(2, 1), (3, 2), (6, 2), (11, 3)] {
            let it = Replicas { width, spare, failures: 1e-5, repair: 1.0 };
            let ratio = it.losses() * it.mean_time_to_loss();
            assert!((ratio - 1.0).abs() < 1e-3, "{width} with {spare} spare: {ratio}");
        }
    }

    #[test]
    fn choices_are_counted() {
        let all = [binomial(6, 2), binomial(11, 3), binomial(3, 0)].map(|it| it.round() as u32);
        assert_eq!(all, [15, 165, 1]);
    }
}
