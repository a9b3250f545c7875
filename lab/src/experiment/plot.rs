//! Draws a summary: lines or bars with their spread, as SVG and PNG.
//!
//! [`Chart::of`] decides all positions and labels. The font is part of the program, for hosts without any.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use haul_sys::whole_file::{self, Mode};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{FontStyle, FontTransform};

use super::error::ExperimentError;
use super::matrix;
use super::sample::ClassChange;
use super::spec::{BandSpec, ExperimentSpec, Metric, PlotKind, PlotSpec};
use super::summary::{Row, Spread, Summary, figures};
use super::template::on_axis;

/// Pixels.
pub(super) const WIDTH: u32 = 1200;
/// Pixels.
pub(super) const HEIGHT: u32 = 640;
const LEGEND_WIDTH: u32 = 320;
const CAPTION_HEIGHT: u32 = 30;
const FONT: &str = "sans-serif";
const MOST_TICKS: f64 = 12.0;
/// A group's bars; the rest is the gap.
const GROUP_WIDTH: f64 = 0.8;

/// Colours for any colour vision (Okabe and Ito), then lighter ones.
const COLOURS: [RGBColor; 14] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(213, 94, 0),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(60, 60, 60),
    RGBColor(127, 184, 216),
    RGBColor(242, 207, 127),
    RGBColor(127, 206, 185),
    RGBColor(234, 174, 127),
    RGBColor(229, 188, 211),
    RGBColor(170, 217, 244),
    RGBColor(160, 160, 160),
];

#[derive(Debug)]
struct Chart {
    kind: PlotKind,
    title: String,
    caption: String,
    x_title: String,
    y_title: &'static str,
    ticks: Vec<(f64, String)>,
    bands: Vec<Band>,
    y_max: f64,
    series: Vec<Series>,
}

#[derive(Debug, PartialEq)]
struct Band {
    from: f64,
    until: f64,
    label: String,
}

#[derive(Debug)]
struct Series {
    label: String,
    points: Vec<(f64, Spread)>,
    marked: Vec<(f64, f64)>,
    elsewhere: Vec<(f64, f64)>,
}

/// Draws over `path` as `.svg` and `.png`, if there is a valid sample.
pub fn draw(
    spec: &ExperimentSpec,
    plot: &PlotSpec,
    summary: &Summary,
    date: &str,
    path: &Path,
) -> Result<Vec<PathBuf>, ExperimentError> {
    let Some(chart) = Chart::of(spec, plot, summary, date) else { return Ok(Vec::new()) };
    let svg = path.with_extension("svg");
    let png = path.with_extension("png");
    let error = |path: &Path, why: String| ExperimentError::Plot { path: path.to_owned(), why };

    let mut text = String::new();
    chart
        .draw_on(&SVGBackend::with_string(&mut text, (WIDTH, HEIGHT)).into_drawing_area())
        .map_err(|why| error(&svg, why))?;
    whole_file::write(&svg, text.as_bytes(), Mode::AsBefore).map_err(super::error::file("write", &svg))?;

    let mut pixels = vec![0; (WIDTH * HEIGHT * 3) as usize];
    chart
        .draw_on(&BitMapBackend::with_buffer(&mut pixels, (WIDTH, HEIGHT)).into_drawing_area())
        .map_err(|why| error(&png, why))?;
    let image = as_png(&pixels).map_err(|why| error(&png, why.to_string()))?;
    whole_file::write(&png, &image, Mode::AsBefore).map_err(super::error::file("write", &png))?;
    Ok(vec![svg, png])
}

fn as_png(pixels: &[u8]) -> Result<Vec<u8>, png::EncodingError> {
    let mut image = Vec::new();
    let mut encoder = png::Encoder::new(&mut image, WIDTH, HEIGHT);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(pixels)?;
    writer.finish()?;
    Ok(image)
}

fn marked_spans(changes: &[ClassChange]) -> Vec<(f64, f64)> {
    let mut spans: Vec<(f64, f64)> = Vec::new();
    let mut is_marked = false;
    for change in changes {
        // The rest names the mark, the lanes and the path.
        let becomes = change.class.starts_with("priority");
        match spans.last_mut() {
            Some(last) if is_marked && !becomes => last.1 = change.at_s,
            _ if becomes && !is_marked => spans.push((change.at_s, f64::INFINITY)),
            _ => {}
        }
        is_marked = becomes;
    }
    spans
}

