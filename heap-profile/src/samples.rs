//! Result of a window.

/// Samples of a window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeapSamples {
    /// Stacks that allocated, in no order.
    pub stacks: Vec<HeapStack>,
    /// Number of sampled allocations.
    pub samples: u64,
    /// Samples that are missing in part, because the window had 16,384 stacks, or about 65,536 live samples.
    pub dropped: u64,
}

/// Stack with estimates of what it allocated in the window. A reallocation is an allocation of its new size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeapStack {
    /// Return addresses from the innermost frame to the outermost, 128 at most.
    pub frames: Vec<usize>,
    /// Allocations in the window.
    pub allocated_objects: u64,
    /// Their bytes.
    pub allocated_bytes: u64,
    /// Those of them that weren't freed until its end.
    pub live_objects: u64,
    /// Their bytes.
    pub live_bytes: u64,
}
