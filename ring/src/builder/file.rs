//! The builder file: JSON for operators, with the assignment in hexadecimal at its end.
//!
//! The file is replaced atomically, and contains a BLAKE3 of all other fields. Operators may edit
//! it by hand: without the `blake3` field it is accepted unverified.

use std::path::Path;

use martlet_protocol::{DeviceId, Partition};
use serde::{Deserialize, Serialize};

use super::edit::{check_lengths, check_weight};
use super::layout;
use super::{Builder, Drain, HistoryEntry, RingSettings, StartedMove};
use crate::device::Device;
use crate::disk;
use crate::error::{Error, Result};
use crate::ring::Move;
use crate::table::{DEVICES_MAX, NOBODY, PART_POWER_MAX, REPLICAS_MAX, Table};

const FORMAT: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct BuilderFile {
    martlet_ring_builder: u32,
    lineage: String,
    epoch: u64,
    /// Number of the last change; files of earlier versions lack it, and their epoch is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    change: Option<u64>,
    parent: String,
    hash: String,
    settings: RingSettings,
    changed_since_rebalance: bool,
    handoff_unit: f64,
    next_id: u32,
    devices: Vec<BuilderDevice>,
    #[serde(default)]
    drains: Vec<Drain>,
    history: Vec<HistoryEntry>,
    #[serde(default)]
    moves: Vec<MoveBatch>,
    /// Rows with four hexadecimal digits for each replica: the device's position in `devices`.
    #[serde(default)]
    assignment: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    blake3: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct BuilderDevice {
    #[serde(flatten)]
    device: Device,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    removed: bool,
}

/// Moves that began together: partition, replica, previous device.
#[derive(Serialize, Deserialize)]
struct MoveBatch {
    at_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    change: Option<u64>,
    moves: Vec<(u32, u8, u32)>,
}

/// Partitions in one line of the assignment.
const LINE_PARTITIONS: u32 = 64;
const DIGITS: &[u8; 16] = b"0123456789abcdef";

impl Builder {
    /// Encodes the builder as JSON.
    pub fn to_json(&self) -> String {
        let mut file = self.to_file();
        let bare = serde_json::to_string(&file).expect("numbers and strings make JSON");
        file.blake3 = Some(hex(blake3::hash(bare.as_bytes()).as_bytes()));
        layout::to_text(&file)
    }

    fn to_file(&self) -> BuilderFile {
        let lines = self.devices.iter().zip(&self.removed);
        BuilderFile {
            martlet_ring_builder: FORMAT,
            lineage: hex(&self.lineage),
            epoch: self.epoch,
            change: Some(self.change),
            parent: hex(&self.parent),
            hash: hex(&self.hash),
            settings: self.settings.clone(),
            changed_since_rebalance: self.changed,
            handoff_unit: self.handoff_unit,
            next_id: self.next_id,
            devices: lines
                .map(|(device, &removed)| BuilderDevice { device: device.clone(), removed })
                .collect(),
            drains: self.drains.clone(),
            history: self.history.clone(),
            moves: batches(&self.moves),
            assignment: self.table.as_ref().map(table_to_lines),
            blake3: None,
        }
    }

    /// Decodes the JSON of [`Builder::to_json`].
    pub fn from_json(text: &str) -> Result<Self> {
        let mut file: BuilderFile = serde_json::from_str(text).map_err(|error| {
            Error::corrupt(format!(
                "not a builder file ({error}): restore it from a copy, or recreate it from its \
                 ring file with `reconstruct`"
            ))
        })?;
        if file.martlet_ring_builder != FORMAT {
            let message = format!(
                "the builder file has format {}, and this program reads format {FORMAT}: use the \
                 matching version of martlet",
                file.martlet_ring_builder
            );
            return Err(Error::corrupt(message));
        }
        if let Some(hash) = file.blake3.take() {
            let bare = serde_json::to_string(&file).expect("numbers and strings make JSON");
            if hex(blake3::hash(bare.as_bytes()).as_bytes()) != hash {
                return Err(Error::corrupt(
                    "the builder file was edited: restore it from a copy, or, if the edit was \
                     intended, remove its `blake3` line",
                ));
            }
        }
        file.into_builder()
    }

    /// Reads a builder file.
    pub fn load(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            if error.kind() == std::io::ErrorKind::NotFound {
                Error::not_found(format!(
                    "there is no builder file {}: create one with `create`, or from a ring file \
                     with `reconstruct`",
                    path.display()
                ))
            } else {
                Error::io("reading", path, &error)
            }
        })?;
        Self::from_json(&text)
            .map_err(|error| Error::new(error.kind(), format!("{}: {error}", path.display())))
    }

    /// Writes the builder file atomically, replacing any before.
    pub fn save(&self, path: &Path) -> Result<()> {
        disk::replace(path, self.to_json().as_bytes())
    }
}