impl Chart {
    fn of(spec: &ExperimentSpec, plot: &PlotSpec, summary: &Summary, date: &str) -> Option<Chart> {
        let rows: Vec<&Row> = summary.rows.iter().filter(|row| row.point.matches(&plot.at)).collect();
        if plot.kind == PlotKind::Time {
            return Chart::over_time(spec, plot, &rows, summary, date);
        }
        let ticks = ticks(spec, plot);
        let mut series: Vec<Series> = Vec::new();
        for &row in &rows {
            let position = ticks.iter().find(|(_, label)| *label == category(plot, row)).map(|(position, _)| *position);
            let Some(position) = position else { continue };
            let label = series_label(spec, plot, row);
            let at = match series.iter().position(|series| series.label == label) {
                Some(at) => at,
                None => {
                    series.push(Series { label, points: Vec::new(), marked: Vec::new(), elsewhere: Vec::new() });
                    series.len() - 1
                }
            };
            if let Some(spread) = row.metric(plot.y) {
                series[at].points.push((position, spread));
            }
            if let Some(value) = elsewhere(plot.y, row, spec.data.bytes()) {
                series[at].elsewhere.push((position, value));
            }
        }
        if series.iter().all(|series| series.points.is_empty()) {
            return None;
        }
        let tops = series.iter().flat_map(|series| {
            let ours = series.points.iter().map(|(_, spread)| spread.max);
            ours.chain(series.elsewhere.iter().map(|(_, value)| *value))
        });
        let y_max = tops.fold(0.0, f64::max) * 1.1;
        let x_title = plot.x_title.clone().or_else(|| plot.x.clone()).unwrap_or_default();
        let n = rows.iter().filter_map(|row| row.metric(plot.y)).map(|spread| spread.n).max().unwrap_or(0);
        let mut caption = format!("{}, engine {}, {date}; median of up to {n}", spec.name, summary.engines.join(", "));
        if n > 1 {
            caption.push_str(", bars from least to most");
        }
        if series.iter().any(|series| !series.elsewhere.is_empty()) {
            caption.push_str("; circles: measured elsewhere");
        }
        Some(Chart {
            kind: plot.kind,
            title: plot.title.clone(),
            caption,
            x_title,
            y_title: match plot.y {
                Metric::Rate => "Mbit/s",
                Metric::Seconds => "seconds",
                Metric::Cpu => "processor seconds per GB, both sides",
            },
            ticks,
            bands: bands(plot),
            y_max: if y_max > 0.0 { y_max } else { 1.0 },
            series,
        })
    }

    fn over_time(
        spec: &ExperimentSpec,
        plot: &PlotSpec,
        rows: &[&Row],
        summary: &Summary,
        date: &str,
    ) -> Option<Chart> {
        let mut series: Vec<Series> = Vec::new();
        for row in rows.iter().filter(|row| !row.intervals.is_empty()) {
            let points = row.intervals.iter().map(|interval| {
                let rate = interval.mbit_per_s();
                ((interval.from_s + interval.to_s) / 2.0, Spread { n: 1, median: rate, min: rate, max: rate })
            });
            let place = point_label(&row.point);
            let label = if rows.iter().all(|other| other.point == row.point) {
                row.tool.clone()
            } else {
                format!("{}, {place}", row.tool)
            };
            series.push(Series {
                label,
                points: points.collect(),
                marked: marked_spans(&row.class_changes),
                elsewhere: Vec::new(),
            });
        }
        let points = series.iter().flat_map(|series| &series.points);
        let (longest, most) =
            points.fold((0.0, 0.0), |(longest, most): (f64, f64), (x, spread)| (longest.max(*x), most.max(spread.max)));
        if most <= 0.0 {
            return None;
        }
        let every =
            spec.intervals.map_or_else(String::new, |every| format!(", read every {every} at the target's interfaces"));
        let caption = format!(
            "{}, engine {}, {date}; the middle one of each tool's copies{every}",
            spec.name,
            summary.engines.join(", ")
        );
        Some(Chart {
            kind: PlotKind::Time,
            title: plot.title.clone(),
            caption,
            x_title: plot.x_title.clone().unwrap_or_else(|| "seconds since the tool was started".into()),
            y_title: "Mbit/s, headers included",
            ticks: even_ticks(longest),
            bands: Vec::new(),
            y_max: most * 1.1,
            series,
        })
    }

