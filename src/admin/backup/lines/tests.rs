//! Files of backups: round trips, and each way in which a file can be wrong.

use std::io::{BufReader, Cursor};

use serde_json::json;

use super::*;
use crate::admin::backup::secret::BackupSecret;

const SECRET: BackupSecret = BackupSecret::Key([7; 32]);

fn record(at: u64) -> Line {
    let mut bytes = [0; 700];
    blake3::Hasher::new().update(&at.to_le_bytes()).finalize_xof().fill(&mut bytes);
    Line::Record(RecordLine {
        kind: if at.is_multiple_of(3) { "bucket" } else { "key" }.into(),
        name: format!("item-{at}"),
        written_ms: at,
        // Incompressible, so that several chunks are needed.
        content: json!({ "text": hex::encode(bytes) }),
    })
}

fn file_of(lines: u64) -> Vec<u8> {
    let (header, key) = Header::new(&SECRET, "9.9".into(), 77).unwrap();
    let mut writer = BackupWriter::new(Vec::new(), &header, &key).unwrap();
    for at in 0..lines {
        writer.push(&record(at)).unwrap();
    }
    let file = FileLine { name: "index.ring".into(), epoch: Some(3), content: "00ff".into() };
    writer.push(&Line::File(file)).unwrap();
    writer.finish().unwrap().0
}

/// Reads a whole file; returns its lines as text, or the sentence of the refusal.
fn read(file: &[u8], secret: &BackupSecret) -> Result<Vec<String>, String> {
    let all = || -> Result<Vec<String>, Failure> {
        let mut from = BufReader::new(Cursor::new(file));
        let header = Header::read(&mut from)?;
        let key = header.open(secret)?;
        let mut reader = BackupReader::new(from, &header, &key);
        let mut lines = Vec::new();
        while let Some(line) = reader.next()? {
            lines.push(serde_json::to_string(&line).unwrap());
        }
        let counted: u64 = reader.counts().values().sum();
        assert_eq!(counted, lines.len() as u64);
        Ok(lines)
    };
    all().map_err(|error| error.to_string())
}

#[test]
fn backups_are_read_as_written() {
    for lines in [0, 1, 5, 400] {
        let file = file_of(lines);
        let found = read(&file, &SECRET).unwrap();
        assert_eq!(found.len() as u64, lines + 1);
        for (at, line) in (0..lines).zip(&found) {
            assert_eq!(*line, serde_json::to_string(&record(at)).unwrap());
        }
        assert!(found.last().unwrap().contains("index.ring"));
        let clear = String::from_utf8_lossy(&file).into_owned();
        assert!(!clear.contains("item-") && !clear.contains("index.ring"), "nothing is in clear");
    }
}

#[test]
fn each_file_has_a_key_of_its_own() {
    assert_ne!(file_of(1), file_of(1));
}

#[test]
fn another_secret_is_refused() {
    let file = file_of(3);
    let refusal = read(&file, &BackupSecret::Key([8; 32])).unwrap_err();
    assert!(refusal.contains("isn't that of this backup"), "{refusal}");
    let refusal = read(&file, &BackupSecret::Passphrase("some passphrase".into())).unwrap_err();
    assert!(refusal.contains("--backup-key-file"), "{refusal}");
}

#[test]
fn a_passphrase_opens_what_it_sealed() {
    let secret = BackupSecret::Passphrase("correct horse battery".into());
    let (header, key) = Header::new(&secret, "9.9".into(), 77).unwrap();
    let writer = BackupWriter::new(Vec::new(), &header, &key).unwrap();
    let (file, _) = writer.finish().unwrap();
    assert_eq!(read(&file, &secret), Ok(Vec::new()));
    let wrong = BackupSecret::Passphrase("correct horse batterie".into());
    assert!(read(&file, &wrong).unwrap_err().contains("isn't that of this backup"));
}

#[test]
fn a_later_format_and_other_files_are_refused() {
    let file = file_of(1);
    let text = "\"format\":1,";
    let at = file.windows(text.len()).position(|bytes| bytes == text.as_bytes()).unwrap();
    let mut later = file.clone();
    later[at + text.len() - 2] = b'2';
    let refusal = read(&later, &SECRET).unwrap_err();
    assert!(refusal.contains("format 2") && refusal.contains("up to 1"), "{refusal}");
    for other in [&b""[..], b"martlet", &[0x1f; 100], &file[1..]] {
        assert!(read(other, &SECRET).unwrap_err().contains("no backup"));
    }
}

#[test]
fn chunks_can_be_neither_left_out_nor_exchanged() {
    let file = file_of(400);
    let begin = file.iter().enumerate().filter(|(_, byte)| **byte == b'\n').nth(1).unwrap().0 + 1;
    let mut chunks = Vec::new();
    let mut at = begin;
    while at < file.len() {
        let word = u32::from_be_bytes(file[at..at + 4].try_into().unwrap());
        let end = at + 4 + (word & 0x7fff_ffff) as usize;
        chunks.push(file[at..end].to_vec());
        at = end;
    }
    assert!(chunks.len() > 3, "{} chunks", chunks.len());
    let joined = |order: &[usize]| {
        let picked = order.iter().flat_map(|at| chunks[*at].clone());
        file[..begin].iter().copied().chain(picked).collect::<Vec<u8>>()
    };
    let all: Vec<usize> = (0..chunks.len()).collect();
    assert!(read(&joined(&all), &SECRET).is_ok());
    let last = chunks.len() - 1;
    let mut exchanged = all.clone();
    exchanged.swap(0, 1);
    for order in [&all[1..], &all[..last], &[0, last], &exchanged, &[&all[..], &[last]].concat()] {
        let refusal = read(&joined(order), &SECRET).unwrap_err();
        assert!(refusal.contains("use another copy"), "{refusal}");
    }
}

#[test]
fn a_cut_or_damaged_file_is_refused_by_a_sentence() {
    let file = file_of(2);
    for at in 0..file.len() {
        let mut damaged = file.clone();
        damaged[at] ^= 1 << (at % 8);
        for wrong in [&file[..at], &damaged] {
            let refusal = read(wrong, &SECRET).unwrap_err();
            assert!(refusal.len() > 20, "byte {at}: {refusal}");
        }
    }
    let longer = [&file[..], b"x"].concat();
    assert!(read(&longer, &SECRET).unwrap_err().contains("bytes follow"));
}
