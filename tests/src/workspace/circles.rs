//! Circles of a directed graph: its strongly connected components, by Tarjan's algorithm.

use std::collections::{BTreeMap, BTreeSet};

/// Nodes of a graph, each with the nodes that its edges lead to.
pub type Edges<'a, N> = BTreeMap<&'a N, BTreeSet<N>>;

/// Returns the components of at least two nodes. Within a component each node reaches each other.
pub fn circles<'a, N: Ord>(edges: &'a Edges<'a, N>) -> Vec<Vec<&'a N>> {
    let mut search =
        CircleSearch { edges, visits: BTreeMap::new(), open: Vec::new(), found: Vec::new() };
    for node in edges.keys().copied() {
        if !search.visits.contains_key(node) {
            search.visit(node);
        }
    }
    search.found
}

/// Visit of a node.
#[derive(Clone, Copy)]
struct Visit {
    /// Number of nodes that were visited earlier.
    number: usize,
    /// True until the node's component is complete.
    is_open: bool,
}

struct CircleSearch<'a, N> {
    edges: &'a Edges<'a, N>,
    visits: BTreeMap<&'a N, Visit>,
    /// Nodes whose components are not complete, in the order of their visits.
    open: Vec<&'a N>,
    found: Vec<Vec<&'a N>>,
}

impl<'a, N: Ord> CircleSearch<'a, N> {
    /// Visits a node and all that it reaches, and returns the lowest open number among them.
    fn visit(&mut self, node: &'a N) -> usize {
        let number = self.visits.len();
        self.visits.insert(node, Visit { number, is_open: true });
        self.open.push(node);
        let edges = self.edges;
        let mut low = number;
        for next in edges.get(node).into_iter().flatten() {
            match self.visits.get(next).copied() {
                None => low = low.min(self.visit(next)),
                Some(visit) if visit.is_open => low = low.min(visit.number),
                Some(_) => {}
            }
        }
        if low == number {
            self.complete(node);
        }
        low
    }

    /// Closes the component whose first visited node is `node`.
    fn complete(&mut self, node: &'a N) {
        let start = self.open.iter().rposition(|open| *open == node).expect("the node is open");
        let mut component = self.open.split_off(start);
        for member in &component {
            self.visits.get_mut(member).expect("the node was visited").is_open = false;
        }
        if component.len() > 1 {
            component.sort();
            self.found.push(component);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(edges: &[(&'static str, &[&'static str])]) -> Vec<String> {
        let nodes: Vec<_> = edges
            .iter()
            .map(|(node, to)| (*node, to.iter().copied().collect::<BTreeSet<_>>()))
            .collect();
        let edges: Edges<'_, &str> = nodes.iter().map(|(node, to)| (node, to.clone())).collect();
        let names = |circle: Vec<&&str>| circle.into_iter().copied().collect::<Vec<_>>().join(" ");
        circles(&edges).into_iter().map(names).collect()
    }

    #[test]
    fn a_graph_without_circles_has_none() {
        assert_eq!(found(&[("a", &["b", "c"]), ("b", &["c"]), ("c", &[])]), [""; 0]);
        assert_eq!(found(&[("a", &["a", "gone"])]), [""; 0]);
    }

    #[test]
    fn circles_are_found_apart_from_what_leads_to_them() {
        assert_eq!(found(&[("a", &["b"]), ("b", &["c"]), ("c", &["b", "d"]), ("d", &[])]), ["b c"]);
        let two = found(&[("a", &["b"]), ("b", &["a", "c"]), ("c", &["d"]), ("d", &["c"])]);
        assert_eq!(two, ["c d", "a b"]);
    }

    #[test]
    fn circles_with_a_common_node_are_one() {
        let one = found(&[("a", &["b"]), ("b", &["c", "a"]), ("c", &["d"]), ("d", &["b"])]);
        assert_eq!(one, ["a b c d"]);
    }
}