    fn draw_on<B: DrawingBackend>(&self, root: &DrawingArea<B, Shift>) -> Result<(), String> {
        register_font();
        self.draw_parts(root).map_err(|error| error.to_string())?;
        root.present().map_err(|error| error.to_string())
    }

    fn draw_parts<B: DrawingBackend>(
        &self,
        root: &DrawingArea<B, Shift>,
    ) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
        root.fill(&WHITE)?;
        let (upper, lower) = root.split_vertically(HEIGHT - CAPTION_HEIGHT);
        let caption = (FONT, 13).into_font().color(&RGBColor(90, 90, 90));
        lower.draw(&Text::new(self.caption.as_str(), (20, 4), caption))?;
        let (left, right) = upper.split_horizontally(WIDTH - LEGEND_WIDTH);
        self.draw_legend(&right)?;

        let mut chart = ChartBuilder::on(&left)
            .caption(&self.title, (FONT, 20))
            .margin(12)
            .x_label_area_size(56)
            .y_label_area_size(84)
            .build_cartesian_2d(Axis { range: self.x_range(), ticks: self.ticks.clone() }, 0.0..self.y_max)?;
        let mut mesh = chart.configure_mesh();
        if self.kind == PlotKind::Bar {
            mesh.disable_x_mesh();
        }
        mesh.x_labels(self.ticks.len())
            .y_label_formatter(&|y| if self.y_max < 10.0 { format!("{y:.1}") } else { format!("{y:.0}") })
            .x_desc(&self.x_title)
            .y_desc(self.y_title)
            .label_style((FONT, 14))
            .axis_desc_style((FONT, 15))
            .light_line_style(WHITE.mix(0.0))
            .draw()?;
        let (left_end, right_end) = self.x_range();
        for (number, band) in self.bands.iter().enumerate() {
            let (from, until) = (band.from.clamp(left_end, right_end), band.until.clamp(left_end, right_end));
            chart.draw_series([Rectangle::new([(from, 0.0), (until, self.y_max)], BLACK.mix(0.08).filled())])?;
            // Words of narrow bands stand below each other; beyond the right end is no room.
            let (side, at) =
                if until < right_end { (HPos::Center, (from + until) / 2.0) } else { (HPos::Right, until) };
            let style = (FONT, 12).into_font().color(&BLACK).pos(Pos::new(side, VPos::Top));
            let height = self.y_max * (0.99 - 0.04 * number as f64);
            chart.draw_series([Text::new(band.label.clone(), (at, height), style)])?;
        }
        for (number, series) in self.series.iter().enumerate() {
            let colour = colour(number);
            let shift = self.shift(number);
            let middle = |x: f64| x + shift;
            if self.kind != PlotKind::Bar {
                let line = series.points.iter().map(|(x, spread)| (middle(*x), spread.median));
                chart.draw_series(LineSeries::new(line, colour.stroke_width(2)))?;
                for (from, until) in &series.marked {
                    let points = series.points.iter().filter(|(x, _)| (*from..=*until).contains(x));
                    let line = points.map(|(x, spread)| (*x, spread.median));
                    chart.draw_series(LineSeries::new(line, colour.stroke_width(6)))?;
                }
                let marked = if self.kind == PlotKind::Line { &series.points[..] } else { &[] };
                let dots =
                    marked.iter().map(|(x, spread)| Circle::new((middle(*x), spread.median), 4, colour.filled()));
                chart.draw_series(dots)?;
            } else {
                let half = self.bar_width() * 0.45;
                chart.draw_series(series.points.iter().map(|(x, spread)| {
                    let corners = [(middle(*x) - half, 0.0), (middle(*x) + half, spread.median)];
                    Rectangle::new(corners, colour.mix(0.85).filled())
                }))?;
                let style = (FONT, 12).into_font().color(&BLACK).pos(Pos::new(HPos::Center, VPos::Bottom));
                chart.draw_series(series.points.iter().map(|(x, spread)| {
                    let above = spread.max + self.y_max * 0.01;
                    Text::new(figures(spread.median), (middle(*x), above), style.clone())
                }))?;
                let (wide, high) = chart.plotting_area().dim_in_pixel();
                let room = Room {
                    bar_px: f64::from(wide) * self.bar_width() / (right_end - left_end),
                    px_of_one: f64::from(high) / self.y_max,
                };
                let style = (FONT, NAME_HEIGHT).into_font().transform(FontTransform::Rotate270).color(&BLACK);
                let style = style.pos(Pos::new(HPos::Left, VPos::Center));
                let in_bar = if is_dark(colour) { style.color(&WHITE) } else { style.clone() };
                chart.draw_series(series.points.iter().filter_map(|(x, spread)| {
                    let (from, style) = match room.of_name(&series.label, spread)? {
                        NamePlace::InBar => (NAME_GAP_PX / room.px_of_one, &in_bar),
                        NamePlace::Above(from) => (from, &style),
                    };
                    Some(Text::new(series.label.clone(), (middle(*x), from), style.clone()))
                }))?;
            }
            let edge = if self.kind == PlotKind::Bar { RGBColor(40, 40, 40) } else { colour };
            chart.draw_series(series.points.iter().filter(|(_, spread)| spread.n > 1).map(|(x, spread)| {
                ErrorBar::new_vertical(middle(*x), spread.min, spread.median, spread.max, edge.filled(), 8)
            }))?;
            chart.draw_series(
                series.elsewhere.iter().map(|(x, value)| Circle::new((middle(*x), *value), 6, BLACK.stroke_width(2))),
            )?;
        }
        Ok(())
    }

    fn draw_legend<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
    ) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
        let style = (FONT, 14).into_font().color(&BLACK).pos(Pos::new(HPos::Left, VPos::Center));
        for (number, series) in self.series.iter().enumerate() {
            let y = 60 + number as i32 * 18;
            area.draw(&Rectangle::new([(4, y - 5), (18, y + 5)], colour(number).filled()))?;
            area.draw(&Text::new(series.label.as_str(), (26, y), style.clone()))?;
        }
        Ok(())
    }

    fn x_range(&self) -> (f64, f64) {
        let least = self.ticks.iter().map(|(position, _)| *position).fold(f64::INFINITY, f64::min);
        let most = self.ticks.iter().map(|(position, _)| *position).fold(f64::NEG_INFINITY, f64::max);
        let room = match self.kind {
            PlotKind::Bar => 0.5,
            PlotKind::Line if most > least => (most - least) * 0.04,
            PlotKind::Line => 1.0,
            PlotKind::Time => 0.0,
        };
        (least - room, most + room)
    }

    fn bar_width(&self) -> f64 {
        GROUP_WIDTH / self.series.len().max(1) as f64
    }

    fn shift(&self, number: usize) -> f64 {
        match self.kind {
            PlotKind::Line | PlotKind::Time => 0.0,
            PlotKind::Bar => (number as f64 + 0.5) * self.bar_width() - GROUP_WIDTH / 2.0,
        }
    }
}

