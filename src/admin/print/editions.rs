//! Editions of rings on several processes: marks of older ones, and of others that have the newest epoch.
//!
//! Two builder files of one history may each make a ring of the next epoch. A process keeps the ring that reached it
//! first, so the epoch alone does not show the difference.

use std::collections::BTreeMap;

use martlet_admin_api::RingLine;

/// Newest epoch of each ring, with the hash that most processes have of it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct NewestRings(BTreeMap<String, (u64, String)>);

impl NewestRings {
    /// Finds the newest editions. Of hashes that as many processes have, the first one by its text counts.
    pub(crate) fn of<'a>(rings: impl Iterator<Item = &'a RingLine>) -> Self {
        let mut counts: BTreeMap<(&str, u64), BTreeMap<&str, usize>> = BTreeMap::new();
        for ring in rings {
            let of_epoch = counts.entry((&ring.name, ring.epoch)).or_default();
            *of_epoch.entry(&ring.hash).or_default() += 1;
        }
        let mut newest = BTreeMap::new();
        // Later epochs come later.
        for ((name, epoch), hashes) in counts {
            let most = hashes.values().max().copied();
            let hash = hashes.into_iter().find(|(_, count)| Some(*count) == most);
            let hash = hash.map(|(hash, _)| hash.to_owned()).unwrap_or_default();
            newest.insert(name.to_owned(), (epoch, hash));
        }
        Self(newest)
    }

    /// Returns the names of all rings.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Returns the text behind an edition, with a space before it; none for the newest edition.
    pub(crate) fn mark(&self, ring: &RingLine) -> &'static str {
        match self.0.get(&ring.name) {
            Some((epoch, _)) if ring.epoch < *epoch => " (old)",
            Some((_, hash)) if ring.hash != *hash => " (other ring)",
            _ => "",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(name: &str, epoch: u64, hash: &str) -> RingLine {
        RingLine { name: name.into(), epoch, hash: hash.into() }
    }

    #[test]
    fn older_rings_and_others_of_one_epoch_are_marked() {
        let rings = [
            ring("index", 2, "bb"),
            ring("index", 2, "aa"),
            ring("index", 2, "bb"),
            ring("index", 1, "cc"),
            ring("index", 1, "cc"),
            ring("index", 1, "cc"),
            ring("data-0", 7, "dd"),
        ];
        let newest = NewestRings::of(rings.iter());
        let marks = rings.iter().map(|ring| newest.mark(ring));
        let old = " (old)";
        assert_eq!(marks.collect::<Vec<_>>(), ["", " (other ring)", "", old, old, old, ""]);
        assert_eq!(newest.names().collect::<Vec<_>>(), ["data-0", "index"]);
        let equal = NewestRings::of(rings[..2].iter());
        assert_eq!([equal.mark(&rings[0]), equal.mark(&rings[1])], [" (other ring)", ""]);
    }
}
