//! Tests of the faulty disk's fault model.

use super::content::SECTOR;
use super::*;

fn write(file: &dyn DiskFile, bytes: &[u8], at: u64) -> Result<()> {
    file.write_at(&[IoSlice::new(bytes)], at)
}

fn disk(seed: u64) -> (FaultyDisk, PathBuf) {
    let disk = FaultyDisk::new(seed);
    disk.create_dir(Path::new("/d")).unwrap();
    (disk, PathBuf::from("/d/file"))
}

#[test]
fn synced_bytes_survive_and_others_may() {
    let (mut kept, mut torn) = (0, 0);
    for seed in 0..200 {
        let (disk, path) = disk(seed);
        let file = disk.create(&path, Caching::Cached).unwrap();
        write(file.as_ref(), &[1; 2048], 0).unwrap();
        file.sync().unwrap();
        disk.sync_dir(Path::new("/d")).unwrap();
        write(file.as_ref(), &[2; 2048], 0).unwrap();
        let after = disk.reboot();
        assert!(file.sync().is_err(), "the old disk is dead");
        let mut bytes = [0; 2048];
        after.open(&path, Caching::Cached).unwrap().read_at(&mut bytes, 0).unwrap();
        assert!(bytes.chunks(SECTOR).all(|sector| sector.iter().all(|b| *b == sector[0])));
        assert!(bytes.iter().all(|byte| *byte == 1 || *byte == 2), "seed {seed}");
        kept += usize::from(bytes == [2; 2048]);
        torn += usize::from(bytes.contains(&1) && bytes.contains(&2));
    }
    assert!(kept > 20 && torn > 20, "{kept} {torn}");
}

#[test]
fn a_name_without_a_synced_folder_may_be_gone() {
    let found = (0..100)
        .filter(|seed| {
            let (disk, path) = disk(*seed);
            disk.create(&path, Caching::Cached).unwrap().sync().unwrap();
            disk.reboot().open(&path, Caching::Cached).is_ok()
        })
        .count();
    assert!((20..80).contains(&found), "{found}");
}

#[test]
fn a_sync_that_failed_is_not_made_good_by_the_next() {
    let lost = (0..100)
        .filter(|seed| {
            let (disk, path) = disk(*seed);
            let file = disk.create(&path, Caching::Cached).unwrap();
            disk.sync_dir(Path::new("/d")).unwrap();
            write(file.as_ref(), &[1; 512], 0).unwrap();
            disk.fail_after(0, DiskFault::Io);
            assert!(file.sync().is_err());
            file.sync().unwrap();
            let mut byte = [0];
            file.read_at(&mut byte, 0).unwrap();
            assert_eq!(byte, [1], "it is still read back");
            let after = disk.reboot().open(&path, Caching::Cached).unwrap();
            after.read_at(&mut byte, 0).is_err()
        })
        .count();
    assert!(lost > 20 && lost < 90, "{lost}");
}

#[test]
fn a_chosen_call_fails_and_only_where_it_needs_space() {
    let (disk, path) = disk(1);
    let file = disk.create(&path, Caching::Cached).unwrap();
    disk.fail_after(1, DiskFault::NoSpace);
    write(file.as_ref(), b"fits", 0).unwrap();
    assert_eq!(write(file.as_ref(), b"more", 4).unwrap_err().kind(), ErrorKind::Full);
    write(file.as_ref(), b"more", 4).unwrap();
    disk.fail_after(0, DiskFault::NoSpace);
    disk.unlink(&path).unwrap();
    disk.fail_after(0, DiskFault::PowerCut);
    assert!(disk.step().is_err() && disk.is_dead());
}
