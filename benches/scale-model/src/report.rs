//! Results as Markdown.

use std::fmt::Write;

use crate::changes::Change;
use crate::chart::superscript;
use crate::constants::Origin;
use crate::estimate::Estimate;
use crate::results::{Durability, Results};

/// Returns all tables of a run.
pub(crate) fn markdown(results: &Results) -> String {
    let shape = results.shape;
    let mut text = format!(
        "Seed {}: {} nodes in {} racks, {} devices each; {} simulated years for each policy.\n\n",
        results.seed,
        grouped(f64::from(shape.nodes())),
        shape.racks,
        shape.devices_a_node,
        results.years
    );
    constants(&mut text, results);
    rings(&mut text, results);
    changes(&mut text, results);
    durability(&mut text, results);
    alternatives(&mut text, results);
    churn(&mut text, results);
    memory(&mut text, results);
    text
}

fn table(text: &mut String, title: &str, header: &[&str]) {
    let _ = writeln!(text, "### {title}\n");
    let _ = writeln!(text, "| {} |", header.join(" | "));
    let _ = writeln!(text, "|{}", "---|".repeat(header.len()));
}

fn row(text: &mut String, cells: &[String]) {
    let _ = writeln!(text, "| {} |", cells.join(" | "));
}

fn constants(text: &mut String, results: &Results) {
    table(text, "Measured or assumed", &["constant", "value", "unit", "origin", "source"]);
    for it in &results.constants {
        let source = if it.origin == Origin::Set { "" } else { it.source };
        let cells =
            [&format!("`{}`", it.name), &short(it.value), it.unit, it.origin.name(), source];
        row(text, &cells.map(str::to_owned));
    }
    text.push('\n');
}

fn rings(text: &mut String, results: &Results) {
    let header = ["ring", "partitions", "replicas a device", "balance", "two replicas in a rack"];
    table(text, "Rings", &header);
    for it in &results.rings {
        row(
            text,
            &[
                it.policy.to_owned(),
                grouped(f64::from(it.partitions)),
                format!("{:.0}", it.replicas_a_device),
                format!("{:.2} %", it.balance),
                it.crowded.to_string(),
            ],
        );
    }
    text.push('\n');
}

fn changes(text: &mut String, results: &Results) {
    let header = [
        "change",
        "ring",
        "replicas",
        "bytes written",
        "bytes read",
        "half done",
        "done",
        "without clients",
        "receiving disks alone",
        "rack uplinks alone",
        "fullest device, peak",
    ];
    table(text, "Ring changes and repairs", &header);
    for change in Change::ALL {
        for it in results.changes.iter().filter(|it| it.change == change) {
            row(
                text,
                &[
                    change.name().to_owned(),
                    it.policy.to_owned(),
                    grouped(it.moved as f64),
                    bytes(it.bytes),
                    bytes(it.bytes_read),
                    hours(it.half_hours),
                    hours(it.hours),
                    hours(it.hours_alone),
                    hours(it.disk_hours),
                    hours(it.rack_hours),
                    it.full_peak
                        .map_or_else(|| "–".to_owned(), |peak| format!("{:.1} %", peak * 100.0)),
                ],
            );
        }
    }
    text.push('\n');
}

fn durability(text: &mut String, results: &Results) {
    let header = [
        "ring",
        "a lost replica is back after",
        "lost partitions a year, simulated (95 %)",
        "counted at accelerated failures (95 %)",
        "closed form",
        "Markov chain",
        "an object survives a year with",
    ];
    table(text, "Durability", &header);
    for it in &results.durability {
        row(
            text,
            &[
                it.policy.to_owned(),
                hours(it.repair_h),
                interval(it.exposed),
                format!("{} (× {}, {} losses)", interval(it.counted), it.acceleration, it.losses),
                scientific(it.closed_form),
                scientific(it.markov),
                nines(it),
            ],
        );
    }
    text.push('\n');
    let delays: Vec<String> = results.durability[0]
        .by_delay
        .iter()
        .map(|it| format!("{} h", short(it.delay_h)))
        .collect();
    let mut header = vec!["lost partitions a year if a repair begins after"];
    header.extend(delays.iter().map(String::as_str));
    table(text, "Durability and the operator's delay", &header);
    for it in &results.durability {
        let mut cells = vec![it.policy.to_owned()];
        cells.extend(it.by_delay.iter().map(|at| scientific(at.losses)));
        row(text, &cells);
    }
    text.push('\n');
}

fn alternatives(text: &mut String, results: &Results) {
    let mut header = vec!["3 copies, workers".to_owned()];
    if let Some(first) = results.alternatives.first() {
        header.extend(first.costs.iter().map(|it| format!("{}: half, all", it.change.name())));
    }
    header.push("lost partitions a year".to_owned());
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    table(text, "Other workers", &header);
    for it in &results.alternatives {
        let mut cells = vec![it.name.to_owned()];
        let both =
            it.costs.iter().map(|it| format!("{}, {}", hours(it.half_hours), hours(it.hours)));
        cells.extend(both);
        cells.push(scientific(it.losses));
        row(text, &cells);
    }
    text.push('\n');
}

