//! Buckets that keep versions: clients remove old versions, and the remaining ones are checked at
//! the end (rule R8). For calls without a version id, a key is a register as in any other bucket.

use std::collections::{BTreeMap, BTreeSet};

use martlet_protocol::VersionId;
use martlet_proxy::{
    Error, ListVersions, ListedVersion, ObjectName, ReadConditions, Result, Selection,
    WrittenObject,
};
use martlet_tests::checkers::Value;
use parking_lot::Mutex;

use super::client::{BUCKET, SimulatedClient, collect, value_of};
use super::cluster::SimulatedCluster;
use super::payload;

/// A version by its key and id.
type Name = (String, VersionId);

/// Acknowledged changes of versions.
#[derive(Default)]
pub(crate) struct Versions(Mutex<VersionLog>);

#[derive(Default)]
struct VersionLog {
    /// Acknowledged versions.
    written: BTreeMap<Name, Value>,
    /// Versions with a removal; true if it was acknowledged.
    removed: BTreeMap<Name, bool>,
}

impl Versions {
    /// Records an acknowledged write.
    pub(crate) fn written(&self, key: &str, value: Value, written: &WrittenObject) {
        if let Some(version) = written.object.version {
            self.0.lock().written.insert((key.to_owned(), version.name()), value);
        }
    }

    fn removed(&self, key: &str, id: VersionId, is_sure: bool) {
        *self.0.lock().removed.entry((key.to_owned(), id)).or_default() |= is_sure;
    }

    /// Differences between the stored versions and the acknowledged changes.
    fn complaints(&self, there: &BTreeMap<Name, Value>) -> Vec<String> {
        let told = self.0.lock();
        let mut wrong = Vec::new();
        for (name, written) in &told.written {
            if !told.removed.contains_key(name) && there.get(name) != Some(written) {
                let found = there.get(name);
                wrong.push(format!("version {name:?} was {written:?} and is {found:?}"));
            }
        }
        let back = told.removed.iter().filter(|(name, sure)| **sure && there.contains_key(*name));
        wrong.extend(back.map(|(name, _)| format!("version {name:?} was removed and is there")));
        wrong
    }
}

/// Enables versioning of the run's bucket.
pub(crate) async fn enable(simulated: &SimulatedCluster) -> std::result::Result<(), String> {
    let set = simulated.proxy(0).store.buckets().set_versioning(BUCKET, true).await;
    set.map_err(|error| format!("no versions in calm weather: {error}"))
}

impl SimulatedClient {
    /// Removes one of a key's noncurrent versions, if any.
    pub(crate) async fn remove_an_old_version(&self, key: String) {
        let route = self.route(None);
        let list = ListVersions { prefix: key.clone(), limit: 100, ..ListVersions::default() };
        let store = &route.proxy.store;
        let Some(Ok(page)) = self.wait(&route, store.versions().list(BUCKET, list)).await else {
            return;
        };
        let is_old = |version: &ListedVersion| version.key == key && !version.is_latest;
        let old: Vec<_> = page.versions.into_iter().filter(is_old).collect();
        if old.is_empty() {
            return;
        }
        let id = old[self.chance.index(old.len())].id;
        let client = self.number;
        self.simulated.network.trace.note(format_args!("client {client} {key}: remove {id}"));
        self.record.versions.removed(&key, id, false);
        let answer = self.wait(&route, store.versions().delete(BUCKET, &key, id)).await;
        let is_sure = matches!(answer, Some(Ok(_)));
        self.simulated.network.trace.note(format_args!("client {client} {key}: gone {is_sure}"));
        self.record.versions.removed(&key, id, is_sure);
    }

    /// Checks every version after recovery.
    pub(crate) async fn check_versions(&self) -> std::result::Result<(), String> {
        let store = &self.simulated.proxy(0).store;
        let list = ListVersions { limit: 100_000, ..ListVersions::default() };
        let page = store.versions().list(BUCKET, list).await;
        let page = page.map_err(|error| format!("versions can't be listed: {error}"))?;
        let (mut there, mut current) = (BTreeMap::new(), BTreeSet::new());
        let mut wrong = Vec::new();
        for version in page.versions {
            if current.insert(version.key.clone()) != version.is_latest {
                wrong.push(format!("{} of {:?} is in the wrong place", version.id, version.key));
            }
            let Some(object) = &version.object else { continue };
            let value = value_of(object).unwrap_or(Value(0));
            match self.body_of_version(&version).await {
                Ok(body) if self.record.may_have_body(value, body) => {}
                other => wrong.push(format!("version {} of {value} reads {other:?}", version.id)),
            }
            if there.insert((version.key, version.id), value).is_some() {
                wrong.push(format!("version {} is there twice", version.id));
            }
        }
        wrong.extend(self.record.versions.complaints(&there));
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) }
    }

    async fn body_of_version(&self, version: &ListedVersion) -> Result<Option<Value>> {
        let store = &self.simulated.proxy(0).store;
        let name = ObjectName { key: &version.key, version: Some(version.id) };
        let read = store.get(BUCKET, name, Selection::Whole, &ReadConditions::default()).await?;
        Ok(payload::value_of(&collect(read).await?))
    }
}

/// Returns true if a read failed because the key is absent or has a delete marker.
pub(crate) fn is_absence(error: &Error) -> bool {
    matches!(error, Error::NoSuchKey | Error::DeleteMarker { .. })
}
