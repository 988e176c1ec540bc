//! Metrics of the process itself, by the names that Prometheus' own clients use: memory,
//! descriptors, processor time; with the build, the readiness and the ends of certificates.

use std::fmt;
use std::fs;

use martlet_protocol::http::certificate_ends_s;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode_registry;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};

/// Returns the metrics as `OpenMetrics` text, without its end.
pub(crate) fn text(is_ready: bool) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(ProcessFigures { is_ready, usage: Usage::read() }));
    let mut text = String::new();
    encode_registry(&mut text, &registry).expect("writing to a String can't fail");
    text
}

#[derive(Debug)]
struct ProcessFigures {
    is_ready: bool,
    /// `None` where the system has no `/proc`.
    usage: Option<Usage>,
}

/// Resources that the process has.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Usage {
    resident_bytes: u64,
    virtual_bytes: u64,
    open_fds: u64,
    max_fds: u64,
    threads: u64,
    cpu_seconds: f64,
}

impl Usage {
    fn read() -> Option<Self> {
        let fds = fs::read_dir("/proc/self/fd").ok()?.count();
        Self::parse(
            &fs::read_to_string("/proc/self/statm").ok()?,
            &fs::read_to_string("/proc/self/stat").ok()?,
            u64::try_from(fds).unwrap_or(u64::MAX),
        )
    }

    fn parse(memory: &str, stat: &str, open_fds: u64) -> Option<Self> {
        let page = page_size() as u64;
        let mut pages = memory.split(' ').map(|text| text.trim().parse::<u64>());
        let (all, resident) = (pages.next()?.ok()?, pages.next()?.ok()?);
        // The name of the process, in parentheses, may have spaces.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let field = |at: usize| fields.get(at)?.parse::<u64>().ok();
        #[expect(
            clippy::cast_precision_loss,
            reason = "a processor's time is far below 2^52 ticks"
        )]
        let cpu_seconds = (field(11)? + field(12)?) as f64 / clock_ticks_per_second() as f64;
        Some(Self {
            resident_bytes: resident * page,
            virtual_bytes: all * page,
            open_fds,
            max_fds: getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX),
            threads: field(17)?,
            cpu_seconds,
        })
    }
}

/// Encodes the ends of certificates, by the beginning of their settings' names.
fn encode_certificates(encoder: &mut DescriptorEncoder<'_>, ends: &[(&str, u64)]) -> fmt::Result {
    if ends.is_empty() {
        return Ok(());
    }
    let (name, help) = ("martlet_certificate_end_timestamp_seconds", "End of a certificate in use");
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (settings, ends_s) in ends {
        let end = ConstGauge::new(i64::try_from(*ends_s).unwrap_or(i64::MAX));
        end.encode(family.encode_family(&[("certificate", *settings)])?)?;
    }
    Ok(())
}

impl Collector for ProcessFigures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let version = [("version", env!("CARGO_PKG_VERSION"))];
        let (name, help) = ("martlet_build_info", "Version of the process");
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        ConstGauge::new(1i64).encode(family.encode_family(&version)?)?;
        encode_certificates(&mut encoder, &certificate_ends_s())?;
        let mut gauge = |name: &str, help: &str, value: u64| {
            let metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX)).encode(metric)
        };
        let help = "1 if the process is ready, as /readyz shows it";
        gauge("martlet_ready", help, u64::from(self.is_ready))?;
        let Some(usage) = self.usage else { return Ok(()) };
        gauge("process_resident_memory_bytes", "Resident memory", usage.resident_bytes)?;
        gauge("process_virtual_memory_bytes", "Virtual memory", usage.virtual_bytes)?;
        gauge("process_open_fds", "Open file descriptors", usage.open_fds)?;
        gauge("process_max_fds", "Limit on open file descriptors", usage.max_fds)?;
        gauge("process_threads", "Threads", usage.threads)?;
        let help = "Processor time of user and system";
        let metric =
            encoder.encode_descriptor("process_cpu_seconds", help, None, MetricType::Counter)?;
        ConstCounter::new(usage.cpu_seconds).encode(metric)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_build_readiness_and_resources() {
        let text = text(true);
        for line in [
            format!("martlet_build_info{{version=\"{}\"}} 1", env!("CARGO_PKG_VERSION")),
            "martlet_ready 1".to_owned(),
        ] {
            assert!(text.lines().any(|other| other == line), "{line}\n{text}");
        }
        let value = |name: &str| -> f64 {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_else(|| panic!("no {name} in {text}")).trim().parse().unwrap()
        };
        assert!(value("process_resident_memory_bytes ") > 1e5);
        assert!(value("process_open_fds ") >= 3.0);
        assert!(value("process_max_fds ") >= value("process_open_fds "));
        assert!(value("process_cpu_seconds_total ") >= 0.0);
        assert!(!text.contains("# EOF"));
    }

    #[test]
    fn a_name_with_spaces_and_parentheses_is_no_field() {
        let stat = "7 (a) b (c)) S 1 2 3 4 5 6 7 8 9 10 300 100 0 0 20 0 17 0 5 6 7";
        let usage = Usage::parse("1000 50 3 4 5 6 7\n", stat, 9).unwrap();
        #[expect(clippy::cast_precision_loss, reason = "a small number")]
        let ticks = clock_ticks_per_second() as f64;
        assert_eq!((usage.threads, usage.open_fds), (17, 9));
        assert!((usage.cpu_seconds - 400.0 / ticks).abs() < 1e-9);
        assert_eq!(usage.resident_bytes, 50 * page_size() as u64);
        assert_eq!(Usage::parse("1000", stat, 9), None);
    }
}