fn churn(text: &mut String, results: &Results) {
    let header = [
        "worker",
        "pass of a node",
        "beside clients",
        "may take",
        "because",
        "keeps up",
        "objects a device at most",
    ];
    table(text, "Workers", &header);
    let mut loads: Vec<_> = results.loads.iter().collect();
    loads.sort_by(|a, b| a.objects_max.total_cmp(&b.objects_max));
    for it in loads {
        let is_flat = it.worker == "replicate-index";
        row(
            text,
            &[
                format!("`{}`", it.worker),
                it.formula.to_owned(),
                hours(it.pass_h),
                hours(it.limit_h),
                it.limit.to_owned(),
                if it.pass_h <= it.limit_h { "yes" } else { "**no**" }.to_owned(),
                if is_flat { "any".to_owned() } else { scientific(it.objects_max) },
            ],
        );
    }
    let _ = writeln!(
        text,
        "\n`audit` reads {:.1} MB/s of each device, whatever the number of objects.\n",
        results.audit_rate / 1e6
    );
    let header = [
        "churn a day",
        "garbage of a month and node",
        "of reclaim's capacity",
        "most that waited",
        "waits at the end",
        "a deleted dataset is freed after",
    ];
    table(text, "A month of churn", &header);
    for it in &results.months {
        let month = &it.month;
        row(
            text,
            &[
                format!("{} %", it.churn_day * 100.0),
                scientific(month.created),
                format!("{:.0} %", month.utilization * 100.0),
                scientific(month.backlog_max),
                scientific(month.backlog_end),
                month.purge_drain_h.map_or_else(|| "never".to_owned(), hours),
            ],
        );
    }
    text.push('\n');
}

fn memory(text: &mut String, results: &Results) {
    table(text, "Memory of a node", &["structure", "bytes", "after random deletes", "without"]);
    let pairs = results.memory.structures.iter().zip(&results.memory_without_deletes.structures);
    for (with, without) in pairs {
        row(
            text,
            &[
                with.name.to_owned(),
                with.formula.to_owned(),
                bytes(with.bytes),
                bytes(without.bytes),
            ],
        );
    }
    let totals = [results.memory.total, results.memory_without_deletes.total].map(bytes);
    row(text, &["all".to_owned(), String::new(), totals[0].clone(), totals[1].clone()]);
    let opening = bytes(results.memory.opening);
    row(
        text,
        &["openings after a crash".to_owned(), "8 at a time".to_owned(), opening.clone(), opening],
    );
}

/// Returns the probability that an object survives a year, by its digits.
fn nines(it: &Durability) -> String {
    let loss = it.exposed.mean / f64::from(it.partitions);
    if loss <= 0.0 {
        return "no loss seen".to_owned();
    }
    format!("1 − {}", scientific(loss))
}

/// Returns a mean and its interval. Without an observed loss the estimate bounds nothing.
fn interval(it: Estimate) -> String {
    if it.mean <= 0.0 {
        return "–".to_owned();
    }
    format!("{} ({} – {})", scientific(it.mean), scientific(it.low), scientific(it.high))
}

fn hours(hours: f64) -> String {
    match hours {
        it if it < 1.0 => format!("{:.0} min", it * 60.0),
        it if it < 100.0 => format!("{it:.1} h"),
        it => format!("{:.1} d", it / 24.0),
    }
}

fn bytes(bytes: f64) -> String {
    let units = [(1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB")];
    let (size, unit) = units.into_iter().find(|(size, _)| bytes >= *size).unwrap_or((1e3, "kB"));
    format!("{:.1} {unit}", bytes / size)
}

/// Returns three digits, with a power of ten where a number is large or small.
fn scientific(value: f64) -> String {
    if value == 0.0 || (0.01..10_000.0).contains(&value) {
        return short(value);
    }
    let power = value.abs().log10().floor();
    format!("{:.1} × 10{}", value / 10f64.powf(power), superscript(power as i32))
}

fn short(value: f64) -> String {
    match value {
        it if it >= 100.0 => grouped(it),
        it if it >= 10.0 => trimmed(format!("{it:.1}")),
        it if it >= 0.1 || it == 0.0 => trimmed(format!("{it:.2}")),
        it => trimmed(format!("{it:.5}")),
    }
}

fn trimmed(text: String) -> String {
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// Returns a whole number with commas.
fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{bytes, grouped, hours, scientific, short};

    #[test]
    fn numbers_have_three_digits() {
        assert_eq!([0.5, 30.0, 240.0].map(hours), ["30 min", "30.0 h", "10.0 d"]);
        assert_eq!([4.2e15, 15e9, 1e3].map(bytes), ["4.2 PB", "15.0 GB", "1.0 kB"]);
        assert_eq!(
            [0.0, 2.345_678, 1.23e-7, 4.5e8].map(scientific),
            ["0", "2.35", "1.2 × 10⁻⁷", "4.5 × 10⁸"]
        );
        assert_eq!([1e8, 0.00862, 12.0].map(short), ["100,000,000", "0.00862", "12"]);
        assert_eq!(grouped(1234.0), "1,234");
    }
}
