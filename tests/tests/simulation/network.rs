//! The network between callers (proxies and workers) and nodes.
//!
//! Fault model: a request or a reply is delayed, lost, or repeated later, so calls overtake each
//! other. A link can be cut in one or both directions; a call under way is lost where it would
//! cross the cut. Nothing is forged, and no bytes are changed. A caller without a reply gets a
//! timeout, or waits forever, depending on the run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use martlet_protocol::{Backend, Error, Result};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::chance::SharedRng;
use super::membership::SimulatedMember;
use super::node::{NodeCondition, SimulatedNode};
use super::planted::Bug;
use super::shown::TraceText;
use super::trace::Trace;

/// A caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Caller {
    Proxy(usize),
    Worker(usize),
}

/// A direction of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LinkDirection {
    /// From a caller to a node.
    There,
    /// From a node to a caller.
    Back,
}

/// Quality of the network: times in milliseconds, probabilities in a thousand.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Weather {
    /// Maximum delay of most requests and replies.
    pub(crate) delay_ms: u64,
    /// Maximum delay of the other ones.
    pub(crate) long_delay_ms: u64,
    pub(crate) long_per_mille: u64,
    pub(crate) lost_per_mille: u64,
    pub(crate) twice_per_mille: u64,
}

/// The network. Clones share it.
#[derive(Clone)]
pub(crate) struct SimulatedNetwork {
    pub(crate) trace: Trace,
    pub(crate) bug: Bug,
    /// Seed of the links' generators.
    seed: u64,
    /// Timeout of callers in milliseconds; none to wait forever.
    pub(crate) patience_ms: Option<u64>,
    state: Arc<Mutex<NetworkState>>,
}

#[derive(Default)]
struct NetworkState {
    weather: Weather,
    cuts: BTreeSet<(Caller, usize, LinkDirection)>,
    chances: BTreeMap<(Caller, usize), SharedRng>,
}

/// Effects of the network on one call.
struct Trip {
    there_ms: u64,
    back_ms: u64,
    lost: Option<LinkDirection>,
    again_ms: Option<u64>,
}

impl SimulatedNetwork {
    pub(crate) fn new(trace: Trace, seed: u64, bug: Bug, patience_ms: Option<u64>) -> Self {
        Self { trace, bug, seed, patience_ms, state: Arc::default() }
    }

    /// Returns the generator of a link. Each link has its own, so that a call that is left out
    /// changes the fate of few others.
    pub(crate) fn chance_of(&self, caller: Caller, node: usize) -> SharedRng {
        let mut state = self.state.lock();
        let number = match caller {
            Caller::Proxy(place) => 2 * place as u64,
            Caller::Worker(place) => 2 * place as u64 + 1,
        };
        let seed = self.seed ^ (number << 8 | node as u64);
        state.chances.entry((caller, node)).or_insert_with(|| SharedRng::new(seed).fork()).clone()
    }

    pub(crate) fn set_weather(&self, weather: Weather) {
        self.state.lock().weather = weather;
    }

    pub(crate) fn cut(&self, caller: Caller, node: usize, way: LinkDirection) {
        self.state.lock().cuts.insert((caller, node, way));
    }

    /// Removes all cuts.
    pub(crate) fn heal(&self) {
        self.state.lock().cuts.clear();
    }

    pub(crate) fn passes(&self, caller: Caller, node: usize, way: LinkDirection) -> bool {
        !self.state.lock().cuts.contains(&(caller, node, way))
    }

    /// Draws whether a stream of bytes is to break off.
    pub(crate) fn breaks(&self, chance: &SharedRng) -> bool {
        let lost_per_mille = self.state.lock().weather.lost_per_mille;
        chance.per_mille(lost_per_mille)
    }

    fn trip(&self, chance: &SharedRng) -> Trip {
        let weather = self.state.lock().weather;
        let delay = || {
            let is_long = chance.per_mille(weather.long_per_mille);
            chance.below(if is_long { weather.long_delay_ms } else { weather.delay_ms } + 1)
        };
        let lost = chance.per_mille(weather.lost_per_mille);
        let again = chance.per_mille(weather.twice_per_mille);
        Trip {
            there_ms: delay(),
            back_ms: delay(),
            lost: lost.then(|| chance.pick(&[LinkDirection::There, LinkDirection::Back])),
            again_ms: again.then(|| chance.below(10 * weather.long_delay_ms + 1)),
        }
    }

