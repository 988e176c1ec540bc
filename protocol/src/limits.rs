//! Bounds shared by several crates, with their reasons, checked against each other at compile time.

/// Longest object key in bytes of UTF-8, as in S3.
pub const KEY_BYTES_MAX: usize = 1024;
/// Largest object stored inside the index: above this, RocksDB's write amplification costs more
/// than a second sync.
pub const INLINE_BYTES_MAX: u64 = 8 * 1024;
/// Largest extent packed into a volume; longer extents get their own file.
pub const PACKED_BYTES_MAX: u64 = 1024 * 1024;
/// Longest extent: long enough that a disk streams at full speed, short enough to place evenly.
pub const EXTENT_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Bytes covered by one CRC32C: the unit in which reads are verified.
pub const BLOCK_BYTES: u64 = 64 * 1024;
/// Alignment of everything that may be read with `O_DIRECT`.
pub const ALIGN_BYTES: u64 = 4096;
/// Bytes moved at a time between socket and disk: large enough to hide the cost of a thread hop.
pub const CHUNK_BYTES: usize = 1024 * 1024;
/// Most extents of a manifest inside an entry; a longer manifest is itself stored as extents.
pub const MANIFEST_EXTENTS_INLINE_MAX: usize = 128;
/// Most extents of a part's manifest inside its entry, so that a page of parts fits into a reply; a longer
/// manifest is itself stored as extents. A part of 5 GiB is longer in extents of less than 5 MiB.
pub const PART_EXTENTS_INLINE_MAX: usize = 1024;
/// Most extents of a multipart object. Its manifest is whole in memory while the upload is completed:
/// 208 MiB at worst. An object of 5 TiB fits in extents of 1.25 MiB and more.
pub const OBJECT_EXTENTS_MAX: usize = 4 * 1024 * 1024;
/// Most fragments of an extent, data and parity: the range of fragment numbers in ids.
pub const FRAGMENTS_MAX: u8 = 32;
/// Largest single PUT or part, as in S3.
pub const PUT_BYTES_MAX: u64 = 5 * 1024 * 1024 * 1024;
/// Largest object, as in S3.
pub const OBJECT_BYTES_MAX: u64 = 5 * 1024 * 1024 * 1024 * 1024;
/// Smallest part except the last, as in S3.
pub const PART_BYTES_MIN: u64 = 5 * 1024 * 1024;
/// Most parts of one upload, as in S3.
pub const PARTS_MAX: u16 = 10_000;
/// Most fences in one reply: a page fits into a reply of 2 MiB.
pub const FENCES_MAX: usize = 65_536;
/// Most owners of extents in one question to a node: their keys fit into a request.
pub const CLAIMS_AT_ONCE_MAX: usize = 512;
/// Keys in one page of a listing, and in one DeleteObjects, as in S3.
pub const LIST_KEYS_MAX: usize = 1000;
/// Rows with promises only that a listing page skips before it ends.
pub const LIST_EMPTY_ROWS_MAX: usize = 5000;
/// Most bytes of user metadata (names and values), as in S3.
pub const USER_METADATA_BYTES_MAX: usize = 2048;
/// Most tags on an object, as in S3.
pub const OBJECT_TAGS_MAX: usize = 10;
/// Most bytes of a bucket's configuration documents in total: a page of a thousand buckets must fit
/// into one reply.
pub const SETTINGS_BYTES_MAX: usize = 48 * 1024;
/// Longest bucket policy, as in S3.
pub const POLICY_BYTES_MAX: usize = 20 * 1024;
/// Most tags on a bucket, as in S3.
pub const BUCKET_TAGS_MAX: usize = 50;
/// Default number of shards of a bucket's index.
pub const INDEX_SHARDS_DEFAULT: u16 = 16;
/// Most shards that a bucket's index can have.
pub const INDEX_SHARDS_MAX: u16 = 4096;
/// Longest time that a stamp may lie ahead of a replica's clock (rule C1).
pub const CLOCK_SKEW_MS_MAX: u64 = 60_000;
/// Time in which a call with a condition may be executed. A node whose clock differs by the most that
/// is allowed still has a minute (rules G1, X9).
pub const CONDITION_MS: u64 = CLOCK_SKEW_MS_MAX + 60_000;
/// Time after a write's first extent in which the write may commit (rule X2).
pub const COMMIT_WINDOW_MS: u64 = 24 * 60 * 60 * 1000;
/// Age from which first-hand writes and ballots are refused (rule T2).
pub const FIRST_HAND_AGE_MS_MAX: u64 = 10 * 60 * 1000;
/// Longest jump of a ring's epoch, its change number or a term beyond a member's known value. It
/// far exceeds the number of changes ever missed, and prevents one faulty member from exhausting
/// the numbers.
pub const RING_AHEAD_MAX: u64 = 1 << 32;

const _: () = {
    assert!(FRAGMENTS_MAX.is_power_of_two());
    assert!(INLINE_BYTES_MAX < PACKED_BYTES_MAX);
    assert!(PACKED_BYTES_MAX < EXTENT_BYTES_MAX);
    assert!(BLOCK_BYTES.is_multiple_of(ALIGN_BYTES));
    assert!(EXTENT_BYTES_MAX.is_multiple_of(BLOCK_BYTES));
    assert!((CHUNK_BYTES as u64).is_multiple_of(BLOCK_BYTES));
    assert!(PART_BYTES_MIN * 1000 * (PARTS_MAX as u64) >= OBJECT_BYTES_MAX);
    assert!(MANIFEST_EXTENTS_INLINE_MAX <= PART_EXTENTS_INLINE_MAX);
    assert!(OBJECT_EXTENTS_MAX as u64 * (5 * 1024 * 1024 / 4) >= OBJECT_BYTES_MAX);
    assert!(POLICY_BYTES_MAX < SETTINGS_BYTES_MAX);
    assert!(INDEX_SHARDS_DEFAULT.is_power_of_two() && INDEX_SHARDS_MAX.is_power_of_two());
    assert!(CLOCK_SKEW_MS_MAX < FIRST_HAND_AGE_MS_MAX && FIRST_HAND_AGE_MS_MAX < COMMIT_WINDOW_MS);
};
