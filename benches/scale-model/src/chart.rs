//! Line charts as SVG, readable on light and dark pages. Pure functions.

use std::fmt::Write;

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 78.0;
const RIGHT: f64 = 620.0;
const TOP: f64 = 48.0;
const BOTTOM: f64 = 366.0;
/// Colours that are told apart on white and on black, and by most colour-blind readers.
const COLOURS: [&str; 8] =
    ["#2f7ed8", "#d9822b", "#2f9e6e", "#a05cc9", "#d1495b", "#8a8f2a", "#2aa3b8", "#8d6e63"];
const STYLE: &str = "<style>\
    :root{--page:#fff;--ink:#24292f;--soft:#6e7781;--grid:#d8dee4}\
    @media(prefers-color-scheme:dark){:root{--page:#0d1117;--ink:#e6edf3;--soft:#8b949e;--grid:#30363d}}\
    .page{fill:var(--page)}.ink{fill:var(--ink)}.soft{fill:var(--soft)}\
    .grid{stroke:var(--grid);stroke-width:1}.guide{stroke:var(--ink);stroke-dasharray:5 4}\
    </style>";

/// Scale of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    Linear,
    Log,
}

/// Axis with its bounds.
#[derive(Clone, Debug)]
pub(crate) struct Axis {
    pub(crate) label: String,
    pub(crate) scale: Scale,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// Point of a line, with an interval that is drawn as a bar.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Point {
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) interval: Option<Interval>,
}

/// Bounds of a confidence interval.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Interval {
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// Named line; single points are drawn as dots.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) colour: usize,
    pub(crate) points: Vec<Point>,
}

/// Chart.
#[derive(Clone, Debug)]
pub(crate) struct Chart {
    pub(crate) title: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) lines: Vec<Line>,
    /// Value of `y` with a dashed line.
    pub(crate) guide: Option<f64>,
}

impl Point {
    /// Returns a point without an interval.
    pub(crate) fn at(x: f64, y: f64) -> Self {
        Self { x, y, interval: None }
    }
}

impl Axis {
    /// Returns the position of a value between 0 and 1, clamped.
    fn place(&self, value: f64) -> f64 {
        let (value, low, high) = match self.scale {
            Scale::Linear => (value, self.low, self.high),
            Scale::Log => (value.max(self.low).ln(), self.low.ln(), self.high.ln()),
        };
        ((value - low) / (high - low)).clamp(0.0, 1.0)
    }

    /// Returns the values with grid lines: powers of ten, or about five round steps.
    fn ticks(&self) -> Vec<f64> {
        if self.scale == Scale::Log {
            let (first, last) = (self.low.log10().ceil() as i32, self.high.log10().floor() as i32);
            let every = ((last - first) / 8 + 1) as usize;
            return (first..=last).step_by(every).map(|power| 10f64.powi(power)).collect();
        }
        let rough = (self.high - self.low) / 5.0;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|it| it * power).into_iter().find(|it| *it >= rough);
        let step = step.unwrap_or(rough);
        let first = (self.low / step).ceil() as i64;
        let last = (self.high / step + 1e-9).floor() as i64;
        (first..=last).map(|at| at as f64 * step).collect()
    }
}

/// Draws a chart as SVG.
pub(crate) fn draw(chart: &Chart) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"system-ui, sans-serif\" font-size=\"12\" role=\"img\">\n{STYLE}\n\
         <title>{title}</title>\n<rect class=\"page\" width=\"100%\" height=\"100%\"/>\n\
         <text class=\"ink\" x=\"{LEFT}\" y=\"26\" font-size=\"15\">{title}</text>\n",
        title = escape(&chart.title)
    );
    grid(&mut svg, chart);
    for line in &chart.lines {
        draw_line(&mut svg, chart, line);
    }
    legend(&mut svg, chart);
    svg.push_str("</svg>\n");
    svg
}

fn grid(svg: &mut String, chart: &Chart) {
    for value in chart.x.ticks() {
        let x = x_of(chart, value);
        let _ = writeln!(
            svg,
            "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{BOTTOM}\"/>\
             <text class=\"soft\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            BOTTOM + 17.0,
            number(value)
        );
    }
    for value in chart.y.ticks() {
        let y = y_of(chart, value);
        let _ = writeln!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
             <text class=\"soft\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 7.0,
            y + 4.0,
            number(value)
        );
    }
    if let Some(value) = chart.guide {
        let y = y_of(chart, value);
        let _ = writeln!(
            svg,
            "<line class=\"guide\" x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>"
        );
    }
    let (middle, centre) = (f64::midpoint(LEFT, RIGHT), f64::midpoint(TOP, BOTTOM));
    let _ = writeln!(
        svg,
        "<text class=\"ink\" x=\"{middle}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\
         <text class=\"ink\" x=\"16\" y=\"{centre}\" text-anchor=\"middle\" \
         transform=\"rotate(-90 16 {centre})\">{}</text>",
        BOTTOM + 38.0,
        escape(&chart.x.label),
        escape(&chart.y.label)
    );
}

