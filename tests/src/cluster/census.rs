//! An independent count of stored data: every register and every wanted extent against the rings,
//! read from the nodes one by one. The census shares no code with the workers that move data.
//!
//! * A register that holds an entry must be on all primaries of its partition, all with one write;
//!   a primary without that write is missing or older.
//! * An extent that a live entry names must be on all its primaries. Under an erasure code each
//!   primary holds the fragment of its number. Other extents are garbage, which is reclaimed later.
//!   So are the extents of the parts of an upload that has ended, until these are removed (rule
//!   M1).
//! * Data on a device that is no primary is a stray; a write kept for other devices is a hint.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use martlet_protocol::backend::RegisterView;
use martlet_protocol::entry::{Body, UploadState, Value};
use martlet_protocol::extent::ExtentRef;
use martlet_protocol::{
    Backend, BackendExt, DeviceId, Entry, ExtentId, PolicyId, RegisterKey, RegisterKind, Stamp,
    UploadId,
};
use martlet_ring::Ring;
use tokio::time::sleep;

use super::fragments::places;
use super::ring_files::INDEX;
use super::running::TestCluster;

/// Registers, extents and hints that one request to a node returns at most.
const PAGE: usize = 500;
/// Number of findings of each kind that are printed.
const EXAMPLES: usize = 8;

/// Result of a census.
#[derive(Clone, Debug, Default)]
pub struct ClusterCensus {
    /// Registers that hold an entry, each counted once.
    pub registers: usize,
    /// Extents that live entries name, each counted once.
    pub extents: usize,
    /// Copies and fragments that these extents should have.
    pub pieces: usize,
    /// Registers and extents missing from a primary, in words.
    pub missing: Vec<String>,
    /// Registers and extents on devices that are not their primaries, in words.
    pub strays: Vec<String>,
    /// Writes that handoffs keep for other devices.
    pub hints: usize,
    /// Devices without a reply, with the error.
    pub silent: Vec<String>,
}

impl ClusterCensus {
    /// Returns true if all data is where the rings place it, and nowhere else.
    pub fn is_clean(&self) -> bool {
        let wrong = [&self.missing, &self.strays, &self.silent];
        wrong.iter().all(|it| it.is_empty()) && self.hints == 0
    }
}

impl std::fmt::Display for ClusterCensus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { registers, extents, pieces, missing, strays, hints, silent } = self;
        writeln!(f, "{registers} registers, {extents} extents in {pieces} pieces, {hints} hints")?;
        for (what, found) in [("missing", missing), ("stray", strays), ("silent", silent)] {
            writeln!(f, "{} {what}: {:?}", found.len(), &found[..found.len().min(EXAMPLES)])?;
        }
        Ok(())
    }
}

/// Registers, extents and hints of all devices.
#[derive(Default)]
struct DeviceContents {
    registers: BTreeMap<RegisterKey, BTreeMap<DeviceId, RegisterView>>,
    extents: BTreeMap<ExtentId, BTreeSet<DeviceId>>,
    hints: usize,
    silent: Vec<String>,
}

impl TestCluster {
    /// Counts the data of all devices against the newest rings.
    pub async fn census(&self) -> ClusterCensus {
        self.found().await.compare(&self.rings.ring(INDEX), &self.rings.of_policies())
    }

    async fn found(&self) -> DeviceContents {
        let mut found = DeviceContents::default();
        for node in 0..self.nodes.len() {
            let backend = self.backend(node);
            for device in self.devices(node) {
                if let Err(error) = found.take(&backend, device).await {
                    found.silent.push(format!("{device}: {error}"));
                }
            }
        }
        found
    }

    /// Waits until a census is clean; panics after `patience`.
    pub async fn until_clean(&self, patience: Duration) -> ClusterCensus {
        let begun = Instant::now();
        loop {
            let census = self.census().await;
            if census.is_clean() {
                println!("everything is in its place after {:?}: {census}", begun.elapsed());
                return census;
            }
            assert!(begun.elapsed() < patience, "not in its place within {patience:?}: {census}");
            sleep(Duration::from_millis(300)).await;
        }
    }
}

impl DeviceContents {
    async fn take(
        &mut self,
        backend: &dyn Backend,
        device: DeviceId,
    ) -> martlet_protocol::Result<()> {
        let mut after = None;
        loop {
            let page = backend.registers(device, after.as_ref(), PAGE).await?;
            let Some((last, _)) = page.last() else { break };
            after = Some(last.clone());
            for (key, view) in page.into_iter().filter(|(_, view)| view.entry.is_some()) {
                self.registers.entry(key).or_default().insert(device, view);
            }
        }
        let mut after = None;
        loop {
            let page = backend.list_extents(device, after, PAGE).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.extent.id);
            for record in page {
                self.extents.entry(record.extent.id).or_default().insert(device);
            }
        }
        self.hints += backend.hints(device, None, PAGE).await?.len();
        Ok(())
    }

    fn compare(self, index: &Ring, data: &BTreeMap<PolicyId, Ring>) -> ClusterCensus {
        let Self { registers, extents, hints, silent } = self;
        let mut census =
            ClusterCensus { hints, silent, registers: registers.len(), ..ClusterCensus::default() };
        let mut wanted = BTreeMap::new();
        let newest_of = |held: &BTreeMap<DeviceId, RegisterView>| {
            held.values().filter_map(|view| view.entry.clone()).max_by_key(|entry| entry.order)
        };
        let ended: BTreeSet<UploadId> =
            registers.values().filter_map(newest_of).filter_map(ended).collect();
        for (key, held) in &registers {
            let primaries: Vec<_> = index.primaries(index.partition(key.placement())).collect();
            let write = |view: &RegisterView| view.entry.as_ref().map(|it| (it.order, it.write_id));
            let newest = held.values().max_by_key(|view| write(view).map(|it| it.0));
            let newest = newest.expect("somebody holds it");
            census.look(&format!("{key:?} {:?}", stamp(newest)), &primaries, |device| {
                held.get(&device).is_some_and(|view| write(view) == write(newest))
            });
            census.strays(&format!("{key:?}"), &primaries, held.keys().copied());
            let is_over = key.kind == RegisterKind::Part
                && ended.iter().any(|upload| key.name.starts_with(&upload.0));
            let named = newest.entry.iter().filter(|_| !is_over).flat_map(named);
            wanted.extend(named.map(|(policy, it)| ((policy, it.id), (it, key))));
        }
        census.extents = wanted.len();
        for ((policy, _), (extent, key)) in wanted {
            for place in places(&data[&policy], &extent) {
                let (id, homes) = (place.id, place.homes);
                let held = extents.get(&id).cloned().unwrap_or_default();
                census.pieces += homes.len();
                let what = format!("{id} of {key:?}");
                census.look(&what, &homes, |device| held.contains(&device));
                census.strays(&what, &homes, held.iter().copied());
            }
        }
        census
    }
}