    /// Carries a call to a node and its reply back. The call continues even if its caller is
    /// dropped.
    pub(crate) async fn carry<T, F, E>(
        &self,
        (caller, member): (Caller, &Arc<SimulatedMember>),
        (number, node): (usize, &Arc<SimulatedNode>),
        what: String,
        effect: E,
    ) -> Result<T>
    where
        T: TraceText + Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
        E: Fn(Arc<dyn Backend>) -> F + Send + Sync + 'static,
    {
        let trip = self.trip(&self.chance_of(caller, number));
        let (answer, answered) = oneshot::channel();
        let (network, member, node) = (self.clone(), member.clone(), node.clone());
        let call = CallInTransit { network, caller, member, number, node, what, effect };
        tokio::spawn(call.travel(trip, answer));
        let wait = async {
            match answered.await {
                Ok(answer) => answer,
                Err(_) => std::future::pending().await,
            }
        };
        match self.patience_ms {
            None => wait.await,
            Some(ms) => timeout(Duration::from_millis(ms), wait)
                .await
                .unwrap_or_else(|_| Err(Error::unavailable("nobody answered"))),
        }
    }
}

/// A call under way.
struct CallInTransit<E> {
    network: SimulatedNetwork,
    caller: Caller,
    member: Arc<SimulatedMember>,
    number: usize,
    node: Arc<SimulatedNode>,
    what: String,
    effect: E,
}

impl<E> CallInTransit<E> {
    async fn travel<T, F>(self, trip: Trip, answer: oneshot::Sender<Result<T>>)
    where
        T: TraceText + Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
        E: Fn(Arc<dyn Backend>) -> F + Send + Sync + 'static,
    {
        if let Some(reply) = self.once(&trip).await {
            answer.send(reply).ok();
        } else {
            drop(answer);
        }
        if let Some(ms) = trip.again_ms {
            sleep(Duration::from_millis(ms)).await;
            self.once(&Trip {
                there_ms: 0,
                lost: Some(LinkDirection::Back),
                again_ms: None,
                ..trip
            })
            .await;
        }
    }

    /// Delivers the call and returns its reply; `None` if the request or the reply is lost.
    async fn once<T, F>(&self, trip: &Trip) -> Option<Result<T>>
    where
        T: TraceText + Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
        E: Fn(Arc<dyn Backend>) -> F + Send + Sync + 'static,
    {
        sleep(Duration::from_millis(trip.there_ms)).await;
        let (network, number) = (&self.network, self.number);
        if trip.lost == Some(LinkDirection::There)
            || !network.passes(self.caller, number, LinkDirection::There)
        {
            self.note("lost");
            return None;
        }
        let (standing, life) = (self.node.standing(), self.node.life());
        if standing != NodeCondition::Up {
            self.note("down");
            let refused = || Err(Error::unavailable("the connection is refused"));
            return (standing == NodeCondition::Refusing).then(refused);
        }
        let reply = (self.effect)(self.node.backend()).await;
        self.node.member.receive_term(self.node.term());
        match &reply {
            Ok(reply) => self.note(&reply.shown()),
            Err(error) => self.note(&format!("{:?}: {error}", error.kind())),
        }
        sleep(Duration::from_millis(trip.back_ms)).await;
        let lost = trip.lost == Some(LinkDirection::Back)
            || !network.passes(self.caller, number, LinkDirection::Back)
            || self.node.life() != life;
        if lost {
            self.note("reply lost");
        } else {
            self.member.follow_term(self.node.term(), &self.node.member);
        }
        (!lost).then_some(reply)
    }

    fn note(&self, what: &str) {
        let (caller, number) = (self.caller, self.number + 1);
        self.network.trace.note(format_args!("{caller:?} n{number} {} → {what}", self.what));
    }
}
