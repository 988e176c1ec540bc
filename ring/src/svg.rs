//! Picture of a ring as SVG: its devices on a circle, by region, zone and node. Each device has a
//! bar for its replicas, with a dashed line at its share.

use std::f64::consts::TAU;
use std::fmt::Write;

use crate::figures::Figures;
use crate::ring::Ring;

const SIZE: f64 = 900.0;
const CENTRE: f64 = SIZE / 2.0;
const DOMAINS: [(f64, f64); 3] = [(150.0, 172.0), (175.0, 197.0), (200.0, 222.0)];
const BARS_FROM: f64 = 228.0;
/// Radius of the line at which a device holds exactly its share.
const SHARE_AT: f64 = 330.0;
/// Least deviation that fills the space between the share and the edge.
const SCALE_MIN: f64 = 0.02;
const BARS_TO: f64 = 410.0;

/// Draws a ring as SVG.
pub fn draw(ring: &Ring) -> String {
    let figures = Figures::of_ring(ring);
    let mut order: Vec<usize> = (0..ring.devices().len()).collect();
    order.sort_by(|&a, &b| {
        let (a, b) = (&ring.devices()[a], &ring.devices()[b]);
        (a.node_path(), a.id).cmp(&(b.node_path(), b.id))
    });
    let mut svg = Picture::open(ring, &figures);
    svg.domains(ring, &order);
    svg.bars(&figures, &order, ring);
    svg.caption(ring, &figures);
    svg.text.push_str("</svg>\n");
    svg.text
}

struct Picture {
    text: String,
    /// Angle of one device, in radians.
    step: f64,
    /// Deviation at the outer edge.
    scale: f64,
}

