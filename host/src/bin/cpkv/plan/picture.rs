//! A batch as a picture: a row a request, a cell a page in its dense slot, and below them the staging slots.

use svg::Document;
use svg::node::element::{Definitions, Group, Line, Path, Pattern, Rectangle, Style, Text, Title};

use super::palette::colour;
use super::text::first_to_last;
use super::view::{PageView, PlanView, RequestView};
use crate::report::counted;

/// The most cells that are drawn one by one; of more, runs are drawn as one.
const MAX_CELLS: u32 = 4000;
const MARGIN: f64 = 24.0;
/// Where cells begin: labels stand to the left.
const LEFT: f64 = 212.0;
/// Width of all cells of a line.
const PLOT: f64 = 1008.0;
/// Cells of a line, where they are drawn one by one.
const LINE_CELLS: usize = 96;
const CELL_HEIGHT: f64 = 16.0;
const LINE_STEP: f64 = 20.0;
const REQUEST_GAP: f64 = 7.0;
/// Height of the strip that shows who keeps a current page.
const STRIP_HEIGHT: f64 = 4.0;
const LEGEND_COLUMNS: u32 = 4;

/// A self-contained SVG document.
pub(super) fn draw(view: &PlanView) -> String {
    let mut picture = Picture::new(view);
    picture.title();
    picture.legend();
    picture.dense();
    picture.staging();
    picture.finish()
}

/// A run of pages in one line: where, how many, how it is filled, and what a pointer over it says.
struct Run {
    first: usize,
    len: usize,
    class: String,
    /// The owner, where one strip can show it.
    owner: Option<u32>,
    says: String,
}

/// The picture so far, and how far down it goes.
struct Picture<'a> {
    view: &'a PlanView,
    /// Whether each page has its own cell.
    cells: bool,
    body: Group,
    y: f64,
}

impl<'a> Picture<'a> {
    fn new(view: &'a PlanView) -> Self {
        Self { view, cells: view.dense_slots <= MAX_CELLS, body: Group::new(), y: MARGIN }
    }

    fn add(&mut self, node: impl Into<Box<dyn svg::Node>>) {
        self.body = std::mem::take(&mut self.body).add(node);
    }

    fn text(&mut self, x: f64, y: f64, class: &str, text: impl Into<String>) {
        self.add(Text::new(text).set("x", x).set("y", y).set("class", class));
    }

    fn title(&mut self) {
        let view = self.view;
        self.y += 14.0;
        let (requests, ranks) =
            (counted(view.requests.len(), "request"), counted(view.group_size as usize, "rank"));
        self.text(MARGIN, self.y, "title", format!("Batch {}: {requests} over {ranks}", view.batch));
        self.y += 20.0;
        let about = format!(
            "{} new and {} prefix tokens; model {}, {} tokens a page; {}, egress skew {:.2}",
            view.new_tokens, view.prefix_tokens, view.model, view.page_size, view.strategy, view.egress_skew,
        );
        self.text(MARGIN, self.y, "muted", about);
        self.y += 26.0;
    }

    fn legend(&mut self) {
        let view = self.view;
        let keys = match self.cells {
            true => "solid: current page, by the rank that computes it; the strip below, by the rank that keeps it; hatched: \
                     prefix page, by owner"
                .to_owned(),
            false => format!(
                "solid: current pages, by the rank that computes them; hatched: prefix pages, page p owned by rank p mod {}",
                view.group_size
            ),
        };
        self.text(MARGIN, self.y, "", keys);
        self.y += LINE_STEP;
        self.text(MARGIN, self.y, "muted", "pages of each rank: computed; owned, prefix + current");
        self.y += 10.0;
        let width = (LEFT + PLOT - MARGIN) / f64::from(LEGEND_COLUMNS);
        for rank in &view.ranks {
            let (column, line) = (rank.rank % LEGEND_COLUMNS, rank.rank / LEGEND_COLUMNS);
            let (x, y) = (MARGIN + f64::from(column) * width, self.y + f64::from(line) * LINE_STEP);
            self.add(rectangle(x, y, 16.0, 12.0, &format!("w{}", rank.rank)));
            self.add(rectangle(x + 18.0, y, 16.0, 12.0, &format!("p{}", rank.rank)));
            let says = format!(
                "rank {}: computes {}; owns {} + {}",
                rank.rank, rank.computed_pages, rank.owned_prefix_pages, rank.owned_current_pages
            );
            self.text(x + 40.0, y + 10.0, "", says);
        }
        self.y += f64::from(view.group_size.div_ceil(LEGEND_COLUMNS)) * LINE_STEP + 24.0;
    }