impl ClusterCensus {
    fn look(&mut self, what: &str, wanted: &[DeviceId], has: impl Fn(DeviceId) -> bool) {
        let lacking = wanted.iter().filter(|device| !has(**device));
        self.missing.extend(lacking.map(|device| format!("{what} on {device}")));
    }

    fn strays(&mut self, what: &str, wanted: &[DeviceId], on: impl Iterator<Item = DeviceId>) {
        let strays = on.filter(|device| !wanted.contains(device));
        self.strays.extend(strays.map(|device| format!("{what} on {device}")));
    }
}

/// Returns the id of the upload that an entry records as completed or aborted.
fn ended(entry: Entry) -> Option<UploadId> {
    let Value::Upload(upload) = entry.value else { return None };
    let is_over = matches!(upload.state, UploadState::Completed { .. } | UploadState::Aborted);
    is_over.then_some(upload.id)
}

fn stamp(view: &RegisterView) -> Option<Stamp> {
    view.entry.as_ref().map(|entry| entry.order)
}

/// Returns the extents that an entry names directly, each with its policy.
pub(super) fn named(entry: &Entry) -> Vec<(PolicyId, ExtentRef)> {
    let (policy, extents) = match entry.value.body() {
        Some(Body::Extents(manifest)) => (manifest.policy, &manifest.extents),
        Some(Body::Spilled { policy, manifest }) => (*policy, manifest),
        Some(Body::Empty | Body::Inline { .. }) | None => return Vec::new(),
    };
    extents.iter().map(|extent| (policy, *extent)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use martlet_protocol::backend::RegisterView;
    use martlet_protocol::id::{BucketId, WriteId};
    use martlet_protocol::stamp::WriterId;

    const D: [DeviceId; 4] = [DeviceId(0), DeviceId(1), DeviceId(2), DeviceId(3)];

    fn view(time: u64) -> RegisterView {
        let order = Stamp { time, writer: WriterId(1) };
        let entry = Entry { order, write_id: WriteId([1; 16]), value: Value::Tombstone };
        RegisterView { entry: Some(entry), ..RegisterView::default() }
    }

    /// Rings of four devices, each on a node of its own, with a key and its primaries.
    fn rings() -> (Ring, Ring, RegisterKey, Vec<DeviceId>) {
        let devices: Vec<_> = (0..4).map(device).collect();
        let ring = || Ring::of_devices(PolicyId(0), 3, &devices).unwrap();
        let key = RegisterKey::object(BucketId([1; 16]), 16, "k");
        let primaries = ring().primaries(ring().partition(key.placement())).collect();
        (ring(), ring(), key, primaries)
    }

    fn device(number: u32) -> martlet_ring::Device {
        let name = format!("n{number}");
        let node = martlet_ring::Node { address: format!("{name}:1"), name };
        let (region, zone, weight) = (1, number, 1.0);
        let (name, meta) = ("d1".to_owned(), String::new());
        martlet_ring::Device { id: DeviceId(number), region, zone, node, name, weight, meta }
    }

    fn census(held: &[(DeviceId, u64)]) -> ClusterCensus {
        let (index, data, key, _) = rings();
        let data = BTreeMap::from([(PolicyId(0), data)]);
        let held = held.iter().map(|(device, time)| (*device, view(*time))).collect();
        let found = DeviceContents {
            registers: BTreeMap::from([(key, held)]),
            ..DeviceContents::default()
        };
        found.compare(&index, &data)
    }

    #[test]
    fn registers_on_their_primaries_alone_are_clean() {
        let (.., primaries) = rings();
        let all: Vec<_> = primaries.iter().map(|device| (*device, 5)).collect();
        let census = census(&all);
        assert!(census.is_clean(), "{census}");
        assert_eq!(census.registers, 1);
    }

    #[test]
    fn older_missing_and_misplaced_copies_are_reported() {
        let (.., primaries) = rings();
        let stray = D.into_iter().find(|device| !primaries.contains(device)).unwrap();
        let census = census(&[(primaries[0], 5), (primaries[1], 4), (stray, 5)]);
        assert_eq!((census.missing.len(), census.strays.len()), (2, 1), "{census}");
        assert!(!census.is_clean());
    }

    #[test]
    fn hints_and_silence_are_not_clean() {
        assert!(ClusterCensus::default().is_clean());
        assert!(!ClusterCensus { hints: 1, ..ClusterCensus::default() }.is_clean());
        assert!(
            !ClusterCensus { silent: vec!["d1".into()], ..ClusterCensus::default() }.is_clean()
        );
    }
}
