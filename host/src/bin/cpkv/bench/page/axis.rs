//! Axes: where a value lies on the page, and which values are written. Pure.

use crate::bench::figures::short;

/// How values are laid out.
#[derive(Clone, Debug)]
pub(crate) enum Scale {
    /// Evenly, from the first number to the second.
    Linear(f64, f64),
    /// Evenly by their logarithms, from the first number to the second, both above 0.
    Log(f64, f64),
    /// Named places at even distances: value 0 is the first.
    Places(Vec<String>),
}

impl Scale {
    /// From 0 to a round number at or above every one of `values`.
    pub(crate) fn from_zero(values: impl IntoIterator<Item = f64>) -> Self {
        let most = values.into_iter().fold(0.0, f64::max);
        let step = linear_step(most);
        Self::Linear(0.0, (most / step).ceil().max(1.0) * step)
    }

    /// Around `values` above 0, which lie anywhere.
    pub(crate) fn log(values: impl IntoIterator<Item = f64>) -> Self {
        let above: Vec<f64> = values.into_iter().filter(|value| *value > 0.0).collect();
        let least = above.iter().copied().fold(f64::INFINITY, f64::min);
        let most = above.iter().copied().fold(0.0, f64::max);
        if above.is_empty() { Self::Log(1.0, 10.0) } else { Self::Log(least / 1.25, most * 1.25) }
    }

    /// The place of `value`: 0 at the scale's begin, 1 at its end; what lies outside is drawn at the edge.
    pub(crate) fn place(&self, value: f64) -> f64 {
        let place = match self {
            Self::Linear(from, to) => (value - from) / (to - from),
            Self::Log(from, to) => (value.max(f64::MIN_POSITIVE) / from).ln() / (to / from).ln(),
            Self::Places(names) => (value + 0.5) / names.len().max(1) as f64,
        };
        if place.is_nan() { 0.0 } else { place.clamp(0.0, 1.0) }
    }

    /// Values that are written, with how.
    pub(crate) fn ticks(&self) -> Vec<(f64, String)> {
        match self {
            Self::Places(names) => (0..).map(f64::from).zip(names.iter().cloned()).collect(),
            Self::Linear(from, to) => {
                let step = linear_step(*to);
                let num_steps = ((to - from) / step).round() as u32;
                (0..=num_steps).map(|at| from + step * f64::from(at)).map(|at| (at, plain(at))).collect()
            }
            Self::Log(from, to) => log_ticks(*from, *to),
        }
    }
}

/// A step of 1, 2 or 5 times a power of ten: 4 to 10 of them reach `most`.
fn linear_step(most: f64) -> f64 {
    let most = if most > 0.0 { most } else { 1.0 };
    let power = 10f64.powf((most / 5.0).log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().find(|step| most / (step * power) <= 6.0);
    step.unwrap_or(10.0) * power
}

/// Powers of ten; the fewer there are of them, the more numbers between.
fn log_ticks(from: f64, to: f64) -> Vec<(f64, String)> {
    let (first, last) = (from.log10().floor() as i32, to.log10().ceil() as i32);
    let factors: &[f64] = match (to / from).log10() {
        decades if decades <= 0.9 => &[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0],
        decades if decades <= 2.7 => &[1.0, 2.0, 5.0],
        _ => &[1.0],
    };
    let ticks = (first..=last).flat_map(|power| factors.iter().map(move |factor| factor * 10f64.powi(power)));
    let inside = ticks.filter(|tick| *tick >= from * 0.999 && *tick <= to * 1.001);
    inside.map(|tick| (tick, plain(tick))).collect()
}

/// A tick's number, without digits it does not need.
fn plain(value: f64) -> String {
    if value >= 1e6 {
        return format!("{}M", plain(value / 1e6));
    }
    if value >= 1e4 {
        return format!("{}K", plain(value / 1e3));
    }
    let text = if value >= 1.0 || value == 0.0 { short(value) } else { format!("{value:.4}") };
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(scale: &Scale) -> Vec<String> {
        scale.ticks().into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn a_scale_from_zero_ends_at_a_round_number() {
        assert_eq!(written(&Scale::from_zero([3.0, 11.0])), ["0", "2", "4", "6", "8", "10", "12"]);
        assert_eq!(written(&Scale::from_zero([0.9])), ["0", "0.2", "0.4", "0.6", "0.8", "1"]);
        assert_eq!(Scale::from_zero([]).place(0.0), 0.0);
        assert_eq!(Scale::from_zero([10.0]).place(5.0), 0.5);
    }

    #[test]
    fn logarithmic_ticks_are_tens_and_with_few_of_them_twos_and_fives() {
        assert_eq!(written(&Scale::Log(0.9, 25.0)), ["1", "2", "5", "10", "20"]);
        assert_eq!(written(&Scale::Log(14.0, 60.0)), ["15", "20", "30", "40", "50"]);
        assert_eq!(written(&Scale::Log(0.01, 20_000.0)), ["0.01", "0.1", "1", "10", "100", "1000", "10K"]);
        let scale = Scale::Log(1.0, 100.0);
        assert_eq!([1.0, 10.0, 1000.0, 0.0].map(|value| scale.place(value)), [0.0, 0.5, 1.0, 0.0]);
    }

    #[test]
    fn a_logarithmic_scale_holds_its_values_and_stands_none() {
        let scale = Scale::log([0.0, 2.0, 50.0]);
        assert!(scale.place(2.0) > 0.0 && scale.place(50.0) < 1.0);
        assert!(matches!(Scale::log([]), Scale::Log(..)));
    }

    #[test]
    fn places_lie_in_the_middle_of_their_parts() {
        let scale = Scale::Places(vec!["1K".to_owned(), "4K".to_owned()]);
        assert_eq!([scale.place(0.0), scale.place(1.0)], [0.25, 0.75]);
        assert_eq!(written(&scale), ["1K", "4K"]);
    }
}
