//! Sampled stacks, without the types of the profiler.

/// A stack with the number of samples that found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SampledStack {
    /// Name of the thread.
    pub(super) thread: String,
    /// Frames from the innermost call to the outermost. A frame has several functions if calls were
    /// inlined, the innermost first.
    pub(super) frames: Vec<Vec<FrameFunction>>,
    pub(super) samples: u64,
}

/// A function within a frame.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct FrameFunction {
    /// Name, demangled.
    pub(super) name: String,
    /// Name in the symbol table.
    pub(super) symbol: String,
    /// File of the source; empty if unknown.
    pub(super) file: String,
    /// Line of the call; 0 if unknown.
    pub(super) line: u32,
}
