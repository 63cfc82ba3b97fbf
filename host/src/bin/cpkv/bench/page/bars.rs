//! A chart of bars that lie: one a row, made of parts.

use super::axis::Scale;
use super::svg::{Anchor, Svg};
use crate::bench::table::PathValue;

/// A row.
pub(crate) struct Bar {
    pub(crate) name: String,
    pub(crate) parts: Vec<Part>,
    /// What stands behind the bar.
    pub(crate) text: String,
}

/// A stretch of a bar.
pub(crate) struct Part {
    pub(crate) class: String,
    pub(crate) value: f64,
    pub(crate) title: String,
    pub(crate) figure: Option<PathValue>,
}

/// The chart.
pub(crate) struct BarChart {
    pub(crate) title: String,
    pub(crate) width: f64,
    /// Name of the values, with their unit.
    pub(crate) label: String,
    pub(crate) bars: Vec<Bar>,
    /// A line across all bars, with what it is.
    pub(crate) across: Option<(f64, String)>,
}

const LEFT: f64 = 118.0;
/// For the texts behind bars.
const RIGHT: f64 = 165.0;
const TOP: f64 = 34.0;
const ROW: f64 = 22.0;
const BOTTOM: f64 = 44.0;
/// Width of a letter, about.
const LETTER: f64 = 6.2;

impl BarChart {
    pub(crate) fn draw(&self) -> String {
        let bottom = TOP + ROW * self.bars.len() as f64;
        let mut svg = Svg::new(self.width, bottom + BOTTOM, &self.title);
        let total = |bar: &Bar| -> f64 { bar.parts.iter().map(|part| part.value).sum() };
        let scale =
            Scale::from_zero(self.bars.iter().map(total).chain(self.across.iter().map(|across| across.0)));
        // Behind the longest bar, too, all of its text is to be seen.
        let longest = self.bars.iter().map(|bar| bar.text.chars().count()).max().unwrap_or(0);
        let right = self.width - (longest as f64 * LETTER + 12.0).max(RIGHT);
        let x_of = |value: f64| LEFT + scale.place(value) * (right - LEFT);
        svg.text("title", (10.0, 18.0), Anchor::Start, &self.title);
        for (value, text) in scale.ticks() {
            svg.line("grid", (x_of(value), TOP), (x_of(value), bottom));
            svg.text("tick", (x_of(value), bottom + 16.0), Anchor::Middle, &text);
        }
        svg.text("label", ((LEFT + right) / 2.0, bottom + 35.0), Anchor::Middle, &self.label);
        for (row, bar) in self.bars.iter().enumerate() {
            let top = TOP + ROW * row as f64;
            svg.text("tick", (LEFT - 8.0, top + 15.0), Anchor::End, &bar.name);
            let mut from = 0.0;
            for part in &bar.parts {
                let (start, end) = (x_of(from), x_of(from + part.value));
                let size = (end - start, ROW - 7.0);
                svg.rect(&part.class, (start, top + 3.5), size, &part.title, part.figure.as_ref());
                from += part.value;
            }
        }
        svg.line("axis", (LEFT, TOP), (LEFT, bottom));
        if let Some((value, text)) = &self.across {
            svg.line("across", (x_of(*value), TOP - 6.0), (x_of(*value), bottom));
            svg.text("tick", (x_of(*value) + 4.0, TOP - 1.0), Anchor::Start, text);
        }
        for (row, bar) in self.bars.iter().enumerate() {
            let across = self.across.as_ref().map(|across| x_of(across.0));
            let start = text_start(x_of(total(bar)), &bar.text, across);
            svg.text("value", (start, TOP + ROW * row as f64 + 15.0), Anchor::Start, &bar.text);
        }
        svg.finish()
    }
}

/// Where the text behind a bar that ends at `end` begins: behind the line across all bars, where that would cross it.
fn text_start(end: f64, text: &str, across: Option<f64>) -> f64 {
    let (start, len) = (end + 6.0, text.chars().count() as f64 * LETTER);
    let crossed = across.filter(|across| (start - 5.0..start + len).contains(across));
    crossed.map_or(start, |across| across + 6.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_goes_through_a_text() {
        assert_eq!(text_start(100.0, "1.23", None), 106.0);
        assert_eq!(text_start(100.0, "1.23", Some(99.0)), 106.0);
        assert_eq!(text_start(100.0, "1.23", Some(102.0)), 108.0);
        assert_eq!(text_start(100.0, "1.23", Some(110.0)), 116.0);
        assert_eq!(text_start(100.0, "1.23", Some(140.0)), 106.0);
    }
}
