//! The ring file.
//!
//! Little-endian throughout; strings are a 2-byte length and UTF-8.
//!
//! ```text
//!   0   8  magic "MRTLRING"
//!   8   2  format version, 2
//!  10   8  length of the whole file
//!  18   8  epoch
//!  26   2  policy id
//!  28  16  lineage
//!  44  32  hash of the parent ring
//!  76   8  handoff unit (f64)
//!  84   4  next device id
//!  88   1  part power
//!  89   1  replicas at most
//!  90   4  partitions that have them
//!  94   2  devices
//!  96   4  moves
//! 100   8  change
//! 108   2  erasure code k, m; zeros for copies
//! 110   -  policy name
//!       -  devices: id 4, region 4, zone 4, weight 8 (f64), node name, node address, name, meta
//!       -  moves: partition 4, replica 1, previous device 4, change 8
//!       -  slots: for each replica of each partition the position of its device in the list,
//!          packed into as few bits as the last position needs, low bits first
//!  -32  32  BLAKE3 of everything before: the ring's hash
//! ```
//!
//! Format 1 has neither changes nor erasure codes: its epoch is used as the change.
//!
//! The length comes early, to distinguish truncated files from changed ones. The hash comes last,
//! and is checked before any field is used.

use std::path::Path;

use martlet_protocol::{DeviceId, Partition, PolicyId, Redundancy};

use crate::device::{Device, Node};
use crate::disk;
use crate::error::{Error, Result};
use crate::ring::{Move, Ring, RingHash, RingIdentity};
use crate::table::{PART_POWER_MAX, REPLICAS_MAX, Table};

const MAGIC: &[u8; 8] = b"MRTLRING";
const VERSION: u16 = 2;
/// The oldest readable format.
const VERSION_MIN: u16 = 1;
const LENGTH_AT: usize = 10;
const HEADER_BYTES: usize = 110;
/// Header length of format 1.
const HEADER_BYTES_MIN: usize = 100;
const HASH_BYTES: usize = 32;

/// Returns the hash at the end of an encoded ring.
fn hash_of(bytes: &[u8]) -> RingHash {
    let (_, hash) = bytes.split_at(bytes.len() - HASH_BYTES);
    hash.try_into().expect("split off exactly so many")
}

impl Ring {
    /// Hash of the ring, at the end of its file and in its child.
    pub fn hash(&self) -> RingHash {
        self.hash_or_compute(|| hash_of(&self.encode()))
    }