    /// The first band: dense slots.
    fn dense(&mut self) {
        let view = self.view;
        let longest = view.requests.iter().map(|request| request.pages.len()).max().unwrap_or(0);
        let per_line = if self.cells { LINE_CELLS } else { longest.max(1) };
        let about = match self.cells {
            true => format!("one cell a page, counted within the request, {LINE_CELLS} a line"),
            false => "pages, counted within the request, in runs of one kind or rank".to_owned(),
        };
        self.band("Dense slots", &about, per_line);
        for (idx, request) in view.requests.iter().enumerate() {
            let more = if request.is_last_chunk { "" } else { ", cut" };
            self.text(
                MARGIN,
                self.y + 12.0,
                "",
                format!("#{idx}  line {}, chunk {}{more}", request.trace_line, request.chunk),
            );
            let runs = self.runs_of(request);
            let num_lines = self.lines(&runs, request.pages.len(), per_line, "cell");
            if num_lines > 1 {
                let slots = format!("slots {}", first_to_last(&request.dense_slots));
                self.text(MARGIN, self.y + LINE_STEP + 12.0, "muted", slots);
            }
            self.y += num_lines as f64 * LINE_STEP + REQUEST_GAP;
        }
        self.y += 20.0;
    }

    /// The second band: staging slots, by current index.
    fn staging(&mut self) {
        let view = self.view;
        let num_slots = view.staging_slots as usize;
        let per_line = if self.cells { LINE_CELLS } else { num_slots.max(1) };
        let about = format!(
            "the batch's current pages, by the rank that fills the slot; {num_slots} of the {} slots of a half",
            view.staging_capacity
        );
        self.band("Staging slots", &about, per_line);
        let mut runs = Vec::new();
        let mut edges = Vec::new();
        for (idx, request) in view.requests.iter().enumerate() {
            edges.push(request.staging_slots.start as usize);
            for segment in &request.segments {
                let (rank, slots) = (segment.writer, &segment.staging_slots);
                let parts = if self.cells { slots.len() } else { 1 };
                let len = slots.len() / parts;
                runs.extend((0..parts).map(|part| Run {
                    first: slots.start as usize + part * len,
                    len,
                    class: format!("w{rank}"),
                    owner: None,
                    says: format!("#{idx}, segment {}: rank {rank}", segment.segment),
                }));
            }
        }
        let num_lines = self.lines(&runs, num_slots, per_line, "staging");
        let step = PLOT / per_line as f64;
        for edge in edges.into_iter().filter(|&edge| edge > 0 && edge < num_slots) {
            let x = LEFT + (edge % per_line) as f64 * step - 0.5;
            let y = self.y + (edge / per_line) as f64 * LINE_STEP;
            self.add(line(x, y - 2.0, x, y + CELL_HEIGHT + 2.0, "edge"));
        }
        self.text(MARGIN, self.y + 12.0, "", "all requests in turn");
        self.y += num_lines as f64 * LINE_STEP + REQUEST_GAP;
    }

    /// A band's title and its axis.
    fn band(&mut self, title: &str, axis: &str, per_line: usize) {
        self.text(MARGIN, self.y, "band", title);
        self.text(LEFT, self.y, "muted", axis);
        self.y += 18.0;
        let step = PLOT / per_line as f64;
        let every = tick_step(per_line);
        for tick in (0..=per_line).step_by(every) {
            let x = LEFT + tick as f64 * step;
            self.add(line(x, self.y + 2.0, x, self.y + 6.0, "axis"));
            self.text(x, self.y, "tick", tick.to_string());
        }
        self.add(line(LEFT, self.y + 6.0, LEFT + PLOT, self.y + 6.0, "axis"));
        self.y += 12.0;
    }

    /// A request's pages as runs: each page alone, or all prefix pages, then the segments.
    fn runs_of(&self, request: &RequestView) -> Vec<Run> {
        if self.cells {
            return request.pages.iter().enumerate().map(|(at, page)| cell(request, at, page)).collect();
        }
        let num_prefix = request.prefix_pages as usize;
        let prefix = (num_prefix > 0).then(|| Run {
            first: 0,
            len: num_prefix,
            class: "p-all".to_owned(),
            owner: None,
            says: format!("{num_prefix} prefix pages, page p of rank p mod {}", self.view.group_size),
        });
        let segments = request.segments.iter().map(|segment| Run {
            first: num_prefix + (segment.staging_slots.start - request.staging_slots.start) as usize,
            len: segment.staging_slots.len(),
            class: format!("w{}", segment.writer),
            owner: None,
            says: format!("segment {}: rank {} computes it", segment.segment, segment.writer),
        });
        prefix.into_iter().chain(segments).collect()
    }

