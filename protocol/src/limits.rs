//! Every bound that more than one crate relies on, with its reason, checked against the others
//! when compiled.

/// Longest object key in bytes of UTF-8, as in S3.
pub const KEY_BYTES_MAX: usize = 1024;
/// Objects up to this size live inside the index: above it RocksDB's write amplification costs
/// more than a second sync would.
pub const INLINE_BYTES_MAX: u64 = 8 * 1024;
/// Extents up to this size are packed into volumes; longer ones get a file of their own.
pub const PACKED_BYTES_MAX: u64 = 1024 * 1024;
/// Longest extent: long enough that a disk streams at full speed, short enough to place evenly.
pub const EXTENT_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Bytes that one CRC32C covers: the unit in which reads are verified.
pub const BLOCK_BYTES: u64 = 64 * 1024;
/// Alignment of everything that may be read with `O_DIRECT`.
pub const ALIGN_BYTES: u64 = 4096;
/// Bytes moved at a time between socket and disk: large enough that a thread hop disappears in it.
pub const CHUNK_BYTES: usize = 1024 * 1024;
/// Extents that a manifest may hold inside an entry; a longer manifest is itself stored as extents.
pub const MANIFEST_EXTENTS_INLINE_MAX: usize = 128;
/// Most fragments of an extent, data and parity: an id numbers no more.
pub const FRAGMENTS_MAX: u8 = 32;
/// Largest single PUT or part, as in S3.
pub const PUT_BYTES_MAX: u64 = 5 * 1024 * 1024 * 1024;
/// Largest object, as in S3.
pub const OBJECT_BYTES_MAX: u64 = 5 * 1024 * 1024 * 1024 * 1024;
/// Smallest part but the last, as in S3.
pub const PART_BYTES_MIN: u64 = 5 * 1024 * 1024;
/// Most parts of one upload, as in S3.
pub const PARTS_MAX: u16 = 10_000;
/// Keys in one page of a listing, and in one DeleteObjects, as in S3.
pub const LIST_KEYS_MAX: usize = 1000;
/// Rows that hold nothing but promises, of which a page of a listing passes over so many and then ends.
pub const LIST_EMPTY_ROWS_MAX: usize = 5000;
/// Bytes of user metadata (names and values), as in S3.
pub const USER_METADATA_BYTES_MAX: usize = 2048;
/// Tags on an object, as in S3.
pub const OBJECT_TAGS_MAX: usize = 10;
/// Documents that are set about a bucket, all of them together: a page of a thousand buckets is one
/// reply.
pub const SETTINGS_BYTES_MAX: usize = 48 * 1024;
/// A bucket policy, as in S3.
pub const POLICY_BYTES_MAX: usize = 20 * 1024;
/// Tags on a bucket, as in S3.
pub const BUCKET_TAGS_MAX: usize = 50;
/// Shards of a bucket's index, unless chosen otherwise at creation.
pub const INDEX_SHARDS_DEFAULT: u16 = 16;
/// Most shards that a bucket's index can have.
pub const INDEX_SHARDS_MAX: u16 = 4096;
/// How far a stamp may lie ahead of a replica's clock (rule C1).
pub const CLOCK_SKEW_MS_MAX: u64 = 60_000;
/// How long after its first extent a write may still commit (rule X2).
pub const COMMIT_WINDOW_MS: u64 = 24 * 60 * 60 * 1000;
/// First-hand writes and ballots older than this are refused (rule T2).
pub const FIRST_HAND_AGE_MS_MAX: u64 = 10 * 60 * 1000;
/// How far a ring's epoch, its change, or a term may be ahead of what a member knows. Far more than
/// are ever missed; and nobody who errs once uses up the numbers that others need.
pub const RING_AHEAD_MAX: u64 = 1 << 32;

const _: () = {
    assert!(FRAGMENTS_MAX.is_power_of_two());
    assert!(INLINE_BYTES_MAX < PACKED_BYTES_MAX);
    assert!(PACKED_BYTES_MAX < EXTENT_BYTES_MAX);
    assert!(BLOCK_BYTES.is_multiple_of(ALIGN_BYTES));
    assert!(EXTENT_BYTES_MAX.is_multiple_of(BLOCK_BYTES));
    assert!((CHUNK_BYTES as u64).is_multiple_of(BLOCK_BYTES));
    assert!(PART_BYTES_MIN * 1000 * (PARTS_MAX as u64) >= OBJECT_BYTES_MAX);
    assert!(POLICY_BYTES_MAX < SETTINGS_BYTES_MAX);
    assert!(INDEX_SHARDS_DEFAULT.is_power_of_two() && INDEX_SHARDS_MAX.is_power_of_two());
    assert!(CLOCK_SKEW_MS_MAX < FIRST_HAND_AGE_MS_MAX && FIRST_HAND_AGE_MS_MAX < COMMIT_WINDOW_MS);
};
