//! Requests to nodes: the claims of all devices of a node together, a bounded number at a time.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use futures::StreamExt;
use martlet_protocol::backend::{
    ClaimPart, ClaimSource, ClaimState, ClaimsReply, ClaimsRequest, DeviceClaims, OwnerClaim,
};
use martlet_protocol::limits::CLAIMS_AT_ONCE_MAX;
use martlet_protocol::{Backend, BackendExt, DeviceId, Term};

use crate::cluster::{StepTopology, in_time};

/// Requests in flight. Each holds at most [`CLAIMS_AT_ONCE_MAX`] claims, so that a batch takes a
/// few MiB besides its questions.
const REQUESTS_AT_ONCE: usize = 64;

/// Claims for devices, by the positions of their questions.
pub(super) struct Asked {
    pub(super) source: ClaimSource,
    pub(super) part: ClaimPart,
    pub(super) term: Term,
    pub(super) devices: BTreeMap<DeviceId, Vec<usize>>,
}

/// Claims of one request, in the order of devices.
type RequestPlan = Vec<(DeviceId, Vec<usize>)>;

/// Asks the nodes of all devices. `take` receives the state of each claim on each device; none if
/// the device did not answer.
pub(super) async fn ask<'a>(
    cluster: &StepTopology,
    asked: &Asked,
    claim: impl Fn(usize) -> &'a OwnerClaim,
    mut take: impl FnMut(DeviceId, usize, Option<&ClaimState>),
) {
    let claim = &claim;
    let requests = plans(cluster, asked).into_iter().map(|(node, plan)| async move {
        let devices = plan.iter().map(|(device, of)| DeviceClaims {
            device: *device,
            claims: of.iter().map(|at| claim(*at).clone()).collect(),
        });
        let devices = devices.collect();
        let Asked { source, part, term, .. } = *asked;
        let request = ClaimsRequest { source, part, term, devices };
        let replies = match plan.first() {
            Some((device, _)) => in_time(node.claims(*device, &request)).await,
            None => Ok(Vec::new()),
        };
        (plan, replies)
    });
    let requests: Vec<_> = requests.collect();
    let mut replies = futures::stream::iter(requests).buffer_unordered(REQUESTS_AT_ONCE);
    while let Some((plan, replies)) = replies.next().await {
        let replies = replies.unwrap_or_else(|error| {
            cluster.learn(&error);
            tracing::debug!(%error, "a node did not answer for the owners of extents");
            Vec::new()
        });
        let mut replies = replies.into_iter();
        for (device, of) in plan {
            let states = match replies.next() {
                Some(ClaimsReply::Answered(states)) if states.len() == of.len() => states,
                Some(ClaimsReply::Outdated(term)) => {
                    cluster.raise_term(term);
                    Vec::new()
                }
                _ => Vec::new(),
            };
            for (position, at) in of.into_iter().enumerate() {
                take(device, at, states.get(position));
            }
        }
    }
}

/// A request that has room for more claims.
struct OpenRequest<'a> {
    node: &'a Arc<dyn Backend>,
    plan: RequestPlan,
    claims: usize,
}

/// Returns the requests: a node's devices share them. Their order depends on the devices alone.
fn plans<'a>(cluster: &'a StepTopology, asked: &Asked) -> Vec<(&'a Arc<dyn Backend>, RequestPlan)> {
    let mut open: Vec<OpenRequest<'a>> = Vec::new();
    let mut of_node: HashMap<usize, usize> = HashMap::new();
    let mut requests = Vec::new();
    for (device, of) in &asked.devices {
        let Ok(node) = cluster.node(*device) else { continue };
        let at = *of_node.entry(Arc::as_ptr(node).cast::<()>().addr()).or_insert(open.len());
        if at == open.len() {
            open.push(OpenRequest { node, plan: Vec::new(), claims: 0 });
        }
        let request = &mut open[at];
        let mut rest = &of[..];
        while !rest.is_empty() {
            let room = CLAIMS_AT_ONCE_MAX - request.claims;
            let (now, later) = rest.split_at(rest.len().min(room));
            request.plan.push((*device, now.to_vec()));
            request.claims += now.len();
            rest = later;
            if request.claims == CLAIMS_AT_ONCE_MAX {
                requests.push((request.node, std::mem::take(&mut request.plan)));
                request.claims = 0;
            }
        }
    }
    let rest = open.into_iter().filter(|request| request.claims > 0);
    requests.extend(rest.map(|request| (request.node, request.plan)));
    requests
}
