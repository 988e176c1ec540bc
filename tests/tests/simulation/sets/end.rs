//! Checks after recovery: the newest generation of each set loads, nothing stays half-way, and no pin
//! is left once all generations are withdrawn.

use std::time::Duration;

use martlet_protocol::entry::Mark;
use martlet_proxy::{Error, GenerationState, ListVersions, ObjectName, ReadConditions, Selection};
use martlet_tests::checkers;
use martlet_tests::checkers::sets::{SetCall, SetReply};
use tokio::time::sleep;

use super::{BUCKET, MARKER, PUBLISHED, SETS, SHARDS, SimulatedRules, with_retention};
use crate::client::SimulatedClient;
use crate::workers::{self, Background};

/// Minutes after which generations that are being pinned are continued, intents without a writer are
/// looked at, and withdrawn generations go.
const STEPS_MINUTES: [u64; 4] = [2, 2, 11, 25];
/// Hours after which holds have ended, and intents of writes that can't commit any more.
const HOLDS_HOURS: u64 = 25;

/// Runs the worker until nothing is left to do, reads all sets, and checks all that was seen.
pub(crate) async fn check(
    client: &SimulatedClient,
    background: &Background,
    rules: SimulatedRules,
) -> Result<(), String> {
    let client = SimulatedClient { number: 2000, ..client.clone() };
    for minutes in STEPS_MINUTES {
        sleep(Duration::from_mins(minutes)).await;
        workers::to_the_end(&client.simulated, background).await?;
    }
    for set in SETS.into_iter().chain([PUBLISHED]) {
        load(&client, set).await?;
        settled(&client, set).await?;
    }
    let history = with_retention(client.record.history());
    let sets = client.record.sets.history(rules);
    checkers::sets::check(&sets, &history.firm()).map_err(|violation| violation.to_string())?;
    all_goes(&client, background).await
}

/// Lists and reads the newest generation of a set; each request must be answered.
async fn load(client: &SimulatedClient, set: &str) -> Result<(), String> {
    client.list_view(set, None).await;
    for rest in SHARDS.into_iter().chain([MARKER]) {
        client.get_in_view(set, rest, None).await;
    }
    let all = client.record.sets.0.lock().operations.clone();
    let open = all.iter().rev().take(4).find(|it| it.reply == SetReply::Unknown);
    match open {
        Some(open) => Err(format!("{set:?} can't be read when everything is right again: {open}")),
        None => Ok(()),
    }
}

/// Checks that no generation of a set is being pinned still, and that none waits which is complete.
async fn settled(client: &SimulatedClient, set: &str) -> Result<(), String> {
    let store = &client.simulated.proxy(0).store;
    let state = match store.checkpoints().set(BUCKET, set).await {
        Ok(state) => state,
        Err(Error::NoSuchKey) => return Ok(()),
        Err(error) => return Err(format!("{set:?} has no state: {error}")),
    };
    for generation in state.generations {
        client.simulated.network.trace.note(format_args!("LEFT {set} {generation:?}"));
        if generation.state == GenerationState::Pinning {
            return Err(format!("{set:?} is being pinned for ever: {generation:?}"));
        }
    }
    Ok(())
}

/// Withdraws everything, and checks that no version stays pinned.
async fn all_goes(client: &SimulatedClient, background: &Background) -> Result<(), String> {
    let simulated = &client.simulated;
    for set in SETS.into_iter().chain([PUBLISHED]) {
        let begun = client.begin_set(set, SetCall::Withdraw(None));
        let deletes_objects = client.chance.per_mille(500);
        let store = &simulated.proxy(0).store;
        match store.checkpoints().withdraw(BUCKET, set, None, deletes_objects).await {
            Ok(_) | Err(Error::NoSuchKey) => {}
            Err(error) => return Err(format!("{set:?} can't be withdrawn: {error}")),
        }
        client.end_set(begun, SetReply::Done);
    }
    sleep(Duration::from_hours(HOLDS_HOURS)).await;
    for _ in 0..2 {
        workers::to_the_end(simulated, background).await?;
    }
    let store = &simulated.proxy(0).store;
    let list = ListVersions { limit: 100_000, ..ListVersions::default() };
    let page = store.versions().list(BUCKET, list).await;
    let page = page.map_err(|error| format!("versions can't be listed: {error}"))?;
    for version in page.versions.iter().filter(|version| version.object.is_some()) {
        let name = ObjectName { key: &version.key, version: Some(version.id) };
        let head = store.head(BUCKET, name, Selection::Whole, &ReadConditions::default()).await;
        let head = head.map_err(|error| format!("{name:?} has no head: {error}"))?;
        if head.object.attributes.marks.get(Mark::Checkpoint).is_some() {
            return Err(format!("{name:?} is pinned, and nothing needs it"));
        }
    }
    Ok(())
}
