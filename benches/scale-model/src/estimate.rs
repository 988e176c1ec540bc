//! Estimates with confidence intervals of 95 %.

use serde::Serialize;

/// Two-sided quantile of the normal distribution for 95 %.
const Z: f64 = 1.959_964;

/// Estimate and the bounds of its confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Estimate {
    pub(crate) mean: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Estimate {
    /// Mean of independent samples.
    pub(crate) fn of_samples(samples: &[f64]) -> Self {
        let count = samples.len().max(1) as f64;
        let mean = samples.iter().sum::<f64>() / count;
        let squares = samples.iter().map(|it| (it - mean).powi(2)).sum::<f64>();
        let error = Z * (squares / (count - 1.0).max(1.0) / count).sqrt();
        Self { mean, low: (mean - error).max(0.0), high: mean + error }
    }

    /// Returns true if `value` lies within the interval.
    #[cfg(test)]
    pub(crate) fn contains(self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }
}

#[cfg(test)]
mod tests {
    use super::Estimate;
    use crate::random::Random;

    #[test]
    fn nineteen_of_twenty_intervals_contain_the_mean() {
        let mut random = Random::new(3);
        let mut holds = 0;
        for _ in 0..1000 {
            let samples: Vec<f64> = (0..400).map(|_| random.exponential(0.5)).collect();
            holds += u32::from(Estimate::of_samples(&samples).contains(2.0));
        }
        assert!((925..=970).contains(&holds), "{holds} of 1,000");
    }

    #[test]
    fn one_sample_has_no_width() {
        let one = Estimate::of_samples(&[2.0]);
        assert_eq!(one, Estimate { mean: 2.0, low: 2.0, high: 2.0 });
    }
}
