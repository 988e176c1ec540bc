//! Writes that a device without room accepts, because their bytes are there already.

use martlet_protocol::version::Version;

use super::*;

const EXTENT: u8 = 3;

fn version(number: u8) -> Version {
    Version { position: u64::from(number), id: Some(WriteId([number; 16])) }
}

fn beside(number: u8) -> RegisterKey {
    RegisterKey::version(&key("a"), version(number).name())
}

fn versioned(mut write: EntryWrite, number: u8) -> EntryWrite {
    let Value::Object(object) = &mut write.entry.value else { panic!("no object") };
    object.version = Some(version(number));
    EntryWrite { mode: WriteMode::Accept, ..write }
}

/// A version with inline bytes.
fn short(key: &RegisterKey, ticks: u64, number: u8) -> EntryWrite {
    versioned(inline(key, stamp(ticks), &[number; 3000]), number)
}

/// A version with an extent.
fn large(key: &RegisterKey, ticks: u64, number: u8) -> EntryWrite {
    versioned(write(key, stamp(ticks), object(9, extents(number))), number)
}

/// Opens the index again, on a device whose reserve is this many quarters of its free space.
fn reopened(folder: &Path, quarters: u64) -> IndexFixture {
    let free = Ballast::open(folder, Reserve::Bytes(0)).unwrap().free_bytes();
    let reserve = Reserve::Bytes(free / 4 * quarters);
    let ballast = Arc::new(Ballast::open(folder, reserve).unwrap());
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let with = IndexContext { ballast, clock: clock.clone(), ..surroundings(folder) };
    bed_with(folder, with, clock)
}

/// Two versions of a key: the first with inline bytes, beside the head; the second with an extent.
async fn two_versions(folder: &Path) {
    let bed = bed(folder);
    for write in [short(&beside(1), 1, 1), large(&key("a"), 2, EXTENT)] {
        assert_eq!(bed.index.write(write).await.unwrap(), WriteReply::Stored);
    }
    bed.index.close().unwrap();
}

async fn stored(bed: &IndexFixture, write: EntryWrite) -> bool {
    match bed.index.write(write).await {
        Ok(reply) => {
            assert_eq!(reply, WriteReply::Stored);
            true
        }
        Err(error) => {
            assert!(error.kind() == ErrorKind::Full && error.had_no_effect(), "{error}");
            false
        }
    }
}

/// Quarters of the free space in reserve, by level.
const FULL: u64 = 6;
const CRITICAL: u64 = 16;

#[tokio::test]
async fn a_version_delete_frees_extents_on_a_device_without_room() {
    for quarters in [FULL, CRITICAL] {
        let folder = tempfile::tempdir().unwrap();
        two_versions(folder.path()).await;
        let bed = reopened(folder.path(), quarters);
        assert!(stored(&bed, write(&beside(EXTENT), stamp(3), Value::Tombstone)).await);
        // The version below becomes the head, under the ballot of the delete.
        assert!(stored(&bed, short(&key("a"), 4, 1)).await, "{quarters} quarters in reserve");
        let view = bed.index.read(&key("a"), Want::EntryAndInline, Term::ANY).await.unwrap();
        assert_eq!(view.inline.unwrap(), [1; 3000][..]);
        let garbage = bed.index.garbage_after(None, u64::MAX, 9).await.unwrap();
        let bodies: Vec<Body> = garbage.into_iter().map(|it| it.body).collect();
        assert_eq!(bodies, [extents(EXTENT)], "the extents of the deleted version are freed");
    }
}

#[tokio::test]
async fn bytes_that_no_register_holds_are_refused() {
    for quarters in [FULL, CRITICAL] {
        let folder = tempfile::tempdir().unwrap();
        two_versions(folder.path()).await;
        let bed = reopened(folder.path(), quarters);
        let mut other = short(&key("a"), 4, 1);
        let bytes = vec![9; 3000];
        let Value::Object(object) = &mut other.entry.value else { panic!("no object") };
        object.body = Body::Inline { crc32c: rows::crc32c(&bytes) };
        other.inline = Some(bytes.into());
        assert!(!stored(&bed, other).await, "other bytes under the version's name");
        assert!(!stored(&bed, short(&key("a"), 4, 7)).await, "an unknown version");
        let plain = inline(&key("b"), stamp(4), b"new bytes");
        for mode in [WriteMode::Fresh, WriteMode::Accept, WriteMode::Settled, WriteMode::Repair] {
            let write = EntryWrite { mode, ..plain.clone() };
            assert!(!stored(&bed, write).await, "{mode:?} brings new bytes");
        }
        assert!(!stored(&bed, inline(&key("a"), stamp(4), &[1; 3000])).await, "without a version");
    }
}

/// A delete marker, or a large version, goes above a short one: its copy beside the head comes first.
#[tokio::test]
async fn a_full_device_keeps_the_heads_version_beside_it_and_settles_what_it_holds() {
    for (quarters, is_stored) in [(FULL, true), (CRITICAL, false)] {
        let folder = tempfile::tempdir().unwrap();
        let head = short(&key("a"), 1, 1);
        {
            let bed = bed(folder.path());
            bed.index.write(head.clone()).await.unwrap();
            bed.index.close().unwrap();
        }
        let bed = reopened(folder.path(), quarters);
        let mut again = head;
        again.entry.order = stamp(2);
        assert_eq!(stored(&bed, again).await, is_stored, "under its own id, by a later ballot");
        let tagged = short(&key("a"), 3, 1);
        assert_eq!(stored(&bed, tagged).await, is_stored, "the head's version, rewritten");
        assert_eq!(stored(&bed, short(&beside(1), 3, 1)).await, is_stored);
    }
}
