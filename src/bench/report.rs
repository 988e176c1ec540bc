//! Report of a run.

use std::collections::BTreeMap;

use clap::ValueEnum;
use serde::Serialize;

use super::args::{BenchArgs, BenchOperation};
use super::load::RunResult;
use super::slices::Slice;

const MB: f64 = 1e6;
const GIB: f64 = 1_073_741_824.0;

/// Figures of a run.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    op: String,
    size: u64,
    concurrency: usize,
    elapsed_s: f64,
    requests: u64,
    requests_per_s: f64,
    megabytes_per_s: f64,
    p50_ms: f64,
    p99_ms: f64,
    max_ms: f64,
    /// Failed requests by S3's code, HTTP status or cause.
    errors: BTreeMap<String, u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu: Option<Cpu>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    slices: Vec<Slice>,
}

/// CPU time of the server.
#[derive(Debug, Serialize)]
struct Cpu {
    seconds: f64,
    by_role: BTreeMap<String, f64>,
    ms_per_request: f64,
    /// `None` if the run moved no bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    s_per_gib: Option<f64>,
}

impl Report {
    #[expect(clippy::cast_precision_loss, reason = "counts stay below 2^52")]
    pub(super) fn new(args: &BenchArgs, outcome: RunResult) -> Self {
        let RunResult { tally, elapsed, cpu_s, samples, .. } = outcome;
        let elapsed_s = elapsed.as_secs_f64().max(f64::EPSILON);
        let (requests, bytes) = (tally.requests(), tally.bytes as f64);
        let seconds: f64 = cpu_s.values().sum();
        let cpu = (!cpu_s.is_empty()).then(|| Cpu {
            seconds,
            by_role: cpu_s,
            ms_per_request: seconds * 1000.0 / requests.max(1) as f64,
            s_per_gib: (bytes > 0.0).then(|| seconds * GIB / bytes),
        });
        let slices = args.every.map(|every| samples.slices(every)).unwrap_or_default();
        Self {
            op: name(args.op),
            size: args.size.0,
            concurrency: args.concurrency,
            elapsed_s,
            requests,
            requests_per_s: requests as f64 / elapsed_s,
            megabytes_per_s: bytes / MB / elapsed_s,
            p50_ms: tally.quantile_ms(0.5),
            p99_ms: tally.quantile_ms(0.99),
            max_ms: tally.max_ms(),
            errors: tally.errors,
            cpu,
            slices,
        }
    }

    /// Returns true if a request failed, or if none was answered.
    pub(super) fn failed(&self) -> bool {
        !self.errors.is_empty() || self.requests == 0
    }

    /// Prints the report as text or as JSON.
    pub(super) fn print(&self, json: bool) {
        if json {
            println!("{}", serde_json::to_string(self).expect("plain values have a JSON form"));
        } else {
            print!("{}", self.text());
        }
    }

    fn text(&self) -> String {
        let mut lines = vec![
            format!(
                "{}  {} bytes, {} at a time, {:.1} s",
                self.op, self.size, self.concurrency, self.elapsed_s
            ),
            format!(
                "requests  {}   {:.0}/s   {:.1} MB/s",
                self.requests, self.requests_per_s, self.megabytes_per_s
            ),
            format!(
                "latency   p50 {:.3} ms   p99 {:.3} ms   max {:.3} ms",
                self.p50_ms, self.p99_ms, self.max_ms
            ),
        ];
        if let Some(cpu) = &self.cpu {
            let per_gib =
                cpu.s_per_gib.map_or_else(String::new, |cpu| format!("   {cpu:.3} s/GiB"));
            lines.push(format!(
                "cpu       {:.2} s   {:.4} ms/request{per_gib}",
                cpu.seconds, cpu.ms_per_request
            ));
            let many = cpu.by_role.iter().filter(|_| cpu.by_role.len() > 1);
            lines.extend(many.map(|(role, seconds)| format!("          {seconds:.2} s   {role}")));
        }
        for Slice { from_s, answered, failed, p50_ms, p99_ms, max_ms } in &self.slices {
            lines.push(format!(
                "{from_s:>6.1} s  {answered} answered   {failed} failed   p50 {p50_ms:.3} ms   p99 \
                 {p99_ms:.3} ms   max {max_ms:.3} ms"
            ));
        }
        for (code, count) in &self.errors {
            lines.push(format!("error     {count} × {code}"));
        }
        lines.join("\n") + "\n"
    }
}

fn name(op: BenchOperation) -> String {
    op.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser;

    use super::super::args::BenchCli;
    use super::super::slices::Samples;
    use super::super::tally::BenchTally;
    use super::*;

    fn report(requests: u64, bytes: u64, cpu_s: Option<f64>) -> Report {
        let args = BenchCli::parse_from(["bench", "--op", "get", "--every", "1s"]).bench;
        let (mut tally, mut samples) = (BenchTally::default(), Samples::default());
        for _ in 0..requests {
            tally.answered(Duration::from_millis(2), bytes);
            samples.push(Duration::from_millis(500), Duration::from_millis(2), true);
        }
        let elapsed = Duration::from_secs(2);
        let half = |role: &str, seconds: f64| (role.to_owned(), seconds / 2.0);
        let cpu_s = cpu_s.into_iter().flat_map(|it| [half("proxy", it), half("nodes", it)]);
        Report::new(
            &args,
            RunResult { tally, elapsed, cpu_s: cpu_s.collect(), samples, made: vec![] },
        )
    }

    #[test]
    fn rates_and_cpu() {
        let report = report(1000, 1 << 20, Some(0.5));
        assert!((report.requests_per_s - 500.0).abs() < 1e-9);
        assert!((report.megabytes_per_s - 524.288).abs() < 1e-9);
        let cpu = report.cpu.as_ref().unwrap();
        assert!((cpu.ms_per_request - 0.5).abs() < 1e-9);
        assert!((cpu.s_per_gib.unwrap() - 0.512).abs() < 1e-9);
        assert!(report.text().contains("500/s   524.3 MB/s"), "{}", report.text());
        assert!(report.text().contains("0.5000 ms/request   0.512 s/GiB"), "{}", report.text());
        assert!(report.text().contains("0.25 s   nodes"), "{}", report.text());
        assert!(report.text().contains("0.0 s  1000 answered   0 failed"), "{}", report.text());
    }

    #[test]
    fn a_run_without_bytes_has_no_cost_for_a_gib() {
        let report = report(10, 0, Some(1.0));
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["requests"], 10);
        assert!(json["cpu"].get("s_per_gib").is_none());
    }

    #[test]
    fn errors_and_emptiness_fail() {
        assert!(!report(1, 1, None).failed());
        assert!(report(0, 0, None).failed());
        let mut refused = report(1, 1, None);
        refused.errors.insert("SlowDown".to_owned(), 3);
        assert!(refused.failed());
        assert!(refused.text().contains("3 × SlowDown"));
    }
}