impl BuilderFile {
    fn into_builder(self) -> Result<Builder> {
        self.settings.check()?;
        let (width, extra) = (self.width()?, self.extra()?);
        let table = self
            .assignment
            .as_ref()
            .map(|lines| table_from_lines(lines, self.settings.part_power, width, extra))
            .transpose()?;
        let (devices, removed): (Vec<Device>, Vec<bool>) =
            self.devices.into_iter().map(|line| (line.device, line.removed)).unzip();
        if !devices.is_sorted_by(|a, b| a.id < b.id)
            || devices.last().is_some_and(|device| device.id.0 >= self.next_id)
        {
            return Err(Error::corrupt("the builder file's devices are not sorted by id"));
        }
        check_devices(&devices)?;
        check_drains(&self.drains, &devices)?;
        if !(self.handoff_unit.is_finite() && self.handoff_unit > 0.0) {
            return Err(Error::corrupt("the builder file has an impossible handoff unit"));
        }
        let moves = all_begun(&self.moves, self.epoch);
        check_moves(&moves, table.as_ref())?;
        if let Some(table) = &table
            && table.rows().any(|(_, row)| row.iter().any(|s| usize::from(*s) >= devices.len()))
        {
            return Err(Error::corrupt("the builder file assigns a replica to an unknown device"));
        }
        Ok(Builder {
            lineage: unhex(&self.lineage)?,
            epoch: self.epoch,
            change: self.change.unwrap_or(self.epoch),
            parent: unhex(&self.parent)?,
            hash: unhex(&self.hash)?,
            handoff_unit: self.handoff_unit,
            next_id: self.next_id,
            devices,
            removed,
            drains: self.drains,
            table,
            moves,
            changed: self.changed_since_rebalance,
            history: self.history,
            ..Builder::create(self.settings, [0; 16])?
        })
    }

    /// Columns of the assignment, from its first partition. They differ from the settings if the
    /// number of replicas was changed and not rebalanced.
    fn width(&self) -> Result<usize> {
        let Some(lines) = &self.assignment else { return Ok(1) };
        let digits: usize = lines.first().map_or(0, |line| row_lengths(line).next().unwrap_or(0));
        if digits == 0 || !digits.is_multiple_of(4) {
            return Err(Error::corrupt("the builder file has an assignment without replicas"));
        }
        Ok(digits / 4)
    }

    fn extra(&self) -> Result<u32> {
        let width = self.width()?;
        let Some(lines) = &self.assignment else { return Ok(1 << self.settings.part_power) };
        let full = lines
            .iter()
            .flat_map(|line| row_lengths(line))
            .take_while(|digits| *digits == width * 4)
            .count();
        u32::try_from(full).map_err(|_| Error::corrupt("the builder file has too many partitions"))
    }
}

/// Checks the devices of a file, which an operator may have edited, as the edits of a builder do.
fn check_devices(devices: &[Device]) -> Result<()> {
    if devices.len() > DEVICES_MAX {
        return Err(Error::corrupt(format!(
            "the builder file has more than {DEVICES_MAX} devices"
        )));
    }
    devices.iter().try_for_each(|device| {
        check_weight(device.weight).and_then(|()| check_lengths(device)).map_err(|error| {
            Error::corrupt(format!("the builder file's device {}: {error}", device.id))
        })
    })
}

fn check_drains(drains: &[Drain], devices: &[Device]) -> Result<()> {
    let is_known = |drain: &Drain| devices.binary_search_by_key(&drain.device, |it| it.id).is_ok();
    if drains.iter().all(|drain| is_known(drain) && drain.step.is_finite() && drain.step > 0.0) {
        return Ok(());
    }
    Err(Error::corrupt("the builder file drains an unknown device, or in impossible steps"))
}

/// Checks that each move is of a replica of the assignment, and that no replica has two moves.
fn check_moves(moves: &[StartedMove], table: Option<&Table>) -> Result<()> {
    let is_there = |begun: &StartedMove| {
        let Move { partition, replica, .. } = begun.replica;
        table.is_some_and(|table| {
            partition.0 < table.parts() && usize::from(replica) < table.replicas_of(partition.0)
        })
    };
    let place = |begun: &StartedMove| (begun.replica.partition, begun.replica.replica);
    if moves.iter().all(is_there) && moves.is_sorted_by(|a, b| place(a) < place(b)) {
        return Ok(());
    }
    Err(Error::corrupt("the builder file moves replicas that its assignment doesn't have"))
}

