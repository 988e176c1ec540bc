//! Facts of the overview: readiness, rates and space, each as a line.

use std::fmt::Write;

use martlet_admin_api::ServerStatus;

use crate::cell::Tone;
use crate::metrics::Rates;
use crate::space::Space;
use crate::text::{count, escaped, latency, percent, size};
use crate::view::View;

/// Line of the overview.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fact {
    pub(crate) label: &'static str,
    pub(crate) text: String,
    pub(crate) tone: Tone,
}

fn fact(label: &'static str, text: String) -> Fact {
    Fact { label, text, tone: Tone::Calm }
}

/// Returns the readiness of the queried process, and the number of nodes that answer.
pub(crate) fn readiness(status: &ServerStatus) -> Fact {
    let own = &status.own;
    let (word, tone) = match (own.ready, own.reasons.is_empty()) {
        (false, _) => ("NOT READY", Tone::Bad),
        (true, false) => ("READY, with problems", Tone::Warn),
        (true, true) => ("READY", Tone::Good),
    };
    let mut text = format!("{word}: {}, release {}", escaped(&own.role), escaped(&own.version));
    if !status.nodes.is_empty() {
        let up = status.nodes.iter().filter(|node| node.report.is_some()).count();
        let _ = write!(text, ", {up} of {} nodes answer", status.nodes.len());
    }
    Fact { label: "", text, tone }
}

/// Returns the lines about requests and space.
pub(crate) fn all(view: &View) -> Vec<Fact> {
    let mut facts = match (view.history().last(), view.history().rates.as_ref()) {
        (Some(reading), _) if !reading.serves_s3() => {
            vec![fact("requests", "this process serves no S3 clients: query a proxy".to_owned())]
        }
        (_, Some(rates)) => of_rates(rates),
        (_, None) => vec![fact("requests", "rates follow with the next reading".to_owned())],
    };
    if let Some(space) = view.space() {
        facts.extend(of_space(space));
    }
    facts
}

fn of_rates(rates: &Rates) -> Vec<Fact> {
    let bound = |seconds: Option<f64>| match seconds {
        None => "-".to_owned(),
        Some(seconds) if seconds.is_finite() => format!("≤ {}", latency(seconds)),
        Some(_) => "above all buckets".to_owned(),
    };
    let errors = format!("{}/s, errors {}/s", count(rates.requests), count(rates.errors));
    let tone = if rates.errors > 0.0 { Tone::Bad } else { Tone::Calm };
    let per_second = |bytes: f64| format!("{}/s", size(bytes));
    vec![
        Fact { label: "requests", text: errors, tone },
        fact("latency", format!("p50 {}, p99 {}", bound(rates.p50_s), bound(rates.p99_s))),
        fact(
            "bytes",
            format!("in {}, out {}", per_second(rates.bytes_in), per_second(rates.bytes_out)),
        ),
    ]
}

fn of_space(space: &Space) -> [Fact; 2] {
    let Space { total, used, after, fullest, fullest_after, room, is_above_mark } = *space;
    let (now, later, total) = (percent(used), percent(after), size(total));
    let mark = if is_above_mark { ", above its mark" } else { "" };
    let (fullest, fullest_after) = (percent(fullest), percent(fullest_after));
    let text =
        format!("{fullest}, after moves {fullest_after}{mark}; room for {} of objects", size(room));
    let tone = if is_above_mark { Tone::Warn } else { Tone::Calm };
    [
        fact("space", format!("{now}, after moves {later}, of {total}")),
        Fact { label: "fullest", text, tone },
    ]
}
