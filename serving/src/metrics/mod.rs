//! Metrics of a process at `/metrics`, in Prometheus' text format.
//!
//! The crate of a subject brings its own metrics. Metrics that change with each request are
//! registered once. Other metrics have a [`Collector`], which is called on each scrape; most
//! collectors encode a fixed set of [`Figure`]s for every item of a kind.

mod figures;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

pub use self::figures::{Figure, MetricKind, encode_figures};

/// Registry of all metrics of a process.
pub struct Metrics(Registry);

impl Default for Metrics {
    /// Makes an empty registry.
    fn default() -> Self {
        Self(Registry::with_prefix("martlet"))
    }
}

impl Metrics {
    /// Adds metrics that are collected on each scrape.
    #[must_use]
    pub fn with(mut self, collector: impl Collector) -> Self {
        self.0.register_collector(Box::new(collector));
        self
    }

    /// Adds metrics that change as things happen.
    #[must_use]
    pub fn with_registered(mut self, register: impl FnOnce(&mut Registry)) -> Self {
        register(&mut self.0);
        self
    }

    /// Returns all metrics as text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.0).expect("writing to a String can't fail");
        text
    }
}