    /// Returns the ring in its file format.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_BYTES + self.table.slots_max() * 2);
        let identity = &self.identity;
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&[0; 8]);
        out.extend_from_slice(&identity.epoch.to_le_bytes());
        out.extend_from_slice(&identity.policy.0.to_le_bytes());
        out.extend_from_slice(&identity.lineage);
        out.extend_from_slice(&identity.parent);
        out.extend_from_slice(&identity.handoff_unit.to_le_bytes());
        out.extend_from_slice(&identity.next_id.to_le_bytes());
        out.push(self.table.part_power());
        out.push(u8::try_from(self.table.width()).expect("at most 64 replicas"));
        out.extend_from_slice(&self.table.extra().to_le_bytes());
        let devices = u16::try_from(self.devices.len()).expect("at most 2^16 - 1 devices");
        out.extend_from_slice(&devices.to_le_bytes());
        let moves = u32::try_from(self.moves.len()).expect("at most 2^30 replicas");
        out.extend_from_slice(&moves.to_le_bytes());
        out.extend_from_slice(&identity.change.to_le_bytes());
        let (k, m) = match identity.redundancy {
            Redundancy::Replicated => (0, 0),
            Redundancy::Erasure { k, m } => (k, m),
        };
        out.extend_from_slice(&[k, m]);
        put_text(&mut out, &identity.policy_name);
        self.devices.iter().for_each(|device| put_device(&mut out, device));
        for step in &self.moves {
            out.extend_from_slice(&step.partition.0.to_le_bytes());
            out.push(step.replica);
            out.extend_from_slice(&step.previous.0.to_le_bytes());
            out.extend_from_slice(&step.change.to_le_bytes());
        }
        pack(&mut out, &self.table, slot_bits(devices));
        let length = (out.len() + HASH_BYTES) as u64;
        out[LENGTH_AT..LENGTH_AT + 8].copy_from_slice(&length.to_le_bytes());
        let hash = blake3::hash(&out);
        out.extend_from_slice(hash.as_bytes());
        out
    }

    /// Decodes the bytes of [`Ring::encode`]. Other bytes are refused with a reason.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let body = check_frame(bytes)?;
        let mut reader = ByteReader { rest: &body[LENGTH_AT + 8..] };
        let epoch = reader.u64()?;
        let policy = PolicyId(reader.u16()?);
        let lineage = reader.array()?;
        let parent = reader.array()?;
        let handoff_unit = f64::from_le_bytes(reader.array()?);
        let next_id = reader.u32()?;
        let [part_power, width] = reader.array()?;
        let (extra, devices, moves) = (reader.u32()?, reader.u16()?, reader.u32()?);
        let has_changes = bytes[8..10] != VERSION_MIN.to_le_bytes();
        let change = if has_changes { reader.u64()? } else { epoch };
        let [k, m] = if has_changes { reader.array()? } else { [0, 0] };
        let redundancy = match (k, m) {
            (0, 0) => Ok(Redundancy::Replicated),
            (k, m) => Redundancy::erasure(k, m),
        };
        let policy_name = reader.text()?;
        let width = usize::from(width);
        if part_power > PART_POWER_MAX
            || !(1..=REPLICAS_MAX).contains(&width)
            || !(1..=1 << part_power).contains(&extra)
            // No device holds two replicas of a partition. Slots of a single device take no bits,
            // so that the length of the file bounds nothing.
            || width > usize::from(devices)
            || handoff_unit.is_nan()
            || handoff_unit <= 0.0
        {
            return Err(Error::corrupt("the ring file has impossible dimensions"));
        }
        let redundancy = redundancy.map_err(|error| Error::corrupt(error.to_string()))?;
        let identity = RingIdentity {
            epoch,
            policy,
            policy_name,
            redundancy,
            change,
            lineage,
            parent,
            handoff_unit,
            next_id,
        };
        let listed = (0..devices).map(|_| reader.device()).collect::<Result<Vec<_>>>()?;
        let since = (!has_changes).then_some(epoch);
        let moves = (0..moves).map(|_| reader.step(since)).collect::<Result<Vec<_>>>()?;
        let bits = slot_bits(devices);
        check_slots(reader.rest, part_power, width, extra, bits)?;
        let mut table = Table::empty(part_power, width, extra);
        unpack(reader.rest, &mut table, bits);
        let ring = Self::from_parts(identity, listed, table, moves)?;
        ring.remember_hash(hash_of(bytes));
        Ok(ring)
    }

    /// Reads a ring file.
    pub fn load(path: &Path) -> Result<Self> {
        let bytes = std::fs::read(path).map_err(|error| Error::io("reading", path, &error))?;
        Self::decode(&bytes)
            .map_err(|error| Error::new(error.kind(), format!("{}: {error}", path.display())))
    }

    /// Writes the ring file atomically, replacing any before.
    pub fn save(&self, path: &Path) -> Result<()> {
        disk::replace(path, &self.encode())
    }
}

/// Checks magic, version, length and hash; returns the bytes that the hash covers.
fn check_frame(bytes: &[u8]) -> Result<&[u8]> {
    if bytes.len() < MAGIC.len() || &bytes[..MAGIC.len()] != MAGIC {
        return Err(Error::corrupt("not a ring file: it has another magic number"));
    }
    if bytes.len() < HEADER_BYTES_MIN + HASH_BYTES {
        return Err(Error::corrupt("the ring file is cut short: copy it again"));
    }
    let version = u16::from_le_bytes([bytes[8], bytes[9]]);
    if !(VERSION_MIN..=VERSION).contains(&version) {
        return Err(Error::corrupt(format!(
            "the ring file has format {version}, and this program reads formats {VERSION_MIN} to \
             {VERSION}: use the matching version of martlet"
        )));
    }
    let length = bytes[LENGTH_AT..LENGTH_AT + 8].try_into().map(u64::from_le_bytes);
    let length = length.expect("eight bytes");
    let actual = bytes.len() as u64;
    if actual != length {
        let fault = if actual < length { "cut short" } else { "followed by other bytes" };
        return Err(Error::corrupt(format!(
            "the ring file is {fault}: {actual} bytes instead of {length}; copy it again"
        )));
    }
    let (body, hash) = bytes.split_at(bytes.len() - HASH_BYTES);
    if blake3::hash(body).as_bytes() != hash {
        return Err(Error::corrupt("the ring file is damaged: its hash differs; copy it again"));
    }
    Ok(body)
}

/// Number of bits of a slot.
fn slot_bits(devices: u16) -> u32 {
    u16::BITS - devices.saturating_sub(1).leading_zeros()
}

