//! Collections over nodes that answer, hang or are silent: requests, ages and deadlines.

use std::cell::{Cell, RefCell};

use futures::future::pending;
use tokio::time::{advance, sleep};

use super::*;

fn names(count: usize) -> Vec<String> {
    (0..count).map(|at| format!("n{at}")).collect()
}

/// Answer of a node that received the report of one proxy a while ago.
fn answer(node: &str, what: NodeRequest, heard_ms_ago: u64) -> StatusAnswer {
    let line = MemberLine { heard_ms_ago, sender: None, report: ProcessReport::of("proxy p1") };
    let heard = if what == NodeRequest::Own { Vec::new() } else { vec![line] };
    StatusAnswer { own: ProcessReport::of(format!("storage node {node}")), heard }
}

#[tokio::test(start_paused = true)]
async fn every_node_gets_one_request_and_few_return_reports_of_others() {
    let asked = RefCell::new(Vec::new());
    let ask = |node: String, what: NodeRequest| {
        asked.borrow_mut().push((node.clone(), what));
        async move { Some(answer(&node, what, 40)) }
    };
    let found = collect(names(1000), ReportScope::Listeners(LISTENERS), ask).await;
    let asked = asked.into_inner();
    assert_eq!(asked.len(), 1000);
    let listeners = asked.iter().filter(|(_, what)| *what == NodeRequest::OwnAndReceived);
    assert_eq!(listeners.count(), LISTENERS);
    assert!(names(1000).iter().all(|name| found.node(name).is_some()));
    assert_eq!(found.members().count(), 1);
}

#[tokio::test(start_paused = true)]
async fn silent_listeners_are_replaced_and_all_nodes_are_listeners_of_a_decision() {
    let listeners = Cell::new(0);
    let ask = |node: String, what: NodeRequest| {
        let is_silent = ["n0", "n1", "n3"].contains(&node.as_str());
        let listens = what == NodeRequest::OwnAndReceived && !is_silent;
        listeners.set(listeners.get() + usize::from(listens));
        async move { (!is_silent).then(|| answer(&node, what, 40)) }
    };
    let found = collect(names(8), ReportScope::Listeners(LISTENERS), ask).await;
    assert_eq!(listeners.take(), LISTENERS);
    assert!(found.node("n0").is_none() && found.node("n7").is_some());
    assert_eq!(found.members().count(), 1);
    collect(names(8), ReportScope::Everything, ask).await;
    assert_eq!(listeners.take(), 5);
    let found = collect(names(1), ReportScope::Listeners(LISTENERS), ask).await;
    assert_eq!((found.members().count(), listeners.take()), (0, 0));
    assert_eq!(collect(Vec::new(), ReportScope::Everything, ask).await.members().count(), 0);
}

/// The first nodes hang: with one call after the other, or in order, no other node would be heard.
#[tokio::test(start_paused = true)]
async fn nodes_that_hang_delay_no_others_and_end_at_the_deadline() {
    let (now, most) = (Cell::new(0), Cell::new(0));
    let ask = |node: String, what: NodeRequest| {
        let (now, most) = (&now, &most);
        async move {
            if node.len() == 2 {
                return pending().await;
            }
            now.set(now.get() + 1);
            most.set(now.get().max(most.get()));
            sleep(Duration::from_millis(10)).await;
            now.set(now.get() - 1);
            Some(answer(&node, what, 40))
        }
    };
    let begun = Instant::now();
    let found = collect(names(500), ReportScope::Listeners(0), ask).await;
    assert_eq!(begun.elapsed(), DEADLINE);
    let heard = names(500).iter().filter(|name| found.node(name).is_some()).count();
    assert_eq!(heard, 490, "all but the ten that hang");
    assert!((1..=NODES_AT_ONCE).contains(&most.get()), "{} at a time", most.get());
}

#[tokio::test(start_paused = true)]
async fn ages_include_the_time_since_the_arrival() {
    let ask = |node: String, what: NodeRequest| async move {
        let is_fast = node == "n0";
        sleep(Duration::from_millis(if is_fast { 100 } else { 1000 })).await;
        // The fast node heard the proxy earlier than the slow one.
        Some(answer(&node, what, if is_fast { 2000 } else { 50 }))
    };
    let found = collect(names(2), ReportScope::Everything, ask).await;
    let age = |node: &str| found.node(node).unwrap().1;
    assert_eq!(age("n0"), Duration::from_millis(900));
    assert_eq!(age("n1"), Duration::ZERO);
    advance(Duration::from_secs(4)).await;
    assert_eq!(age("n0"), Duration::from_millis(4900));
    assert_eq!(age("n1"), Duration::from_secs(4));
    let heard: Vec<u64> = found.members().map(|line| line.heard_ms_ago).collect();
    assert_eq!(heard, [4050], "of two lines of one process, the younger one");
}

/// Each call of a decision ends by its own timeout. Nodes behind many silent ones are asked all the
/// same.
#[tokio::test(start_paused = true)]
async fn a_decision_queries_every_node_despite_silent_ones() {
    let ask = |node: String, what: NodeRequest| async move {
        if node.len() < 4 {
            sleep(Duration::from_secs(30)).await;
            return None;
        }
        Some(answer(&node, what, 40))
    };
    let begun = Instant::now();
    let found = collect(names(200), ReportScope::Everything, ask).await;
    assert!(begun.elapsed() > 2 * DEADLINE);
    let heard = names(200).iter().filter(|name| found.node(name).is_some()).count();
    assert_eq!(heard, 100, "n100 to n199");
    let found = collect(names(200), ReportScope::Listeners(0), ask).await;
    assert!(found.node("n199").is_none(), "a view for display ends before");
}
