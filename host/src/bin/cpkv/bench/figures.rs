//! Figures of samples, and how numbers are written. Pure.

use serde::Serialize;

use crate::samples::Samples;

/// What samples of one thing come to, in their unit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Figure {
    /// How many there were. With fewer than 100, `p99` is the largest.
    pub(crate) samples: usize,
    pub(crate) median: f64,
    pub(crate) p99: f64,
}

impl Figure {
    /// `None` where there is no sample.
    pub(crate) fn of(samples: &Samples) -> Option<Self> {
        (!samples.is_empty()).then(|| Self {
            samples: samples.len(),
            median: rounded(samples.median()),
            p99: rounded(samples.quantile(0.99)),
        })
    }
}

/// Places of the distributions that reports hold.
const NUM_QUANTILES: u32 = 50;

/// `(q, value)` from the least to the largest sample.
pub(crate) fn quantiles(samples: &Samples) -> Vec<[f64; 2]> {
    let mut places: Vec<f64> =
        (0..=NUM_QUANTILES).map(|at| f64::from(at) / f64::from(NUM_QUANTILES)).collect();
    places.insert(places.len() - 1, 0.99);
    places.into_iter().map(|q| [q, rounded(samples.quantile(q))]).collect()
}

/// Gigabytes (10^9) a second.
pub(crate) fn gb_per_s(bytes: u64, ms: f64) -> f64 {
    if ms > 0.0 { rounded(bytes as f64 / ms / 1e6) } else { 0.0 }
}

/// How often `yardstick` goes into `value`; 0 where there is no yardstick.
pub(crate) fn ratio(value: f64, yardstick: f64) -> f64 {
    if yardstick > 0.0 { rounded(value / yardstick) } else { 0.0 }
}

/// Five significant digits: no more was measured.
pub(crate) fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return 0.0;
    }
    let scale = 10f64.powi(4 - value.abs().log10().floor() as i32);
    (value * scale).round() / scale
}

/// A number with three significant digits, or all digits before its point.
pub(crate) fn short(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 100.0 || size == 0.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        _ => 3,
    };
    format!("{value:.digits$}")
}

/// `64K` for 65,536.
pub(crate) fn tokens(number: u32) -> String {
    match number {
        0 => "0".to_owned(),
        number if number.is_multiple_of(1 << 10) => format!("{}K", number >> 10),
        number => number.to_string(),
    }
}

/// `4 KiB` for 4096; whole numbers only where they are exact.
pub(crate) fn bytes(number: u64) -> String {
    for (unit, name) in [(1u64 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")] {
        if number >= unit {
            let value = number as f64 / unit as f64;
            return if number.is_multiple_of(unit) {
                format!("{value:.0} {name}")
            } else {
                format!("{value:.1} {name}")
            };
        }
    }
    format!("{number} B")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_median_and_p99_and_nothing_has_none() {
        let mut samples = Samples::default();
        assert_eq!(Figure::of(&samples), None);
        samples.extend((1..=200).map(f64::from));
        assert_eq!(Figure::of(&samples), Some(Figure { samples: 200, median: 100.0, p99: 198.0 }));
        let quantiles = quantiles(&samples);
        assert_eq!((quantiles[0], quantiles[25]), ([0.0, 1.0], [0.5, 100.0]));
        assert_eq!(quantiles[quantiles.len() - 2..], [[0.99, 198.0], [1.0, 200.0]]);
        assert!(quantiles.windows(2).all(|pair| pair[0][0] < pair[1][0] && pair[0][1] <= pair[1][1]));
    }

    #[test]
    fn rates_and_ratios_have_their_stated_units_and_stand_nothing() {
        assert_eq!(gb_per_s(2_000_000_000, 1000.0), 2.0);
        assert_eq!((gb_per_s(1, 0.0), ratio(1.0, 0.0), ratio(3.0, 2.0)), (0.0, 0.0, 1.5));
    }

    #[test]
    fn numbers_are_written_short() {
        assert_eq!([0.0, 0.0123, 1.234, 12.34, 1234.5].map(short), ["0", "0.012", "1.23", "12.3", "1234"]);
        assert_eq!(
            [0.0, f64::NAN, 123_456.7, 0.001_234_567].map(rounded),
            [0.0, 0.0, 123_460.0, 0.001_234_6]
        );
        assert_eq!([0, 500, 1024, 131_072].map(tokens), ["0", "500", "1K", "128K"]);
        assert_eq!([100, 4096, 41_984, 3 << 20].map(bytes), ["100 B", "4 KiB", "41 KiB", "3 MiB"]);
        assert_eq!(bytes(8448), "8.2 KiB");
    }
}