    /// Draws runs of `num_cells` cells, `per_line` a line; how many lines.
    fn lines(&mut self, runs: &[Run], num_cells: usize, per_line: usize, class: &str) -> usize {
        let step = PLOT / per_line as f64;
        let gap = if self.cells { 1.0 } else { 0.0 };
        for run in runs {
            let x = LEFT + (run.first % per_line) as f64 * step;
            let y = self.y + (run.first / per_line) as f64 * LINE_STEP;
            let width = run.len as f64 * step - gap;
            let class = format!("{class} {}", run.class);
            self.add(rectangle(x, y, width, CELL_HEIGHT, &class).add(Title::new(run.says.clone())));
            if let Some(owner) = run.owner {
                let y = y + CELL_HEIGHT - STRIP_HEIGHT;
                self.add(rectangle(x, y - 1.0, width, STRIP_HEIGHT + 1.0, "bg"));
                self.add(rectangle(x, y, width, STRIP_HEIGHT, &format!("w{owner}")));
            }
        }
        num_cells.div_ceil(per_line).max(1)
    }

    fn finish(self) -> String {
        let (width, height) = (LEFT + PLOT + MARGIN, self.y + MARGIN);
        let ranks = || 0..self.view.group_size;
        let mut patterns = Definitions::new().add(hatch("prefix-all", "any"));
        for rank in ranks() {
            patterns = patterns.add(hatch(&format!("prefix-{rank}"), &format!("w{rank}")));
        }
        let mut style = STYLE.to_owned();
        for rank in ranks() {
            let colour = colour(rank, self.view.group_size);
            style += &format!(".w{rank}{{fill:{colour}}}.p{rank}{{fill:url(#prefix-{rank})}}\n");
        }
        let document = Document::new()
            .set("viewBox", (0, 0, width, height))
            .set("width", width)
            .set("height", height)
            .set("role", "img")
            .add(Title::new(format!("Batch {} over {} ranks", self.view.batch, self.view.group_size)))
            .add(Style::new(style))
            .add(patterns)
            .add(Rectangle::new().set("class", "bg").set("width", "100%").set("height", "100%"))
            .add(self.body);
        format!("{document}\n")
    }
}

/// Light, or dark where the reader prefers that. The background is drawn, so a page around it does not matter.
const STYLE: &str = "\
text{font:12px system-ui,'Segoe UI',Helvetica,Arial,sans-serif;fill:#1f2328}
.title{font-size:18px;font-weight:600}.band{font-weight:600}
.tick{font-size:10px;text-anchor:middle;fill:#59636e}.muted{fill:#59636e}
.bg{fill:#ffffff}.hatch{stroke:#ffffff;stroke-width:1.6}.any,.p-all{fill:#8c959f}.p-all{fill:url(#prefix-all)}
.axis{stroke:#8c959f}.edge{stroke:#1f2328;stroke-width:2}
@media (prefers-color-scheme:dark){text{fill:#e6edf3}.tick,.muted{fill:#9198a1}.bg{fill:#0d1117}
.hatch{stroke:#0d1117}.edge{stroke:#e6edf3}}
";

/// One page.
fn cell(request: &RequestView, at: usize, page: &PageView) -> Run {
    let slot = request.dense_slots.start as usize + at;
    let PageView { page: id, owner, .. } = *page;
    match page.writer {
        Some(writer) => Run {
            first: at,
            len: 1,
            class: format!("w{writer}"),
            owner: Some(owner),
            says: format!("slot {slot}: page {id}, computed by rank {writer}, kept by rank {owner}"),
        },
        None => Run {
            first: at,
            len: 1,
            class: format!("p{owner}"),
            owner: None,
            says: format!("slot {slot}: page {id}, prefix, owned by rank {owner}"),
        },
    }
}

/// A hatch over the fill of `class`.
fn hatch(id: &str, class: &str) -> Pattern {
    Pattern::new()
        .set("id", id)
        .set("width", 5)
        .set("height", 5)
        .set("patternUnits", "userSpaceOnUse")
        .add(rectangle(0.0, 0.0, 5.0, 5.0, class))
        .add(Path::new().set("class", "hatch").set("d", "M-1 1L1 -1M0 5L5 0M4 6L6 4"))
}

fn rectangle(x: f64, y: f64, width: f64, height: f64, class: &str) -> Rectangle {
    Rectangle::new()
        .set("x", rounded(x))
        .set("y", rounded(y))
        .set("width", rounded(width))
        .set("height", rounded(height))
        .set("class", class)
}

fn line(x1: f64, y1: f64, x2: f64, y2: f64, class: &str) -> Line {
    let ends = [("x1", x1), ("y1", y1), ("x2", x2), ("y2", y2)];
    ends.into_iter()
        .fold(Line::new().set("class", class), |line, (name, value)| line.set(name, rounded(value)))
}

/// Two decimals: files stay small.
fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

/// Cells between two ticks: a power of two, for some eight ticks.
const fn tick_step(per_line: usize) -> usize {
    (per_line / 8).next_power_of_two()
}
