//! Push of rings to all nodes as a job.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use axum::http::StatusCode;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::FutureExt;
use futures::future::BoxFuture;
use martlet_admin_api::jobs::{self, JobProgress};
use martlet_admin_api::ring_push::{RingFile, check_push};
use martlet_membership::{Member, NamedRing, RingName, RingPush};
use martlet_ring::Ring;
use serde_json::Value;

use super::table::{JobOutcome, JobWork};
use crate::api::ApiError;

/// Push of rings to all nodes that the rings in use name, and to those of the rings themselves.
pub(super) struct RingPushWork {
    member: Arc<Member>,
    push: RingPush,
    started: Instant,
}

impl RingPushWork {
    /// Reads the ring files of a request.
    ///
    /// # Errors
    /// There is no ring, a name or a file is damaged, a name is given twice, or a ring belongs to another
    /// cluster.
    pub(super) fn new(member: Arc<Member>, files: &[RingFile]) -> Result<Self, ApiError> {
        let rings = decode(files).map_err(ApiError::bad)?;
        let in_use = member.keeper.rings();
        for (name, ring) in &rings {
            if let Some(old) = in_use.get(*name)
                && let Err(error) = old.check_kinship(ring)
            {
                return Err(ApiError(StatusCode::CONFLICT, format!("the ring {name}: {error}")));
            }
        }
        let known = in_use.addresses().clone();
        Ok(Self { member, push: RingPush::new(rings, known), started: Instant::now() })
    }
}

fn decode(files: &[RingFile]) -> Result<Vec<NamedRing>, String> {
    let mut rings: BTreeMap<RingName, Arc<Ring>> = BTreeMap::new();
    for RingFile { name: text, file } in files {
        let name: RingName = text.parse()?;
        let bytes = STANDARD
            .decode(file)
            .map_err(|error| format!("the ring {text} is not in base64: {error}"))?;
        let ring = Ring::decode(&bytes)
            .map_err(|error| format!("the ring {text} is damaged, copy its file again: {error}"))?;
        if rings.insert(name, Arc::new(ring)).is_some() {
            return Err(format!("the ring {text} is given twice"));
        }
    }
    if rings.is_empty() {
        return Err("there is no ring to push".to_owned());
    }
    Ok(rings.into_iter().collect())
}

impl JobWork for RingPushWork {
    fn kind(&self) -> &'static str {
        jobs::RING_PUSH
    }

    fn subject(&self) -> String {
        self.push.subject().to_owned()
    }

    fn run(self: Arc<Self>) -> BoxFuture<'static, JobOutcome> {
        let pushing = async move {
            self.push.run(|address| self.member.nodes.push_client(address), |_| ()).await;
            if self.push.is_cancelled() {
                return Err("the push was cancelled: some nodes did not receive the rings".into());
            }
            check_push(&self.push.progress().answers)
        };
        pushing.boxed()
    }

    fn cancel(&self) {
        self.push.cancel();
    }

    fn progress(&self) -> JobProgress {
        let (done, all) = (self.push.nodes_done(), self.push.node_count());
        JobProgress {
            done: done as u64,
            total: Some(all as u64),
            unit: "nodes".to_owned(),
            text: format!("{done} of {all} nodes: {}", self.push.summary()),
        }
    }

    fn eta_s(&self) -> Option<u64> {
        let done = self.push.nodes_done() as u64;
        let left = (self.push.node_count() as u64).saturating_sub(done);
        (self.started.elapsed().as_secs() * left).checked_div(done)
    }

    fn detail(&self, _: Option<&JobOutcome>) -> Option<Value> {
        serde_json::to_value(self.push.progress().answers).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, file: &str) -> RingFile {
        RingFile { name: name.to_owned(), file: file.to_owned() }
    }

    #[test]
    fn damaged_files_are_refused_by_their_name() {
        for (files, reason) in [
            (vec![], "there is no ring"),
            (vec![file("ring", "")], "not a ring's name"),
            (vec![file("index", "~")], "index is not in base64"),
            (vec![file("data-1", "AAAA")], "data-1 is damaged"),
        ] {
            let error = decode(&files).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }
}