struct Room {
    bar_px: f64,
    /// Pixels for one on the y axis.
    px_of_one: f64,
}

impl Room {
    fn of_name(&self, name: &str, spread: &Spread) -> Option<NamePlace> {
        if self.bar_px < f64::from(NAME_HEIGHT) {
            return None;
        }
        let needs_px = name.chars().count() as f64 * LETTER_PX + 2.0 * NAME_GAP_PX;
        // The line from least to most crosses the middle of the bar.
        let free_px = if spread.n > 1 { spread.min } else { spread.median } * self.px_of_one;
        let above = spread.max + FIGURE_PX / self.px_of_one;
        Some(if needs_px <= free_px { NamePlace::InBar } else { NamePlace::Above(above) })
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum NamePlace {
    InBar,
    /// Above the bar's figure, from this y value.
    Above(f64),
}

/// Whether black words are unreadable on it (ITU-R BT.601).
fn is_dark(RGBColor(red, green, blue): RGBColor) -> bool {
    299 * u32::from(red) + 587 * u32::from(green) + 114 * u32::from(blue) < 80_000
}

const NAME_HEIGHT: u32 = 12;
const LETTER_PX: f64 = 6.5;

const NAME_GAP_PX: f64 = 6.0;
const FIGURE_PX: f64 = 24.0;

struct Axis {
    range: (f64, f64),
    ticks: Vec<(f64, String)>,
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let share = (value - self.range.0) / (self.range.1 - self.range.0);
        limit.0 + (share * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _hint: Hint) -> Vec<f64> {
        self.ticks.iter().map(|(position, _)| *position).collect()
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.range.0..self.range.1
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        let tick = self.ticks.iter().find(|(position, _)| position == value);
        tick.map_or(String::new(), |(_, label)| label.clone())
    }
}

/// Positions on the x axis; bars and words in even steps.
fn ticks(spec: &ExperimentSpec, plot: &PlotSpec) -> Vec<(f64, String)> {
    let Some(values) = plot.x.as_ref().and_then(|x| spec.sweep.get(x)) else {
        let labels = matrix::points(&spec.sweep).into_iter().map(|point| point_label(&point));
        return labels.enumerate().map(|(at, label)| (at as f64, label)).collect();
    };
    let numbers: Option<Vec<f64>> = values.iter().map(|value| on_axis(&value.0)).collect();
    let Some(numbers) = numbers.filter(|_| plot.kind == PlotKind::Line) else {
        return values.iter().enumerate().map(|(at, value)| (at as f64, value.0.clone())).collect();
    };
    let is_log = plot.log_x && numbers.iter().all(|number| *number > 0.0);
    let position = |number: f64| if is_log { number.log2() } else { number };
    numbers.into_iter().zip(values).map(|(number, value)| (position(number), value.0.clone())).collect()
}

/// A tenth of a doubling at both sides shows single values, too.
fn bands(plot: &PlotSpec) -> Vec<Band> {
    const WIDER: f64 = 1.07;
    let position = |number: f64| if plot.log_x { number.log2() } else { number };
    let band = |band: &BandSpec| {
        let (from, until) = (on_axis(&band.from.0)? / WIDER, on_axis(&band.until.0)? * WIDER);
        Some(Band { from: position(from), until: position(until), label: band.label.clone() })
    };
    plot.bands.iter().filter_map(band).collect()
}

/// Steps of one, two or five times a power of ten, from zero to at least `most`.
fn even_ticks(most: f64) -> Vec<(f64, String)> {
    let most = most.max(1e-3);
    let power = 10f64.powf((most / MOST_TICKS).log10().floor());
    let step = [1.0, 2.0, 5.0].map(|factor| factor * power).into_iter().find(|step| most / step <= MOST_TICKS);
    let step = step.unwrap_or(power * 10.0);
    let digits = if step < 1.0 { (-step.log10().floor()) as usize } else { 0 };
    let count = (most / step).ceil() as u32;
    (0..=count).map(|number| (f64::from(number) * step, format!("{:.digits$}", f64::from(number) * step))).collect()
}

fn category(plot: &PlotSpec, row: &Row) -> String {
    match &plot.x {
        Some(x) => row.point.values.get(x).cloned().unwrap_or_default(),
        None => point_label(&row.point),
    }
}

fn point_label(point: &matrix::Point) -> String {
    point.values.values().map(String::as_str).collect::<Vec<_>>().join(", ")
}

fn series_label(spec: &ExperimentSpec, plot: &PlotSpec, row: &Row) -> String {
    let mut label = row.tool.clone();
    if let Some(x) = &plot.x {
        for name in spec.sweep.keys().filter(|name| *name != x) {
            if let Some(value) = row.point.values.get(name) {
                label.push_str(&format!(", {name} {value}"));
            }
        }
    }
    label
}

/// Somebody else's figure. For the same data, rate and time convert.
fn elsewhere(metric: Metric, row: &Row, bytes: u64) -> Option<f64> {
    let mbit = bytes as f64 * 8.0 / 1e6;
    match metric {
        Metric::Rate => row.elsewhere_mbit_per_s.or_else(|| row.elsewhere_seconds.map(|seconds| mbit / seconds)),
        // Others' rates hold for other data and give no time.
        Metric::Seconds => row.elsewhere_seconds,
        Metric::Cpu => None,
    }
}

fn colour(number: usize) -> RGBColor {
    COLOURS[number % COLOURS.len()]
}

fn register_font() {
    static DONE: OnceLock<()> = OnceLock::new();
    DONE.get_or_init(|| {
        let registered = register_text_font();
        debug_assert!(registered, "the font is part of the program and can be read");
    });
}

fn register_text_font() -> bool {
    [FontStyle::Normal, FontStyle::Bold]
        .into_iter()
        .all(|style| plotters::style::register_font(FONT, style, epaint_default_fonts::HACK_REGULAR).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Interval;

    #[test]
    fn the_class_that_haul_names_says_when_a_line_is_thick() {
        let change = |at_s, class: &str| ClassChange { at_s, class: class.to_owned(), reason: String::new() };
        let changes = [
            change(1.5, "priority (marked EF), 7 lanes of path 0"),
            change(2.0, "priority (marked EF), 3 lanes of path 0"),
            change(6.2, "normal, path 0"),
            change(8.0, "priority (marked EF)"),
        ];
        assert_eq!(marked_spans(&changes), [(1.5, 6.2), (8.0, f64::INFINITY)]);
    }

    const SPEC: &str = r#"
        name = "x"
        title = "X"
        repeat = 2
        timeout = "5s"
        topology = "hosts = { client = {}, server = {} }"
        sweep = { buffer = ["2MiB", "4MiB", "8MiB"], cc = ["cubic", "bbr"] }
        data = { size = "1MB" }
        tools = [{ rival = "scp" }, { rival = "rsync" }]
        plots = [
            { kind = "line", x = "buffer", y = "rate", title = "Rate", log_x = true, bands = [{ from = "2MiB", until = "4MiB", label = "best there" }] },
            { kind = "bar", y = "seconds", title = "Time" },
            { kind = "time", y = "rate", title = "Course", at = { buffer = "4MiB" } },
        ]
        intervals = "1s"
        figures = [{ tool = "scp", at = { buffer = "4MiB" }, rate = "3Mbit" }]
    "#;

    fn summary(spec: &ExperimentSpec) -> Summary {
        let mut summary = Summary::of(spec, &[], &[]);
        summary.engines = vec!["emulated".into()];
        summary.rows.clear();
        for (number, point) in matrix::points(&spec.sweep).into_iter().enumerate() {
            for tool in ["scp", "rsync"] {
                let middle = 3.0 + number as f64;
                let spread = Some(Spread { n: 2, median: middle, min: middle - 1.0, max: middle + 2.0 });
                summary.rows.push(Row {
                    point: point.clone(),
                    tool: tool.into(),
                    seconds: spread,
                    rate_mbit_per_s: spread,
                    elsewhere_mbit_per_s: (tool == "scp").then_some(3.0),
                    intervals: (0..30)
                        .map(|second| Interval {
                            from_s: f64::from(second),
                            to_s: f64::from(second + 1),
                            bytes: 1_000_000 * u64::from(second.min(number as u32 + 5)),
                        })
                        .collect(),
                    ..Row::default()
                });
            }
        }
        summary
    }

    #[test]
    fn a_chart_has_a_series_for_each_tool_and_other_parameter() {
        let spec = ExperimentSpec::parse(SPEC).unwrap();
        let chart = Chart::of(&spec, &spec.plots[0], &summary(&spec), "2026-11-21").unwrap();
        let labels: Vec<&str> = chart.series.iter().map(|series| series.label.as_str()).collect();
        assert_eq!(labels, ["scp, cc cubic", "rsync, cc cubic", "scp, cc bbr", "rsync, cc bbr"]);
        assert_eq!(chart.ticks, [(21.0, "2MiB".into()), (22.0, "4MiB".into()), (23.0, "8MiB".into())]);
        assert_eq!(chart.series[0].elsewhere.len(), 3);
        let [band] = &chart.bands[..] else { panic!("{:?}", chart.bands) };
        assert!((20.8..21.0).contains(&band.from) && (22.0..22.2).contains(&band.until), "{band:?}");
        assert!(Chart::of(&spec, &spec.plots[0], &Summary::of(&spec, &[], &[]), "").is_none());
    }

    #[test]
    fn a_chart_over_time_has_a_line_for_each_copy() {
        let spec = ExperimentSpec::parse(SPEC).unwrap();
        let chart = Chart::of(&spec, &spec.plots[2], &summary(&spec), "2026-11-21").unwrap();
        let labels: Vec<&str> = chart.series.iter().map(|series| series.label.as_str()).collect();
        assert_eq!(labels, ["scp, 4MiB, cubic", "rsync, 4MiB, cubic", "scp, 4MiB, bbr", "rsync, 4MiB, bbr"]);
        assert_eq!((chart.series[0].points[2].0, chart.series[0].points[2].1.median), (2.5, 16.0));
        let words: Vec<&str> = chart.ticks.iter().map(|(_, word)| word.as_str()).collect();
        assert_eq!(words, ["0", "5", "10", "15", "20", "25", "30"]);
        assert_eq!(even_ticks(0.9).last().unwrap().1, "0.9");
        assert!(Chart::of(&spec, &spec.plots[2], &Summary::of(&spec, &[], &[]), "").is_none());
    }

    #[test]
    fn the_name_of_a_bar_stands_in_the_bar_or_above_its_figure() {
        let room = Room { bar_px: 40.0, px_of_one: 1.0 };
        let bar = |height: f64| Spread { n: 1, median: height, min: height, max: height };
        assert_eq!(room.of_name("aria2 -x 16", &bar(400.0)), Some(NamePlace::InBar));
        assert_eq!(room.of_name("aria2 -x 16", &bar(30.0)), Some(NamePlace::Above(30.0 + FIGURE_PX)));
        let between = Spread { n: 2, median: 90.0, min: 50.0, max: 120.0 };
        let above = Some(NamePlace::Above(120.0 + FIGURE_PX));
        assert_eq!(room.of_name("aria2 -x 16", &between), above, "the line would cross it");
        assert_eq!(Room { bar_px: 5.0, ..room }.of_name("scp", &bar(400.0)), None);
        assert!(is_dark(RGBColor(60, 60, 60)) && !is_dark(RGBColor(0, 114, 178)));
    }

    #[test]
    fn plots_are_files_of_the_right_kind_and_size() {
        let spec = ExperimentSpec::parse(SPEC).unwrap();
        let dir = tempfile::tempdir().unwrap();
        for (number, plot) in spec.plots.iter().enumerate() {
            let path = dir.path().join(format!("plot-{number}"));
            let drawn = draw(&spec, plot, &summary(&spec), "2026-11-21", &path).unwrap();
            let svg = std::fs::read_to_string(&drawn[0]).unwrap();
            assert!(svg.starts_with("<svg width=\"1200\" height=\"640\"") && svg.trim_end().ends_with("</svg>"));
            assert!(svg.contains(&plot.title) && svg.contains("engine emulated") && svg.contains("2026-11-21"));
            assert_eq!(svg.contains("best there"), !plot.bands.is_empty());
            let named = if plot.kind == PlotKind::Bar { 1 + 6 } else { 0 };
            assert!(named == 0 || svg.matches("\nrsync\n").count() == named, "{svg}");
            assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
            let decoder = png::Decoder::new(std::io::BufReader::new(std::fs::File::open(&drawn[1]).unwrap()));
            let mut reader = decoder.read_info().unwrap();
            assert_eq!((reader.info().width, reader.info().height), (WIDTH, HEIGHT));
            let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
            reader.next_frame(&mut pixels).unwrap();
            let inked = pixels.chunks(3).filter(|pixel| *pixel != [255, 255, 255]).count();
            assert!(inked > 5000, "{inked} pixels are not white");
            if let Some(keep) = std::env::var_os("HAUL_LAB_KEEP_PLOTS") {
                for path in drawn {
                    std::fs::copy(&path, Path::new(&keep).join(path.file_name().unwrap())).unwrap();
                }
            }
        }
    }
}