#[expect(clippy::cast_possible_truncation, reason = "the low byte is what is wanted")]
fn pack(out: &mut Vec<u8>, table: &Table, bits: u32) {
    let (mut window, mut filled) = (0u64, 0);
    for &slot in table.rows().flat_map(|(_, row)| row) {
        window |= u64::from(slot) << filled;
        filled += bits;
        while filled >= 8 {
            out.push(window as u8);
            window >>= 8;
            filled -= 8;
        }
    }
    if filled > 0 {
        out.push(window as u8);
    }
}

/// Checks that `bytes` has the length of a table of this shape, before memory is allocated, and that
/// its unused bits are zeros: a ring has one file, and so one hash.
fn check_slots(bytes: &[u8], part_power: u8, width: usize, extra: u32, bits: u32) -> Result<()> {
    let replicas = ((width as u64 - 1) << part_power) + u64::from(extra);
    let slot_bits = replicas * u64::from(bits);
    if bytes.len() as u64 != slot_bits.div_ceil(8) {
        return Err(Error::corrupt("the ring file has too few or too many replicas"));
    }
    let used = slot_bits % 8;
    let unused = bytes.last().filter(|_| used > 0).map_or(0, |last| last >> used);
    if unused != 0 {
        return Err(Error::corrupt("the ring file has bits after its last replica"));
    }
    Ok(())
}

fn unpack(bytes: &[u8], table: &mut Table, bits: u32) {
    let mask = (1u64 << bits) - 1;
    let (mut window, mut filled, mut bytes) = (0u64, 0, bytes.iter());
    for partition in 0..table.parts() {
        for slot in table.row_mut(partition) {
            while filled < bits {
                let byte = *bytes.next().expect("the length was checked");
                window |= u64::from(byte) << filled;
                filled += 8;
            }
            #[expect(clippy::cast_possible_truncation, reason = "at most 16 bits are left")]
            {
                *slot = (window & mask) as u16;
            }
            window >>= bits;
            filled -= bits;
        }
    }
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    // Builders refuse longer names; a name from `Ring::of_devices` is cut between characters.
    let text = &text[..text.floor_char_boundary(usize::from(u16::MAX))];
    let length = u16::try_from(text.len()).expect("cut to what fits");
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

fn put_device(out: &mut Vec<u8>, device: &Device) {
    out.extend_from_slice(&device.id.0.to_le_bytes());
    out.extend_from_slice(&device.region.to_le_bytes());
    out.extend_from_slice(&device.zone.to_le_bytes());
    out.extend_from_slice(&device.weight.to_le_bytes());
    for text in [&device.node.name, &device.node.address, &device.name, &device.meta] {
        put_text(out, text);
    }
}

/// Reads values from the front of bytes.
struct ByteReader<'a> {
    rest: &'a [u8],
}

impl ByteReader<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (head, rest) = self
            .rest
            .split_first_chunk()
            .ok_or_else(|| Error::corrupt("the ring file ends in the middle of a list"))?;
        self.rest = rest;
        Ok(*head)
    }

    fn u16(&mut self) -> Result<u16> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn text(&mut self) -> Result<String> {
        let length = usize::from(self.u16()?);
        let (head, rest) = self
            .rest
            .split_at_checked(length)
            .ok_or_else(|| Error::corrupt("the ring file ends in the middle of a name"))?;
        self.rest = rest;
        String::from_utf8(head.to_vec())
            .map_err(|_| Error::corrupt("the ring file has a name that is not UTF-8"))
    }

    fn device(&mut self) -> Result<Device> {
        let (id, region, zone) = (DeviceId(self.u32()?), self.u32()?, self.u32()?);
        let weight = f64::from_le_bytes(self.array()?);
        if !weight.is_finite() || weight < 0.0 {
            return Err(Error::corrupt(format!("the ring file gives {id} the weight {weight}")));
        }
        let node = Node { name: self.text()?, address: self.text()? };
        let (name, meta) = (self.text()?, self.text()?);
        Ok(Device { id, region, zone, node, name, weight, meta })
    }

    /// Reads a move; in a format without changes, the move's change is `change`.
    fn step(&mut self, change: Option<u64>) -> Result<Move> {
        let partition = Partition(self.u32()?);
        let [replica] = self.array()?;
        let previous = DeviceId(self.u32()?);
        let change = change.map_or_else(|| self.u64(), Ok)?;
        Ok(Move { partition, replica, previous, change })
    }
}
