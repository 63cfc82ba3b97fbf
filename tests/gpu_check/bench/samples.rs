//! Samples and their quantiles. Pure.

/// Samples of one thing.
#[derive(Clone, Debug, Default)]
pub(super) struct Samples(Vec<f64>);

impl Samples {
    pub(super) fn push(&mut self, sample: f64) {
        self.0.push(sample);
    }

    /// The `q`-quantile (nearest rank); 0 where there is no sample.
    pub(super) fn quantile(&self, q: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let at = (q * sorted.len() as f64).ceil() as usize;
        sorted.get(at.saturating_sub(1)).or(sorted.last()).copied().unwrap_or(0.0)
    }

    pub(super) fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    pub(super) fn max(&self) -> f64 {
        self.quantile(1.0)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

impl FromIterator<f64> for Samples {
    fn from_iter<I: IntoIterator<Item = f64>>(samples: I) -> Self {
        Self(samples.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_samples_and_none_is_zero() {
        assert_eq!(Samples::default().median(), 0.0);
        let samples: Samples = [3.0, 1.0, 2.0, 10.0].into_iter().collect();
        assert_eq!([0.0, 0.5, 0.99, 1.0].map(|q| samples.quantile(q)), [1.0, 2.0, 10.0, 10.0]);
    }
}
