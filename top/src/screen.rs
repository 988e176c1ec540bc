//! Screens of the view, in the order of their keys.

/// Screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Screen {
    /// Readiness, rates, space and warnings.
    #[default]
    Overview,
    /// Devices and their fullness.
    Devices,
    /// Processes of the cluster.
    Nodes,
    /// Rings and their changes.
    Rings,
    /// Background workers of all processes.
    Workers,
    /// Jobs of the queried process.
    Jobs,
}

impl Screen {
    /// All screens.
    pub(crate) const ALL: [Self; 6] =
        [Self::Overview, Self::Devices, Self::Nodes, Self::Rings, Self::Workers, Self::Jobs];

    /// Returns the place among all screens.
    pub(crate) fn index(self) -> usize {
        match self {
            Self::Overview => 0,
            Self::Devices => 1,
            Self::Nodes => 2,
            Self::Rings => 3,
            Self::Workers => 4,
            Self::Jobs => 5,
        }
    }

    /// Returns the title.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Overview => "Overview",
            Self::Devices => "Devices",
            Self::Nodes => "Nodes",
            Self::Rings => "Rings",
            Self::Workers => "Workers",
            Self::Jobs => "Jobs",
        }
    }

    /// Returns the screen `by` places further, in a circle.
    pub(crate) fn after(self, by: usize) -> Self {
        Self::ALL[(self.index() + by) % Self::ALL.len()]
    }
}