impl Picture {
    fn open(ring: &Ring, figures: &Figures) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "at most 2^16 devices")]
        let step = TAU / ring.devices().len() as f64;
        let worst = figures.devices.iter().map(|d| d.balance.abs() / 100.0).fold(0.0, f64::max);
        let text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {SIZE} {SIZE}\" \
             font-family=\"system-ui, sans-serif\" text-anchor=\"middle\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#fbfaf7\"/>\n"
        );
        Self { text, step, scale: worst.clamp(SCALE_MIN, 1.0) }
    }

    /// Draws three rings of arcs: regions, zones, nodes.
    fn domains(&mut self, ring: &Ring, order: &[usize]) {
        let devices = ring.devices();
        for (level, (inner, outer)) in DOMAINS.into_iter().enumerate() {
            let path = |at: usize| {
                let device = &devices[at];
                let (region, zone) = device.zone_path();
                match level {
                    0 => (region, 0, ""),
                    1 => (region, zone, ""),
                    _ => (region, zone, device.node.name.as_str()),
                }
            };
            let mut first = 0;
            for (index, group) in order.chunk_by(|&a, &b| path(a) == path(b)).enumerate() {
                let span =
                    Interval { from: self.angle(first), to: self.angle(first + group.len()) };
                first += group.len();
                let (region, zone, node) = path(group[0]);
                let name = match level {
                    0 => format!("r{region}"),
                    1 => format!("z{zone}"),
                    _ => node.to_owned(),
                };
                let hue = (u64::from(region) * 67 + u64::from(zone) * 31) % 360;
                let light = 78 - 6 * level + if index % 2 == 0 { 0 } else { 6 };
                let fill = format!("hsl({hue} 45% {light}%)");
                self.arc(
                    span,
                    Interval { from: inner, to: outer },
                    &fill,
                    &format!("{name}: {} devices", group.len()),
                );
                let middle = f64::midpoint(span.from, span.to);
                if (span.to - span.from) * inner
                    > 9.0 * f64::from(u32::try_from(name.len()).unwrap_or(99))
                {
                    self.label(middle, f64::midpoint(inner, outer), &escape(&name));
                }
            }
        }
    }

    fn bars(&mut self, figures: &Figures, order: &[usize], ring: &Ring) {
        let gap = if self.step * BARS_FROM > 4.0 { 0.12 } else { 0.0 };
        for (place, &at) in order.iter().enumerate() {
            let device = &figures.devices[at];
            let deviation = (device.balance / 100.0 / self.scale).clamp(-1.0, 1.0);
            let reach = if deviation >= 0.0 { BARS_TO - SHARE_AT } else { SHARE_AT - BARS_FROM };
            let outer = if device.parts == 0 { BARS_FROM } else { SHARE_AT + deviation * reach };
            let span = Interval {
                from: self.angle(place) + gap * self.step,
                to: self.angle(place + 1) - gap * self.step,
            };
            let (hue, vivid) =
                (if deviation >= 0.0 { 18.0 } else { 205.0 }, 30.0 + 55.0 * deviation.abs());
            let fill = format!("hsl({hue} {vivid:.0}% 52%)");
            let title = format!(
                "{} {}: {} replicas, {:+.2} % of its share",
                device.id,
                ring.devices()[at],
                device.parts,
                device.balance
            );
            let radii = Interval { from: BARS_FROM, to: outer.max(BARS_FROM + 1.0) };
            self.arc(span, radii, &fill, &title);
        }
        let _ = writeln!(
            self.text,
            "<circle cx=\"{CENTRE}\" cy=\"{CENTRE}\" r=\"{SHARE_AT}\" fill=\"none\" \
             stroke=\"#333\" stroke-width=\"1\" stroke-dasharray=\"4 3\"/>"
        );
    }

    fn caption(&mut self, ring: &Ring, figures: &Figures) {
        let lines = [
            (-34.0, 26, format!("epoch {}", ring.epoch())),
            (-8.0, 15, format!("2^{} partitions × {}", ring.part_power(), ring.replicas_exact())),
            (14.0, 15, format!("{} devices", ring.devices().len())),
            (36.0, 15, format!("balance {:.2} %", figures.balance)),
            (58.0, 15, format!("dispersion {:.2} %", figures.dispersion)),
        ];
        for (down, size, line) in lines {
            let _ = writeln!(
                self.text,
                "<text x=\"{CENTRE}\" y=\"{}\" font-size=\"{size}\" fill=\"#222\">{line}</text>",
                CENTRE + down
            );
        }
        let _ = writeln!(
            self.text,
            "<text x=\"{CENTRE}\" y=\"{}\" font-size=\"13\" fill=\"#555\">bars: what each device \
             holds; dashed line: its share by weight; edge: {:+.1} %</text>",
            SIZE - 14.0,
            self.scale * 100.0
        );
    }

    #[expect(clippy::cast_precision_loss, reason = "at most 2^16 devices")]
    fn angle(&self, place: usize) -> f64 {
        place as f64 * self.step - TAU / 4.0
    }

    fn arc(&mut self, span: Interval, radii: Interval, fill: &str, title: &str) {
        // An arc over the whole circle would end where it starts, and not be drawn.
        let end = span.to.min(span.from + TAU - 1e-4);
        let point = |angle: f64, radius: f64| {
            (CENTRE + radius * angle.cos(), CENTRE + radius * angle.sin())
        };
        let large = u8::from(end - span.from > TAU / 2.0);
        let Interval { from: inner, to: outer } = radii;
        let [(ax, ay), (bx, by), (cx, cy), (dx, dy)] = [
            point(span.from, inner),
            point(span.from, outer),
            point(end, outer),
            point(end, inner),
        ];
        let _ = writeln!(
            self.text,
            "<path d=\"M{ax:.2} {ay:.2}L{bx:.2} {by:.2}A{outer:.2} {outer:.2} 0 {large} 1 {cx:.2} \
             {cy:.2}L{dx:.2} {dy:.2}A{inner:.2} {inner:.2} 0 {large} 0 {ax:.2} {ay:.2}Z\" \
             fill=\"{fill}\"><title>{}</title></path>",
            escape(title)
        );
    }

    fn label(&mut self, angle: f64, radius: f64, text: &str) {
        let (x, y) = (CENTRE + radius * angle.cos(), CENTRE + radius * angle.sin());
        // Labels follow the circle; on its lower half they are turned to stay readable.
        let turn = angle.to_degrees() + 90.0;
        let turn = if (angle.sin()) > 0.0 { turn + 180.0 } else { turn };
        let _ = writeln!(
            self.text,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" dy=\"4\" font-size=\"11\" fill=\"#222\" \
             transform=\"rotate({turn:.1} {x:.1} {y:.1})\">{text}</text>"
        );
    }
}

/// Bounds of an angle or a radius.
#[derive(Clone, Copy)]
struct Interval {
    from: f64,
    to: f64,
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
