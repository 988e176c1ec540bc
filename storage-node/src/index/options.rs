//! Options of RocksDB, with reasons.

use martlet_protocol::key::PREFIX_BYTES;
use rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, Cache, CompactionDecision, DBCompressionType,
    DBRecoveryMode, LogLevel, Options, SliceTransform, WriteBufferManager,
};

use super::family::Family;
use super::{tree, usage};

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// Length in bytes from which on inline bytes go to blob files. Below it, the pointer would cost as
/// much.
const BLOB_BYTES_MIN: u64 = 1024;
/// Block size. Reads of entries are few and scattered, so blocks are small.
pub(super) const BLOCK_BYTES: usize = 8 * KIB;
/// Bits of the Bloom filter for each key. Two more would cost memory, two fewer would double the
/// misses.
const BLOOM_BITS: f64 = 10.0;

/// Length of a part of a table's index or filter. A look-up reads one part of each, not all of it:
/// the filter of a table of 128 MiB has some hundred KiB.
const METADATA_BLOCK_BYTES: usize = 4 * KIB;
/// Unit in bytes by which memtables take memory. The shared budget counts whole units, so large
/// units would fill it with the empty memtables of many devices.
const ARENA_BYTES: usize = 128 * KIB;
const SMALL_ARENA_BYTES: usize = 64 * KIB;

/// Caches that all devices of a process share.
#[derive(Clone)]
pub struct Caches {
    blocks: Cache,
    write_buffers: WriteBufferManager,
    open_files_max: i32,
}

impl Caches {
    /// Creates caches of `block_bytes` for reads and `write_bytes` for recent writes. Each index
    /// keeps up to `open_files_max` files open.
    pub fn new(block_bytes: usize, write_bytes: usize, open_files_max: usize) -> Self {
        Self {
            blocks: Cache::new_lru_cache(block_bytes),
            write_buffers: WriteBufferManager::new_write_buffer_manager(write_bytes, false),
            open_files_max: i32::try_from(open_files_max).unwrap_or(i32::MAX),
        }
    }
}

impl Default for Caches {
    /// Small enough that a loaded server stays below 250 MiB.
    fn default() -> Self {
        Self::new(32 * MIB, 64 * MIB, 512)
    }
}

/// Options of a whole index.
pub(super) fn database(caches: &Caches) -> Options {
    // Without an orderly closing the log stays as it is. A failed device must not be written to,
    // and a test that drops a node must find the state after a crash.
    let mut options = Options::default()
        .get_options_from_string("avoid_flush_during_shutdown=true")
        .expect("RocksDB knows its own option");
    options.create_if_missing(true);
    options.create_missing_column_families(true);

    // Synced writes must never be lost silently. The default mode stops at the first bad record and
    // opens with the records before it. This mode tolerates only a record that the end of a log
    // truncates. Recycled logs would make the end of a log ambiguous.
    options.set_paranoid_checks(true);
    options.set_wal_recovery_mode(DBRecoveryMode::TolerateCorruptedTailRecords);
    options.set_track_and_verify_wals_in_manifest(true);
    options.set_recycle_log_file_num(0);

    // One committer writes, so concurrent memtable writes and spinning bring nothing.
    options.set_allow_concurrent_memtable_write(false);
    options.set_enable_write_thread_adaptive_yield(false);

    options.set_max_background_jobs(2);
    options.set_bytes_per_sync(MIB as u64);
    options.set_avoid_unnecessary_blocking_io(true);
    options.set_write_buffer_manager(&caches.write_buffers);
    options.set_max_total_wal_size(128 * MIB as u64);
    options.set_max_open_files(caches.open_files_max);
    options.set_max_manifest_file_size(16 * MIB);
    options.set_manifest_preallocation_size(64 * KIB);

    options.set_log_level(LogLevel::Warn);
    options.set_max_log_file_size(MIB);
    options.set_keep_log_file_num(3);
    options.set_stats_dump_period_sec(0);
    options.set_stats_persist_period_sec(0);
    options
}

