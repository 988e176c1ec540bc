//! Reads of the view. They ask for a quorum, so that a version which isn't found is certainly gone.

use martlet_protocol::Level;
use martlet_proxy::{
    Error, GenerationState, ListObjects, ObjectName, ReadConditions, Result, Selection,
};
use martlet_tests::checkers::sets::{SetCall, SetReply};

use super::{BUCKET, MARKER, SHARDS, objects_of};
use crate::client::{ProxyRoute, SimulatedClient, collect};
use crate::payload;
use crate::versions::is_absence;

/// Maximum number of objects of a set.
const OBJECTS_MAX: usize = 100;

/// Folder of a set in the view, of a generation or of the newest.
fn folder_of(set: &str, number: Option<u64>) -> String {
    match number {
        None => set.to_owned(),
        Some(number) => format!("{}@{number}/", set.trim_end_matches('/')),
    }
}

impl SimulatedClient {
    fn strictly(&self) -> ProxyRoute {
        SimulatedClient { level: Some(Level::Strict), ..self.clone() }.route(None)
    }

    /// Lists a set in the view.
    pub(super) async fn list_view(&self, set: &str, number: Option<u64>) {
        let begun = self.begin_set(set, SetCall::List(number));
        let folder = folder_of(set, number);
        let list =
            ListObjects { prefix: folder.clone(), limit: OBJECTS_MAX, ..ListObjects::default() };
        let route = self.strictly();
        let sets = route.session.checkpoints();
        let reply = match self.wait(&route, Box::pin(sets.list(BUCKET, &list))).await {
            Some(Ok(page)) => {
                let found = page
                    .objects
                    .iter()
                    .map(|(key, object)| (key.clone(), self.record.sets.value_of(object)));
                SetReply::Listed(objects_of(&folder, found))
            }
            Some(Err(error)) => self.unknown("a listing of the view", &error),
            None => SetReply::Unknown,
        };
        self.end_set(begun, reply);
    }

    /// Reads an object of a set in the view.
    pub(super) async fn get_view(&self, set: &str, generation: Option<u64>) {
        let rest = self.chance.pick(&[SHARDS[0], SHARDS[1], MARKER]);
        self.get_in_view(set, rest, generation).await;
    }

    /// Reads this object of a set in the view.
    pub(super) async fn get_in_view(&self, set: &str, rest: &str, generation: Option<u64>) {
        let begun = self.begin_set(set, SetCall::Get { rest: rest.to_owned(), generation });
        let key = format!("{}{rest}", folder_of(set, generation));
        let route = self.strictly();
        let reply = match self.wait(&route, Box::pin(self.read_view(&route, &key))).await {
            Some(Ok(reply)) => reply,
            Some(Err(error)) => self.unknown("a read of the view", &error),
            None => SetReply::Unknown,
        };
        self.end_set(begun, reply);
    }

    async fn read_view(&self, route: &ProxyRoute, key: &str) -> Result<SetReply> {
        let viewed = match route.session.checkpoints().resolve(BUCKET, key).await {
            Err(Error::NoSuchKey) => return Ok(SetReply::Absent),
            viewed => viewed?,
        };
        let name = ObjectName { key: &viewed.key, version: viewed.version };
        let any = ReadConditions::default();
        let read = match route.session.get(BUCKET, name, Selection::Whole, &any).await {
            Err(error) if is_absence(&error) || matches!(error, Error::NoSuchVersion) => {
                return Ok(SetReply::Gone);
            }
            read => read?,
        };
        if !viewed.is(&read.object) {
            self.record.surprise(format!("{key} of the view is another object"));
        }
        let value = payload::value_of(&collect(read).await?);
        if value.is_none() {
            self.record.surprise(format!("{key} of the view has no whole body"));
        }
        Ok(value.map_or(SetReply::Unknown, SetReply::Found))
    }

    /// Lists a generation and reads an object of it, by its number.
    pub(super) async fn read_by_number(&self, set: &str) {
        let Some(number) = self.some_number(set).await else { return };
        self.list_view(set, Some(number)).await;
        self.get_view(set, Some(number)).await;
    }

    /// Number of a committed generation of a set.
    pub(super) async fn some_number(&self, set: &str) -> Option<u64> {
        let route = self.strictly();
        let state = Box::pin(route.session.checkpoints().set(BUCKET, set));
        let state = self.wait(&route, state).await?.ok()?;
        let committed = |it: &&martlet_proxy::Generation| it.state == GenerationState::Committed;
        let numbers: Vec<u64> =
            state.generations.iter().filter(committed).map(|it| it.number).collect();
        (!numbers.is_empty()).then(|| numbers[self.chance.index(numbers.len())])
    }
}
