//! JSON messages and paths of profiles of a process.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Path of a profile of processor time; POST takes one.
pub const CPU_PROFILE: &str = "/admin/v1/profile/cpu";
/// Path of a profile of the heap; POST takes one.
pub const HEAP_PROFILE: &str = "/admin/v1/profile/heap";
/// Path of the memory of a process.
pub const MEMORY_PROFILE: &str = "/admin/v1/profile/memory";
/// Format of pprof, compressed by gzip.
pub const PPROF: &str = "pprof";
/// Format with a line of text for each stack.
pub const FOLDED: &str = "folded";
/// Longest profile, in seconds.
pub const SECONDS_MAX: u64 = 60;
/// Highest number of samples for each second of processor time.
pub const FREQUENCY_MAX: u32 = 999;
/// Number of samples for each second of processor time, unless the request names another one.
pub const FREQUENCY_DEFAULT: u32 = 99;
/// Least mean number of allocated bytes between two samples of the heap.
pub const HEAP_INTERVAL_MIN: u64 = 16 << 10;
/// Greatest mean number of allocated bytes between two samples of the heap.
pub const HEAP_INTERVAL_MAX: u64 = 1 << 30;
/// Mean number of allocated bytes between two samples of the heap, unless the request names another one.
pub const HEAP_INTERVAL_DEFAULT: u64 = 512 << 10;
/// Header of a reply with the number of samples.
pub const SAMPLES_HEADER: &str = "x-martlet-samples";

/// Memory of a process, as its kernel counts it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryProfile {
    /// Memory in use.
    pub resident_bytes: u64,
    /// Highest memory in use since the start.
    pub resident_bytes_max: u64,
    /// Part of the memory in use that no file backs: that of the allocator, and stacks.
    pub anonymous_bytes: u64,
    /// Part of the memory in use that files back.
    pub file_bytes: u64,
    /// Swapped memory.
    pub swapped_bytes: u64,
    /// Address space, most of which may be unused.
    pub virtual_bytes: u64,
    /// Number of threads.
    pub threads: u64,
    /// Name of the allocator.
    pub allocator: String,
    /// Mappings by their kind, the largest resident ones first.
    pub mappings: Vec<MappingLine>,
}

/// Mappings of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MappingLine {
    /// `anonymous`, `heap`, `stack`, the name of the program or of a library, or `files`.
    pub kind: String,
    /// Number of mappings.
    pub count: u64,
    /// Address space.
    pub virtual_bytes: u64,
    /// Memory in use.
    pub resident_bytes: u64,
    /// Swapped memory.
    pub swapped_bytes: u64,
    /// Part of the memory in use that is in huge pages.
    pub huge_bytes: u64,
}
