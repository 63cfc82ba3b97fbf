//! A timeline: a row a lane, a box a span.

use super::axis::Scale;
use super::svg::{Anchor, Svg};
use crate::bench::figures::short;
use crate::bench::report::Lane;

const LEFT: f64 = 150.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 32.0;
const ROW: f64 = 26.0;
const BOTTOM: f64 = 46.0;
/// Width of a letter in a box, about.
const LETTER: f64 = 6.2;

/// Draws `lanes`, each in the class that `class_of` gives its name.
pub(crate) fn draw(
    title: &str,
    width: f64,
    lanes: &[Lane],
    class_of: impl Fn(&str) -> &'static str,
) -> String {
    let bottom = TOP + ROW * lanes.len() as f64;
    let mut svg = Svg::new(width, bottom + BOTTOM, title);
    let ends = lanes.iter().flat_map(|lane| &lane.spans).map(|span| span.end_ms);
    let (scale, right) = (Scale::from_zero(ends), width - RIGHT);
    let x_of = |ms: f64| LEFT + scale.place(ms) * (right - LEFT);
    svg.text("title", (10.0, 18.0), Anchor::Start, title);
    for (value, text) in scale.ticks() {
        svg.line("grid", (x_of(value), TOP), (x_of(value), bottom));
        svg.text("tick", (x_of(value), bottom + 16.0), Anchor::Middle, &text);
    }
    svg.text("label", ((LEFT + right) / 2.0, bottom + 36.0), Anchor::Middle, "time, ms");
    for (row, lane) in lanes.iter().enumerate() {
        let top = TOP + ROW * row as f64;
        svg.text("tick", (LEFT - 8.0, top + 17.0), Anchor::End, &lane.name);
        svg.line("grid", (LEFT, top + ROW), (right, top + ROW));
        for span in &lane.spans {
            let (start, end) = (x_of(span.start_ms), x_of(span.end_ms));
            let took = short(span.end_ms - span.start_ms);
            let title = format!("{}: {took} ms, from {} ms", span.name, short(span.start_ms));
            svg.rect(class_of(&lane.name), (start, top + 4.0), (end - start, ROW - 8.0), &title, None);
            let name = span.name.split(',').next().unwrap_or_default();
            if name.len() as f64 * LETTER + 6.0 < end - start {
                svg.text("inside", ((start + end) / 2.0, top + 17.0), Anchor::Middle, name);
            }
        }
    }
    svg.finish()
}
