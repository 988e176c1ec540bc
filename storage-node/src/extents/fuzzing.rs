//! Descriptions of extents, as the fuzz target reads them: rows, heads of volumes and headers of
//! records.

use martlet_protocol::extent::{ExtentRecord, ExtentRef, ExtentRole, Layout, Owner};
use martlet_protocol::testing::fuzz_target::InputReader;
use martlet_protocol::{BucketId, ExtentId, WriteId};

use super::buffer::ALIGN;
use super::record::{Header, VolumeHead, inspect, prepare, write_header};
use super::row::{Row, RowHead, RowLocation};
use super::seal::{Description, SECTOR, Seal, SealLocation, SealSector};

const SECRET: [u8; 32] = [9; 32];
const SPOT: SealLocation = SealLocation { volume: 3, offset: 8192 };

/// Reads bytes as one of the three. Returns true if they are valid.
pub(crate) fn check(mut reader: InputReader<'_>) -> bool {
    match reader.byte() % 4 {
        0 => row(reader.rest()),
        1 => volume_head(reader.rest()),
        2 => header(reader.rest()),
        _ => sealed_header(reader),
    }
}

fn row(bytes: &[u8]) -> bool {
    let head = RowHead::decode(bytes);
    let Ok(row) = Row::decode(bytes) else { return false };
    let _ = row.used_place();
    let again = row.encode();
    assert_eq!(Row::decode(&again).expect("an encoded row can be decoded"), row);
    let (place, extent, layout) = (row.place, row.record.extent, row.record.layout);
    let expected = RowHead { place, extent, layout };
    assert_eq!(RowHead::decode(&again).expect("an encoded row has a head"), expected);
    assert_eq!(head.expect("a whole row has a head"), expected);
    true
}

/// The first 4 KiB of a file, zeros where the input ends.
fn block_of(bytes: &[u8]) -> Vec<u8> {
    let mut block = bytes[..bytes.len().min(ALIGN)].to_vec();
    block.resize(ALIGN, 0);
    block
}

fn volume_head(bytes: &[u8]) -> bool {
    let block = block_of(bytes);
    let Some(head) = VolumeHead::decode(&block) else { return false };
    assert_eq!(VolumeHead::decode(&head.encode()), Some(head));
    true
}

fn header(bytes: &[u8]) -> bool {
    matches!(inspect(&Seal::volume(&SECRET), SPOT, &block_of(bytes)), Header::Good(_))
}

/// A header with any fields and any body, sealed with the volume's secret.
fn sealed_header(mut reader: InputReader<'_>) -> bool {
    let mut number = || u32::from(reader.number()) << (reader.byte() % 17);
    let (length, body_bytes, crcs, record_bytes) = (number(), number(), number(), number());
    let mut id = [0; 16];
    id.fill(reader.byte());
    let head = SealSector {
        spot: SPOT,
        length,
        body_bytes,
        crcs,
        record_bytes,
        id: ExtentId(id),
        body_hash: [0; 32],
    };
    let (seal, mut block) = (Seal::volume(&SECRET), vec![0; ALIGN]);
    let body = reader.rest();
    let body = &body[..body.len().min(ALIGN - SECTOR)];
    block[SECTOR..SECTOR + body.len()].copy_from_slice(body);
    let (sector, body) = block.split_at_mut(SECTOR);
    seal.write(sector, head, body);
    match inspect(&seal, SPOT, &block) {
        Header::Good(description) => {
            let found = (description.record.extent.length, description.record.extent.id);
            assert_eq!(found, (length, head.id));
            assert_eq!(description.crcs.len(), crcs as usize);
            true
        }
        Header::Torn(_) => false,
        Header::Absent | Header::Rotten => panic!("a sealed head is a head"),
    }
}

fn record() -> ExtentRecord {
    let owner = Owner {
        bucket: BucketId([5; 16]),
        key: "a key".to_owned(),
        write_id: WriteId([6; 16]),
        upload: None,
        role: ExtentRole::Data,
        offset: 0,
    };
    let extent = ExtentRef { id: ExtentId([9; 16]), length: 70_000, blake3: [7; 32] };
    ExtentRecord { extent, owner, birth_ms: 9, layout: Layout::default() }
}

/// Returns descriptions as this node writes them.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let places = [RowLocation::File, RowLocation::Record(3725, 4 << 30), RowLocation::Quarantined];
    let rows = places.map(|place| [&[0][..], &Row { place, record: record() }.encode()].concat());
    let description = Description { record: record(), crcs: vec![1, 2] };
    let prepared = prepare(&description).expect("the owner is short");
    let mut written = vec![0; ALIGN];
    write_header(&mut written, &Seal::volume(&SECRET), SPOT, &prepared);
    let head = VolumeHead { number: 3, secret: SECRET }.encode();
    let heads = [[&[1][..], &head].concat(), [&[2][..], &written].concat()];
    // The fields of a header: length, bytes of the body, checksums, bytes of the record; the id.
    let (sector, body) = description.encode();
    let field = |number: u32, shift: u8| {
        let number = u16::try_from(number >> shift).expect("fields of the seed are small");
        [&number.to_le_bytes()[..], &[shift]].concat()
    };
    let fields = [
        field(70_000, 4),
        field(3584, 0),
        field(sector.crcs, 0),
        field(sector.record_bytes, 0),
        vec![9],
        body,
    ];
    let sealed = [vec![3], fields.concat()].concat();
    [&rows[..], &heads, &[sealed]].concat()
}
