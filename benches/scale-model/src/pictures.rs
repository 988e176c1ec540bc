//! Pictures of the results.

use crate::changes::Change;
use crate::chart::{Axis, Chart, Interval, Line, Point, Scale, draw};
use crate::results::Results;

/// Picture and its file name.
pub(crate) struct Picture {
    pub(crate) file: &'static str,
    pub(crate) svg: String,
}

/// Draws all pictures.
pub(crate) fn pictures(results: &Results) -> Vec<Picture> {
    vec![
        Picture { file: "scale-model-repair.svg", svg: draw(&repair(results)) },
        Picture { file: "scale-model-durability.svg", svg: draw(&durability(results)) },
        Picture { file: "scale-model-workers.svg", svg: draw(&workers(results)) },
        Picture { file: "scale-model-churn.svg", svg: draw(&churn(results)) },
    ]
}

fn axis(label: &str, scale: Scale, low: f64, high: f64) -> Axis {
    Axis { label: label.to_owned(), scale, low, high }
}

fn line(name: impl Into<String>, colour: usize, points: Vec<Point>) -> Line {
    Line { name: name.into(), colour, points }
}

/// Replicas that are still missing, hour by hour, under 3 copies and 4+2.
fn repair(results: &Results) -> Chart {
    let mut lines = Vec::new();
    let mut last = 10.0f64;
    let shown = [Change::LoseDevice, Change::LoseRack, Change::DrainRack, Change::Grow];
    for policy in ["3 copies", "4+2"] {
        for change in shown {
            let cost = results.changes.iter().find(|it| it.policy == policy && it.change == change);
            let Some(cost) = cost.filter(|it| !it.ends.is_empty()) else { continue };
            last = last.max(cost.hours);
            let name = format!("{}, {policy}", change.name());
            lines.push(line(name, lines.len(), missing(&cost.ends)));
        }
    }
    let high = 10f64.powf(last.log10().ceil());
    Chart {
        title: "Replicas that are not yet where the new ring wants them".to_owned(),
        x: axis("hours after the failure, or after the push of the ring", Scale::Log, 1.0, high),
        y: axis("percent of the replicas concerned", Scale::Linear, 0.0, 100.0),
        lines,
        guide: None,
    }
}

/// Returns at most 200 points of the share that is missing, from sorted ends.
fn missing(ends: &[f64]) -> Vec<Point> {
    let all = ends.len();
    let steps = all.min(200);
    let mut points = vec![Point::at(0.0, 100.0)];
    points.extend((1..=steps).map(|step| {
        let done = step * all / steps;
        Point::at(ends[done - 1], 100.0 * (1.0 - done as f64 / all as f64))
    }));
    points
}

fn durability(results: &Results) -> Chart {
    let mut lines = Vec::new();
    let mut values: Vec<f64> = Vec::new();
    for (colour, it) in results.durability.iter().enumerate() {
        let points: Vec<Point> =
            it.by_delay.iter().map(|at| Point::at(at.delay_h, at.losses)).collect();
        values.extend(points.iter().map(|it| it.y));
        values.extend([it.exposed.mean, it.counted.mean]);
        lines.push(line(format!("{}, closed form", it.policy), colour, points));
        let Interval { low, high } =
            Interval { low: it.exposed.low.max(it.exposed.mean / 100.0), high: it.exposed.high };
        let interval = Some(Interval { low, high });
        let dot = Point { x: it.delay_h, y: it.exposed.mean, interval };
        lines.push(line(format!("{}, simulated", it.policy), colour, vec![dot]));
    }
    values.retain(|it| *it > 0.0);
    let low = values.iter().copied().fold(1.0, f64::min).log10().floor();
    let high = values.iter().copied().fold(1e-9, f64::max).log10().ceil();
    Chart {
        title: "Lost partitions a year, at most the probability of any loss".to_owned(),
        x: axis("hours until a repair begins", Scale::Log, 0.1, 1000.0),
        y: axis("partitions a year", Scale::Log, 10f64.powf(low), 10f64.powf(high.max(low + 1.0))),
        lines,
        guide: None,
    }
}

fn workers(results: &Results) -> Chart {
    let objects = |power: f64| 10f64.powf(power);
    let mut lines = Vec::new();
    for (colour, load) in results.loads.iter().enumerate() {
        let is_flat = load.worker == "replicate-index";
        let share = |objects: f64| {
            if is_flat { load.pass_h / load.limit_h } else { objects / load.objects_max }
        };
        let points = (0..=40)
            .map(|at| objects(6.0 + f64::from(at) / 10.0))
            .map(|it| Point::at(it, share(it)));
        lines.push(line(load.worker, colour, points.collect()));
    }
    Chart {
        title: "Passes beside clients, over the time that they may take".to_owned(),
        x: axis("objects a device", Scale::Log, 1e6, 1e10),
        y: axis("pass / limit; above the dashed line a worker is late", Scale::Log, 1e-4, 1e3),
        lines,
        guide: Some(1.0),
    }
}

fn churn(results: &Results) -> Chart {
    let most = results.months.iter().map(|it| it.month.backlog_max).fold(1.0, f64::max) / 1e6;
    let lines = results.months.iter().enumerate().map(|(colour, it)| {
        let hours = (0..).zip(&it.month.backlog).step_by(2);
        let points = hours.map(|(at, left)| Point::at(f64::from(at) / 24.0, left / 1e6));
        line(format!("{} % a day", it.churn_day * 100.0), colour, points.collect())
    });
    Chart {
        title: "Garbage that waits for reclaim on a node; a dataset goes on day 10".to_owned(),
        x: axis("days", Scale::Linear, 0.0, 30.0),
        y: axis("million extents", Scale::Linear, 0.0, most),
        lines: lines.collect(),
        guide: None,
    }
}

#[cfg(test)]
mod tests {
    use super::missing;

    #[test]
    fn the_curve_of_missing_fragments_falls_to_zero() {
        let ends: Vec<f64> = (1..=1000).map(f64::from).collect();
        let points = missing(&ends);
        assert_eq!(points.len(), 201);
        assert!(points.is_sorted_by(|a, b| a.x <= b.x && a.y >= b.y));
        let last = points[200];
        assert_eq!((last.x.to_bits(), last.y.to_bits()), (1000f64.to_bits(), 0f64.to_bits()));
        assert_eq!(missing(&[5.0]).len(), 2);
    }
}