/// Options of one column family.
pub(super) fn family(family: Family, caches: &Caches) -> Options {
    let mut options = Options::default();
    options.set_compression_type(DBCompressionType::Lz4);
    options.set_block_based_table_factory(&table(caches));
    options.set_max_bytes_for_level_base(64 * MIB as u64);
    // Each level has files of twice the length: an index of 40 GB has some 400 files, not 2,500.
    options.set_target_file_size_base(16 * MIB as u64);
    options.set_target_file_size_multiplier(2);
    options.set_max_write_buffer_number(3);
    options.set_arena_block_size(ARENA_BYTES);
    match family {
        Family::Entries => options.set_write_buffer_size(16 * MIB),
        Family::Inline => inline(&mut options, caches),
        Family::Extents => options.set_write_buffer_size(8 * MIB),
        Family::Tree => sums(&mut options),
        Family::Usage => usages(&mut options),
        Family::Deleted
        | Family::Marks
        | Family::Garbage
        | Family::Hints
        | Family::Meta
        | Family::Unsettled
        | Family::Old => {
            options.set_write_buffer_size(2 * MIB);
            options.set_arena_block_size(SMALL_ARENA_BYTES);
        }
    }
    if matches!(family, Family::Entries | Family::Hints) {
        // Filters also know which runs a table has, so a listing opens only tables that have some
        // of its run. Iterators over several runs ignore these filters.
        options.set_prefix_extractor(SliceTransform::create_fixed_prefix(PREFIX_BYTES));
    }
    let is_queue = matches!(
        family,
        Family::Marks | Family::Garbage | Family::Hints | Family::Unsettled | Family::Old
    );
    if is_queue || matches!(family, Family::Entries | Family::Extents) {
        // Queues, purged buckets and places of deleted extents leave runs of deletes that slow down
        // scans.
        options.add_compact_on_deletion_collector_factory(1024, 512, 0.5);
    }
    options
}

fn sums(options: &mut Options) {
    options.set_write_buffer_size(8 * MIB);
    options.set_merge_operator_associative("martlet.sum", tree::add_up);
    // An empty bin equals a missing row.
    options.set_compaction_filter("martlet.nothing", |_, _, row| {
        if tree::is_nothing(row) { CompactionDecision::Remove } else { CompactionDecision::Keep }
    });
}

fn usages(options: &mut Options) {
    options.set_write_buffer_size(2 * MIB);
    options.set_arena_block_size(SMALL_ARENA_BYTES);
    options.set_merge_operator_associative("martlet.usage", usage::add_up);
    // An empty run equals a missing row.
    options.set_compaction_filter("martlet.unused", |_, _, row| {
        if usage::is_nothing(row) { CompactionDecision::Remove } else { CompactionDecision::Keep }
    });
}

fn inline(options: &mut Options, caches: &Caches) {
    options.set_write_buffer_size(32 * MIB);
    options.set_enable_blob_files(true);
    options.set_min_blob_size(BLOB_BYTES_MIN);
    options.set_blob_file_size(64 * MIB as u64);
    options.set_blob_compression_type(DBCompressionType::Lz4);
    options.set_enable_blob_gc(true);
    options.set_blob_gc_age_cutoff(0.25);
    options.set_blob_gc_force_threshold(0.5);
    options.set_blob_cache(&caches.blocks);
}

fn table(caches: &Caches) -> BlockBasedOptions {
    let mut table = BlockBasedOptions::default();
    table.set_block_size(BLOCK_BYTES);
    table.set_block_cache(&caches.blocks);
    // Filters and indexes count against the cache, which bounds memory for any size of index.
    table.set_cache_index_and_filter_blocks(true);
    table.set_cache_index_and_filter_blocks_with_high_priority(true);
    table.set_pin_l0_filter_and_index_blocks_in_cache(true);
    table.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
    table.set_partition_filters(true);
    table.set_metadata_block_size(METADATA_BLOCK_BYTES);
    table.set_pin_top_level_index_and_filter(true);
    table.set_bloom_filter(BLOOM_BITS, false);
    table.set_optimize_filters_for_memory(true);
    table
}