fn row_lengths(line: &str) -> impl Iterator<Item = usize> + '_ {
    line.split(' ').map(str::len)
}

fn batches(moves: &[StartedMove]) -> Vec<MoveBatch> {
    let mut sorted: Vec<&StartedMove> = moves.iter().collect();
    let batch = |begun: &StartedMove| (begun.at_ms, begun.replica.change);
    sorted.sort_by_key(|begun| (batch(begun), begun.replica));
    sorted
        .chunk_by(|a, b| batch(a) == batch(b))
        .map(|batch| MoveBatch {
            at_ms: batch[0].at_ms,
            change: Some(batch[0].replica.change),
            moves: batch
                .iter()
                .map(|b| (b.replica.partition.0, b.replica.replica, b.replica.previous.0))
                .collect(),
        })
        .collect()
}

/// All moves of the batches, sorted.
fn all_begun(batches: &[MoveBatch], epoch: u64) -> Vec<StartedMove> {
    let mut all: Vec<StartedMove> = batches.iter().flat_map(|batch| begun(batch, epoch)).collect();
    all.sort_by_key(|begun| begun.replica);
    all
}

fn begun(batch: &MoveBatch, epoch: u64) -> Vec<StartedMove> {
    let change = batch.change.unwrap_or(epoch);
    let begun = |&(partition, replica, previous): &(u32, u8, u32)| {
        let (partition, previous) = (Partition(partition), DeviceId(previous));
        StartedMove { replica: Move { partition, replica, previous, change }, at_ms: batch.at_ms }
    };
    batch.moves.iter().map(begun).collect()
}

fn table_to_lines(table: &Table) -> Vec<String> {
    let mut lines = Vec::new();
    for (partition, row) in table.rows() {
        if partition % LINE_PARTITIONS == 0 {
            lines.push(String::with_capacity(LINE_PARTITIONS as usize * (row.len() * 4 + 1)));
        } else if let Some(line) = lines.last_mut() {
            line.push(' ');
        }
        let line = lines.last_mut().expect("one was just pushed");
        for slot in row {
            let digit = |shift: u16| char::from(DIGITS[usize::from(slot >> shift & 0xf)]);
            line.extend([digit(12), digit(8), digit(4), digit(0)]);
        }
    }
    lines
}

fn table_from_lines(lines: &[String], part_power: u8, width: usize, extra: u32) -> Result<Table> {
    let damaged = || {
        Error::corrupt(
            "the builder file's assignment does not match its part power: recreate the builder \
             from its ring file with `reconstruct`",
        )
    };
    if part_power > PART_POWER_MAX
        || width > REPLICAS_MAX
        || !(1..=1 << part_power).contains(&extra)
    {
        return Err(damaged());
    }
    // The text bounds the memory of the table.
    let digits: u64 = lines.iter().map(|line| line.len() as u64).sum();
    if digits < (((width as u64 - 1) << part_power) + u64::from(extra)) * 4 {
        return Err(damaged());
    }
    let mut table = Table::empty(part_power, width, extra);
    let mut rows = lines.iter().flat_map(|line| line.split(' '));
    for partition in 0..table.parts() {
        let digits = rows.next().filter(|d| d.is_ascii()).ok_or_else(damaged)?;
        let row = table.row_mut(partition);
        if digits.len() != row.len() * 4 {
            return Err(damaged());
        }
        for (slot, at) in row.iter_mut().zip((0..).step_by(4)) {
            *slot = u16::from_str_radix(&digits[at..at + 4], 16).map_err(|_| damaged())?;
            if *slot == NOBODY {
                return Err(damaged());
            }
        }
    }
    if rows.next().is_some() { Err(damaged()) } else { Ok(table) }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        write!(text, "{byte:02x}").expect("writing to a String can't fail");
    }
    text
}

fn unhex<const N: usize>(text: &str) -> Result<[u8; N]> {
    let damaged = || Error::corrupt("the builder file has a malformed hash or lineage");
    if text.len() != N * 2 || !text.is_ascii() {
        return Err(damaged());
    }
    let mut bytes = [0; N];
    for (byte, at) in bytes.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(&text[at..at + 2], 16).map_err(|_| damaged())?;
    }
    Ok(bytes)
}
