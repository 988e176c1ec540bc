//! Metrics of a process at `/metrics`: as `OpenMetrics` for clients that accept it, else in
//! Prometheus' text format 0.0.4.
//!
//! The crate of a subject brings its own metrics. Metrics that change with each request are
//! registered once. Other metrics have a [`Collector`], which is called on each scrape; most
//! collectors encode a fixed set of [`Figure`]s for every item of a kind.

pub(crate) mod classic;
mod figures;
mod merge;
pub(crate) mod process;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

pub use self::figures::{Figure, MetricKind, encode_figures};

/// Source of a role's metrics as text. `None` before the role is open.
pub type RoleMetrics = Box<dyn Fn() -> Option<String> + Send + Sync>;

/// Registry of all metrics of a process.
pub struct Metrics {
    registry: Registry,
    /// Roles of the process, whose metrics get a label with the role.
    roles: Vec<(&'static str, RoleMetrics)>,
}

impl Default for Metrics {
    /// Makes an empty registry.
    fn default() -> Self {
        Self { registry: Registry::with_prefix("martlet"), roles: Vec::new() }
    }
}

impl Metrics {
    /// Adds metrics that are collected on each scrape.
    #[must_use]
    pub fn with(mut self, collector: impl Collector) -> Self {
        self.registry.register_collector(Box::new(collector));
        self
    }

    /// Adds all metrics of a role, with the label `role`.
    #[must_use]
    pub fn with_role(mut self, role: &'static str, metrics: RoleMetrics) -> Self {
        self.roles.push((role, metrics));
        self
    }

    /// Adds metrics that change as things happen.
    #[must_use]
    pub fn with_registered(mut self, register: impl FnOnce(&mut Registry)) -> Self {
        register(&mut self.registry);
        self
    }

    /// Returns all metrics as `OpenMetrics` text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("writing to a String can't fail");
        if self.roles.is_empty() {
            return text;
        }
        let roles = self.roles.iter().filter_map(|(role, text)| Some((*role, text()?)));
        merge::merge(&text, roles)
    }
}