fn draw_line(svg: &mut String, chart: &Chart, line: &Line) {
    let colour = COLOURS[line.colour % COLOURS.len()];
    let place = |point: &Point| (x_of(chart, point.x), y_of(chart, point.y));
    if line.points.len() > 1 {
        let mut path = String::new();
        for (x, y) in line.points.iter().map(place) {
            let _ = write!(path, "{x:.1},{y:.1} ");
        }
        let _ = writeln!(
            svg,
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" points=\"{}\"/>",
            path.trim_end()
        );
        return;
    }
    for point in &line.points {
        let (x, y) = place(point);
        if let Some(Interval { low, high }) = point.interval {
            let (low, high) = (y_of(chart, low), y_of(chart, high));
            let _ = writeln!(
                svg,
                "<line stroke=\"{colour}\" stroke-width=\"2\" x1=\"{x:.1}\" x2=\"{x:.1}\" \
                 y1=\"{low:.1}\" y2=\"{high:.1}\"/>"
            );
        }
        let _ = writeln!(svg, "<circle fill=\"{colour}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4.5\"/>");
    }
}

fn legend(svg: &mut String, chart: &Chart) {
    for (at, line) in chart.lines.iter().enumerate() {
        let y = TOP + 12.0 + 21.0 * at as f64;
        let colour = COLOURS[line.colour % COLOURS.len()];
        let mark = if line.points.len() > 1 {
            format!(
                "<line stroke=\"{colour}\" stroke-width=\"3\" x1=\"{}\" x2=\"{}\" y1=\"{y}\" \
                 y2=\"{y}\"/>",
                RIGHT + 16.0,
                RIGHT + 34.0
            )
        } else {
            format!("<circle fill=\"{colour}\" cx=\"{}\" cy=\"{y}\" r=\"4.5\"/>", RIGHT + 25.0)
        };
        let _ = writeln!(
            svg,
            "{mark}<text class=\"ink\" x=\"{}\" y=\"{}\">{}</text>",
            RIGHT + 42.0,
            y + 4.0,
            escape(&line.name)
        );
    }
}

fn x_of(chart: &Chart, value: f64) -> f64 {
    LEFT + chart.x.place(value) * (RIGHT - LEFT)
}

fn y_of(chart: &Chart, value: f64) -> f64 {
    BOTTOM - chart.y.place(value) * (BOTTOM - TOP)
}

/// Returns a whole number in raised digits.
pub(crate) fn superscript(value: i32) -> String {
    const DIGITS: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    let raised = |it: char| it.to_digit(10).map_or('⁻', |digit| DIGITS[digit as usize]);
    value.to_string().chars().map(raised).collect()
}

/// Returns a short form: powers of ten from 10,000 on and below 0.01.
fn number(value: f64) -> String {
    let power = value.abs().log10();
    let is_power = (power - power.round()).abs() < 1e-9;
    if value != 0.0 && is_power && !(-2.0..4.0).contains(&power) {
        return format!("10{}", superscript(power.round() as i32));
    }
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::{Axis, Chart, Interval, Line, Point, Scale, draw, number};

    fn axis(scale: Scale, low: f64, high: f64) -> Axis {
        Axis { label: "hours < days".into(), scale, low, high }
    }

    #[test]
    fn ticks_are_round_and_within_bounds() {
        let whole =
            |axis: &Axis| axis.ticks().iter().map(|it| it.round() as i64).collect::<Vec<_>>();
        assert_eq!(whole(&axis(Scale::Linear, 0.0, 100.0)), [0, 20, 40, 60, 80, 100]);
        assert_eq!(whole(&axis(Scale::Log, 1.0, 1000.0)), [1, 10, 100, 1000]);
        assert!(axis(Scale::Log, 1e-20, 1e20).ticks().len() <= 11);
        let place = axis(Scale::Log, 1.0, 1000.0).place(10.0);
        assert!((place - 1.0 / 3.0).abs() < 1e-9);
        assert_eq!(axis(Scale::Linear, 0.0, 1.0).place(7.0).to_bits(), 1f64.to_bits());
    }

    #[test]
    fn numbers_are_short() {
        let all = [0.0, 0.5, 20.0, 1000.0, 10_000.0, 1e-7, 0.01].map(number);
        assert_eq!(all, ["0", "0.5", "20", "1000", "10⁴", "10⁻⁷", "0.01"]);
    }

    #[test]
    fn a_chart_has_both_colour_schemes_and_all_lines() {
        let line = |points| Line { name: "a & b".into(), colour: 9, points };
        let dot = Point { interval: Some(Interval { low: 2.0, high: 8.0 }), ..Point::at(5.0, 5.0) };
        let chart = Chart {
            title: "hours > days".into(),
            x: axis(Scale::Linear, 0.0, 10.0),
            y: axis(Scale::Log, 1.0, 10.0),
            lines: vec![line(vec![Point::at(0.0, 1.0), Point::at(10.0, 10.0)]), line(vec![dot])],
            guide: Some(3.0),
        };
        let svg = draw(&chart);
        assert!(svg.contains("prefers-color-scheme:dark") && svg.ends_with("</svg>\n"));
        assert!(svg.contains("points=\"78.0,366.0 620.0,48.0\""), "{svg}");
        let counts =
            ["<circle", "a &amp; b", "hours &gt; days", "hours &lt; days", "class=\"guide"]
                .map(|it| svg.matches(it).count());
        assert_eq!(counts, [2, 2, 2, 2, 1], "{svg}");
    }
}
