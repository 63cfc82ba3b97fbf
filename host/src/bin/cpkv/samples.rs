//! Samples and their quantiles. Pure.

/// Samples of one thing, in milliseconds or microseconds as their owner says.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples(Vec<f64>);

impl Samples {
    pub(crate) fn push(&mut self, sample: f64) {
        self.0.push(sample);
    }

    /// The `q`-quantile (nearest rank); 0 where there is no sample.
    pub(crate) fn quantile(&self, q: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let at = (q * sorted.len() as f64).ceil() as usize;
        sorted.get(at.saturating_sub(1)).or(sorted.last()).copied().unwrap_or(0.0)
    }

    pub(crate) fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// How often one of these is less than one of `others`, of all pairs, a tie for half: 0.5 where neither is the faster. `None`
    /// without pairs.
    pub(crate) fn how_often_less(&self, others: &Self) -> Option<f64> {
        let num_pairs = self.len() * others.len();
        let mut sorted = others.0.clone();
        sorted.sort_by(f64::total_cmp);
        let above = |sample: &f64| {
            let num_below = sorted.partition_point(|other| other < sample);
            let num_not_above = sorted.partition_point(|other| other <= sample);
            (sorted.len() - num_not_above) as f64 + (num_not_above - num_below) as f64 / 2.0
        };
        (num_pairs > 0).then(|| self.0.iter().map(above).sum::<f64>() / num_pairs as f64)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The samples, to be sent to another rank.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0.into_iter().flat_map(f64::to_le_bytes).collect()
    }

    /// The samples that bytes of [`Samples::into_bytes`] hold.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        Self(bytes.as_chunks().0.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect())
    }

    pub(crate) fn extend(&mut self, samples: impl IntoIterator<Item = f64>) {
        self.0.extend(samples);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_samples_and_none_is_zero() {
        let mut samples = Samples::default();
        assert_eq!(samples.median(), 0.0);
        samples.extend([3.0, 1.0, 2.0, 10.0]);
        assert_eq!([0.0, 0.5, 0.9, 1.0].map(|q| samples.quantile(q)), [1.0, 2.0, 10.0, 10.0]);
    }

    #[test]
    fn what_is_less_in_every_pair_always_is_and_equals_are_a_tie() {
        let of = |samples: &[f64]| Samples(samples.to_vec());
        let how_often = |ours: &[f64], others: &[f64]| of(ours).how_often_less(&of(others));
        assert_eq!(how_often(&[1.0, 2.0], &[3.0, 4.0, 5.0]), Some(1.0));
        assert_eq!(how_often(&[3.0, 4.0], &[1.0]), Some(0.0));
        assert_eq!(how_often(&[1.0, 2.0], &[2.0, 1.0]), Some(0.5));
        assert_eq!(how_often(&[1.0, 4.0], &[2.0, 3.0]), Some(0.5));
        assert_eq!(how_often(&[], &[2.0]), None);
    }
}
