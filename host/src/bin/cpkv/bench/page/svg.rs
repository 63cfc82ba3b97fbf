//! A writer of SVG elements. Colours are classes, which the page's style has for light and for dark.

use std::fmt::Write;

use crate::bench::table::PathValue;

/// Text for an element or an attribute.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}

/// Where a text begins, seen from its point.
#[derive(Clone, Copy)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// Where the figure of a mark stands in the JSON.
pub(crate) fn data(figure: Option<&PathValue>) -> String {
    figure.map_or_else(String::new, |figure| {
        format!(" data-path=\"{}\" data-value=\"{}\"", escaped(&figure.path), figure.value)
    })
}

/// A drawing under way. Lengths are in its own units, y downwards.
pub(crate) struct Svg {
    out: String,
}

impl Svg {
    /// A drawing called `label` for who cannot see it.
    pub(crate) fn new(width: f64, height: f64, label: &str) -> Self {
        let label = escaped(label);
        let out = format!(
            "<svg viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" height=\"{height:.0}\" role=\"img\" aria-label=\"{label}\">\n"
        );
        Self { out }
    }

    pub(crate) fn finish(mut self) -> String {
        self.out.push_str("</svg>\n");
        self.out
    }

    fn push(&mut self, element: std::fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        let _ = self.out.write_fmt(element);
        self.out.push('\n');
    }

    pub(crate) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let ((x1, y1), (x2, y2)) = (from, to);
        self.push(format_args!(
            "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
        ));
    }

    /// A line through `points`.
    pub(crate) fn path(&mut self, class: &str, points: &[(f64, f64)]) {
        let mut path = String::new();
        for (at, (x, y)) in points.iter().enumerate() {
            let _ = write!(path, "{}{x:.1},{y:.1}", if at == 0 { "M" } else { "L" });
        }
        self.push(format_args!("<path class=\"line {class}\" d=\"{path}\"/>"));
    }

    /// A point with what it says when pointed at.
    pub(crate) fn point(&mut self, class: &str, (x, y): (f64, f64), title: &str, figure: Option<&PathValue>) {
        let (title, data) = (escaped(title), data(figure));
        self.push(format_args!(
            "<circle class=\"mark {class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\"{data}><title>{title}</title></circle>"
        ));
    }

    /// A box from `(x, y)`, at least a hair wide.
    pub(crate) fn rect(
        &mut self,
        class: &str,
        (x, y): (f64, f64),
        (width, height): (f64, f64),
        title: &str,
        figure: Option<&PathValue>,
    ) {
        let (title, data, width) = (escaped(title), data(figure), width.max(0.8));
        self.push(format_args!(
            "<rect class=\"fill {class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"{data}><title>{title}</title></rect>"
        ));
    }

    pub(crate) fn text(&mut self, class: &str, (x, y): (f64, f64), anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let text = escaped(text);
        self.push(format_args!(
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>"
        ));
    }

    /// A text that is read from below, around its middle.
    pub(crate) fn upright(&mut self, class: &str, (x, y): (f64, f64), text: &str) {
        let text = escaped(text);
        self.push(format_args!(
            "<text class=\"{class}\" transform=\"translate({x:.1} {y:.1}) rotate(-90)\" text-anchor=\"middle\">{text}</text>"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_a_meaning_in_markup_is_escaped() {
        let mut svg = Svg::new(10.0, 10.0, "a \"b\"");
        svg.text("tick", (1.0, 2.0), Anchor::End, "<1 & 2>");
        let drawn = svg.finish();
        assert!(
            drawn.contains("aria-label=\"a &quot;b&quot;\"") && drawn.contains(">&lt;1 &amp; 2&gt;</text>")
        );
        assert!(drawn.starts_with("<svg ") && drawn.ends_with("</svg>\n"));
    }

    #[test]
    fn a_mark_carries_its_figure_as_it_is() {
        let mut svg = Svg::new(10.0, 10.0, "");
        let figure = PathValue { path: "/plans/0/x".to_owned(), value: 0.123_45 };
        svg.point("c0", (1.0, 2.0), "t", Some(&figure));
        assert!(svg.finish().contains("data-path=\"/plans/0/x\" data-value=\"0.12345\""));
    }
}
