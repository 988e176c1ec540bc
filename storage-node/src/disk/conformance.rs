//! Conformance suite of [`Disk`], run against each implementation.

use std::io::{IoSlice, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

use martlet_protocol::ErrorKind;

use super::{Caching, Disk, FaultyDisk, GatedDisk, PosixDisk};

fn all(disk: &dyn Disk, root: &Path) {
    let folder = root.join("a/b");
    disk.create_dir(&folder).unwrap();
    disk.create_dir(&folder).unwrap();
    names(disk, &folder);
    bytes(disk, &folder, Caching::Cached);
    bytes(disk, &folder, Caching::Direct);
    room(disk, &folder);
    holes(disk, &folder);
    sending(disk, &folder);
    let space = disk.space(root).unwrap();
    assert!(space.total_bytes >= space.free_bytes);
}

/// Data is never taken for a hole: written, allocated, or behind the end.
fn holes(disk: &dyn Disk, folder: &Path) {
    const KIB: u64 = 1024;
    let file = disk.create(&folder.join("holes"), Caching::Cached).unwrap();
    file.truncate(1024 * KIB).unwrap();
    file.allocate(1024 * KIB, 64 * KIB).unwrap();
    for synced in [false, true] {
        file.write_at(&[IoSlice::new(&[7; 4096])], 512 * KIB).unwrap();
        if synced {
            file.sync().unwrap();
        }
        assert!(file.next_data(0).unwrap() <= 512 * KIB);
        assert_eq!(file.next_data(512 * KIB).unwrap(), 512 * KIB);
        assert!(file.next_data(516 * KIB).unwrap() >= 516 * KIB);
        assert!(file.next_data(4096 * KIB).unwrap() >= 4096 * KIB);
    }
}

fn names(disk: &dyn Disk, folder: &Path) {
    let (one, two) = (folder.join("one"), folder.join("two"));
    assert_eq!(disk.open(&one, Caching::Cached).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(disk.unlink(&one).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(disk.list(&folder.join("none")).unwrap_err().kind(), ErrorKind::NotFound);
    let file = disk.create(&one, Caching::Cached).unwrap();
    file.write_at(&[IoSlice::new(b"one")], 0).unwrap();
    let again = disk.create(&one, Caching::Cached);
    assert_eq!(again.unwrap_err().kind(), ErrorKind::Conflict);
    disk.create(&two, Caching::Cached).unwrap();
    let mut names = disk.list(folder).unwrap();
    names.sort();
    assert_eq!(names, ["one", "two"]);
    disk.rename(&one, &two).unwrap();
    disk.sync_dir(folder).unwrap();
    assert_eq!(disk.list(folder).unwrap(), ["two"]);
    let moved = disk.open(&two, Caching::Cached).unwrap();
    assert!(moved.is_named().unwrap());
    disk.unlink(&two).unwrap();
    assert!(!moved.is_named().unwrap());
    let mut read = [0; 3];
    moved.read_at(&mut read, 0).unwrap();
    assert_eq!(&read, b"one", "whoever has it open reads on");
    assert!(disk.list(folder).unwrap().is_empty());
    assert_eq!(disk.list(folder.parent().unwrap()).unwrap(), ["b"]);
}

fn bytes(disk: &dyn Disk, folder: &Path, caching: Caching) {
    let path = folder.join("bytes");
    let file = disk.create(&path, caching).unwrap();
    let mut memory = vec![0_u8; 3 * 4096];
    let start = memory.as_ptr().align_offset(4096);
    let aligned = &mut memory[start..start + 2 * 4096];
    aligned[..4096].fill(1);
    aligned[4096..].fill(2);
    let (ones, twos) = aligned.split_at(4096);
    file.write_at(&[IoSlice::new(ones), IoSlice::new(twos)], 4096).unwrap();
    file.sync().unwrap();
    assert_eq!(file.length().unwrap(), 3 * 4096);
    let reader = disk.open(&path, Caching::Cached).unwrap();
    let mut read = vec![9; 4096 * 2];
    reader.read_at(&mut read, 2048).unwrap();
    assert!(read[..2048].iter().all(|byte| *byte == 0), "what was skipped reads as zeros");
    assert!(read[2048..6144].iter().all(|byte| *byte == 1));
    assert!(read[6144..].iter().all(|byte| *byte == 2));
    assert_eq!(reader.read_at(&mut read, 8192).unwrap_err().kind(), ErrorKind::Corrupt);
    let mut quick = vec![9; 4096];
    let ready = reader.read_nowait(&mut quick, 4096).unwrap();
    assert!(quick[..ready].iter().all(|byte| *byte == 1));
    assert!(quick[ready..].iter().all(|byte| *byte == 9));
    let mut before = [9; 4096];
    reader.read_at(&mut before, 4096).unwrap();
    let writer = disk.open(&path, caching).unwrap();
    writer.write_at(&[IoSlice::new(twos)], 4096).unwrap();
    reader.read_at(&mut before, 4096).unwrap();
    assert!(before.iter().all(|byte| *byte == 2), "a reader sees what another way in wrote");
    reader.drop_cached(0, 4096 * 3).unwrap();
    reader.read_at(&mut before, 4096).unwrap();
    assert!(before.iter().all(|byte| *byte == 2), "nothing is lost with the cache");
    disk.unlink(&path).unwrap();
}

fn room(disk: &dyn Disk, folder: &Path) {
    let path = folder.join("room");
    let file = disk.create(&path, Caching::Cached).unwrap();
    file.allocate(0, 64 * 1024).unwrap();
    assert_eq!(file.length().unwrap(), 64 * 1024);
    let mut read = vec![1; 64 * 1024];
    file.read_at(&mut read, 0).unwrap();
    assert!(read.iter().all(|byte| *byte == 0));
    file.write_at(&[IoSlice::new(&[7; 16 * 1024])], 0).unwrap();
    file.allocate(0, 4096).unwrap();
    file.punch(4096, 4096).unwrap();
    assert_eq!(file.length().unwrap(), 64 * 1024, "what is there stays as long as it is");
    file.read_at(&mut read[..16 * 1024], 0).unwrap();
    let expected = |at: usize| if (4096..8192).contains(&at) { 0 } else { 7 };
    assert!(read[..16 * 1024].iter().enumerate().all(|(at, byte)| *byte == expected(at)));
    file.truncate(10).unwrap();
    file.sync().unwrap();
    assert_eq!(file.length().unwrap(), 10);
    disk.unlink(&path).unwrap();
}

fn sending(disk: &dyn Disk, folder: &Path) {
    let path = folder.join("sent");
    let file = disk.create(&path, Caching::Cached).unwrap();
    file.write_at(&[IoSlice::new(&[1; 4096]), IoSlice::new(&[2; 4096])], 0).unwrap();
    let (sender, mut receiver) = UnixStream::pair().unwrap();
    sender.set_nonblocking(true).unwrap();
    let sent = file.send(sender.as_fd(), 4000, 1000).unwrap().unwrap();
    assert!((1..=1000).contains(&sent));
    let mut received = vec![0; sent];
    receiver.read_exact(&mut received).unwrap();
    let expected = |at: usize| if at < 96 { 1 } else { 2 };
    assert!(received.iter().enumerate().all(|(at, byte)| *byte == expected(at)));
    let mut rounds = 0;
    while file.send(sender.as_fd(), 0, 8192).unwrap().is_some() {
        rounds += 1;
        assert!(rounds < 100_000, "a socket that nobody reads fills up");
    }
    drop(receiver);
    let closed = file.send(sender.as_fd(), 0, 1).unwrap_err();
    assert_eq!(closed.kind(), ErrorKind::Unavailable);
    disk.unlink(&path).unwrap();
}

#[test]
fn the_real_disk_keeps_its_promises() {
    let folder = tempfile::tempdir().unwrap();
    all(&PosixDisk, folder.path());
}

#[test]
fn the_gated_disk_keeps_them_while_its_gate_is_open() {
    let folder = tempfile::tempdir().unwrap();
    all(&GatedDisk::new(folder.path(), Arc::default()), folder.path());
}

#[test]
fn the_faulty_disk_keeps_them_while_it_has_no_fault() {
    for seed in 0..8 {
        all(&FaultyDisk::new(seed), Path::new("/device"));
    }
}
