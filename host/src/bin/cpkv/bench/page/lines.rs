//! A chart of lines.

use super::axis::Scale;
use super::svg::{Anchor, Svg};
use crate::bench::figures::short;
use crate::bench::table::PathValue;

/// An axis with its name, unit included.
pub(crate) struct Axis {
    pub(crate) label: String,
    pub(crate) scale: Scale,
}

/// A line.
pub(crate) struct Series {
    pub(crate) name: String,
    /// Classes of its colour and dashes.
    pub(crate) class: String,
    pub(crate) points: Vec<Point>,
    /// Whether its points are drawn, too.
    pub(crate) has_marks: bool,
}

/// A point of a line; `figure` is where its y stands in the JSON.
pub(crate) struct Point {
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) figure: Option<PathValue>,
}

/// The chart.
pub(crate) struct LineChart {
    pub(crate) title: String,
    pub(crate) width: f64,
    pub(crate) height: f64,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) series: Vec<Series>,
}

/// What is left free around the plot: for labels.
const LEFT: f64 = 58.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 46.0;

impl LineChart {
    pub(crate) fn draw(&self) -> String {
        let mut svg = Svg::new(self.width, self.height, &self.title);
        let (right, bottom) = (self.width - RIGHT, self.height - BOTTOM);
        let x_of = |value: f64| LEFT + self.x.scale.place(value) * (right - LEFT);
        let y_of = |value: f64| bottom - self.y.scale.place(value) * (bottom - TOP);
        svg.text("title", (LEFT, 18.0), Anchor::Start, &self.title);
        for (value, text) in self.y.scale.ticks() {
            svg.line("grid", (LEFT, y_of(value)), (right, y_of(value)));
            svg.text("tick", (LEFT - 7.0, y_of(value) + 4.0), Anchor::End, &text);
        }
        for (value, text) in self.x.scale.ticks() {
            svg.line("grid", (x_of(value), TOP), (x_of(value), bottom));
            svg.text("tick", (x_of(value), bottom + 17.0), Anchor::Middle, &text);
        }
        svg.line("axis", (LEFT, bottom), (right, bottom));
        svg.line("axis", (LEFT, TOP), (LEFT, bottom));
        svg.text("label", ((LEFT + right) / 2.0, self.height - 8.0), Anchor::Middle, &self.x.label);
        svg.upright("label", (14.0, (TOP + bottom) / 2.0), &self.y.label);
        for series in &self.series {
            let points: Vec<_> = series.points.iter().map(|point| (x_of(point.x), y_of(point.y))).collect();
            svg.path(&series.class, &points);
            for (point, at) in series.points.iter().zip(points).filter(|_| series.has_marks) {
                let title = format!("{}: {} {}", series.name, short(point.y), self.y.label);
                svg.point(&series.class, at, &title, point.figure.as_ref());
            }
        }
        svg.finish()
    }
}
