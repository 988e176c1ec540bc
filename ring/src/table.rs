//! The assignment table: one flat array of slots, with a row for each partition.
//!
//! ```text
//! partition 0        partition 1        ...
//! slot slot slot  |  slot slot slot  |
//! ```
//!
//! A slot is the position of a device in the ring's list of devices, in two bytes: the rows of 2^20
//! partitions with three replicas take 6 MiB. With a fractional number of replicas the first
//! `extra` partitions have one replica more; in other rows the last slot is [`NOBODY`].

/// Slot of a replica without holder.
pub(crate) const NOBODY: u16 = u16::MAX;
/// Most devices of a ring: every 16-bit slot but [`NOBODY`] names one.
pub const DEVICES_MAX: usize = u16::MAX as usize;
/// Largest part power: a ring has at most 2^24 partitions.
pub const PART_POWER_MAX: u8 = 24;
/// Most replicas of a partition.
pub const REPLICAS_MAX: usize = 64;

/// The table and its shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    part_power: u8,
    width: usize,
    extra: u32,
    slots: Vec<u16>,
}

impl Table {
    /// Creates a table without holders.
    pub(crate) fn empty(part_power: u8, width: usize, extra: u32) -> Self {
        let slots = vec![NOBODY; width << part_power];
        Self { part_power, width, extra, slots }
    }

    /// Returns the shape for `replicas`, which may be fractional: the number of columns, and the
    /// number of partitions that use the last column.
    pub(crate) fn shape(part_power: u8, replicas: f64) -> (usize, u32) {
        let parts = f64::from(1u32 << part_power);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "replicas lie between 1 and REPLICAS_MAX, partitions below 2^24"
        )]
        let (total, parts) = ((replicas * parts).round() as u64, parts as u64);
        let width = total.div_ceil(parts).max(1);
        let extra = total - (width - 1) * parts;
        #[expect(clippy::cast_possible_truncation, reason = "both are at most 2^24")]
        (width as usize, extra as u32)
    }

    pub(crate) fn part_power(&self) -> u8 {
        self.part_power
    }

    /// Number of partitions.
    pub(crate) fn parts(&self) -> u32 {
        1 << self.part_power
    }

    /// Number of columns: the most replicas of a partition.
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// Number of partitions that use the last column.
    pub(crate) fn extra(&self) -> u32 {
        self.extra
    }

    /// Average replicas of a partition.
    pub(crate) fn replicas_exact(&self) -> f64 {
        let whole = u32::try_from(self.width - 1).expect("a ring has few replicas");
        f64::from(whole) + f64::from(self.extra) / f64::from(self.parts())
    }

    /// Number of replicas over all partitions.
    pub(crate) fn replicas_total(&self) -> u64 {
        (self.width as u64 - 1) * u64::from(self.parts()) + u64::from(self.extra)
    }

    /// Number of slots, including those of missing replicas.
    pub(crate) fn slots_max(&self) -> usize {
        self.slots.len()
    }

    /// Number of replicas of a partition.
    #[inline]
    pub(crate) fn replicas_of(&self, partition: u32) -> usize {
        self.width - usize::from(partition >= self.extra)
    }

    /// The slots of a partition.
    #[inline]
    pub(crate) fn row(&self, partition: u32) -> &[u16] {
        let start = partition as usize * self.width;
        &self.slots[start..start + self.replicas_of(partition)]
    }

    /// Mutable slots of a partition.
    #[inline]
    pub(crate) fn row_mut(&mut self, partition: u32) -> &mut [u16] {
        let start = partition as usize * self.width;
        let end = start + self.replicas_of(partition);
        &mut self.slots[start..end]
    }

    /// Slots of all partitions by row, without those of missing replicas.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (u32, &[u16])> {
        (0..self.parts()).map(|partition| (partition, self.row(partition)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shape_follows_the_replicas() {
        assert_eq!(Table::shape(4, 3.0), (3, 16));
        assert_eq!(Table::shape(4, 2.5), (3, 8));
        assert_eq!(Table::shape(4, 1.0), (1, 16));
        assert_eq!(Table::shape(0, 1.4), (1, 1));
        let table = Table::empty(4, 3, 8);
        assert_eq!((table.replicas_of(7), table.replicas_of(8)), (3, 2));
        assert_eq!(table.replicas_total(), 40);
    }
}
