//! Spread of the index ring over the nodes. A ring change begins only when most nodes have the
//! ring. Otherwise it would leave the remaining nodes behind, whose votes would then be refused
//! (rule P3).

use martlet_membership::{Member, RingName, RingSet};
use martlet_protocol::http::RingTags;
use martlet_topology::Topology;

/// Records if most nodes announced the index ring in their last replies.
pub(super) fn note_spread(topology: &Topology, member: &Member, rings: &RingSet) {
    let announced = |node: &str| member.nodes.get(node).and_then(|node| node.history.rings());
    if let Some(index) = rings.index() {
        topology.set_spread(index, is_with_most(rings, announced));
    }
}

/// Returns true if more than half of the index ring's nodes announced this ring or a newer one.
fn is_with_most(rings: &RingSet, announced: impl Fn(&str) -> Option<RingTags>) -> bool {
    let (name, nodes) = (RingName::Index.to_string(), rings.index_nodes());
    let epoch = rings.index().map_or(0, |ring| ring.epoch());
    let has_it = |node: &&&str| {
        let is_it = |tags: RingTags| tags.iter().any(|tag| tag.name == name && tag.epoch >= epoch);
        announced(node).is_some_and(is_it)
    };
    nodes.iter().filter(has_it).count() * 2 > nodes.len()
}

#[cfg(test)]
mod tests {
    use martlet_membership::ring_tag;
    use martlet_membership::testing::{builder, device, next};
    use martlet_protocol::PolicyId;
    use martlet_protocol::http::Announcement;
    use martlet_ring::Ring;

    use super::*;

    fn tags(name: RingName, ring: &Ring) -> RingTags {
        Announcement::new(&[ring_tag(name, ring)]).rings().clone()
    }

    #[test]
    fn a_ring_has_spread_once_more_than_half_of_its_nodes_have_it_or_a_newer_one() {
        let mut builder = builder(0, 3);
        let old = next(&mut builder);
        builder.add(device(4, "d1")).unwrap();
        let ring = next(&mut builder);
        builder.settle().unwrap();
        builder.add(device(5, "d1")).unwrap();
        let newer = next(&mut builder);
        let rings = RingSet::new([(RingName::Index, ring.clone())].into()).unwrap();
        let (old, it) = (tags(RingName::Index, &old), tags(RingName::Index, &ring));
        let newer = tags(RingName::Index, &newer);
        let data = tags(RingName::Data(PolicyId(0)), &ring);
        // Announcements of n1 to n4, and of n9, which the ring doesn't name.
        let spread = |all: [Option<&RingTags>; 5]| {
            let names = ["n1", "n2", "n3", "n4", "n9"];
            is_with_most(&rings, |node| {
                let at = names.iter().position(|name| *name == node)?;
                all[at].cloned()
            })
        };
        assert!(spread([Some(&it), Some(&it), Some(&it), None, None]));
        assert!(spread([Some(&it), Some(&newer), Some(&newer), Some(&old), None]));
        assert!(!spread([Some(&it), Some(&it), Some(&old), Some(&old), None]), "half is not most");
        assert!(!spread([Some(&it), Some(&it), Some(&data), None, Some(&it)]));
        assert!(!spread([None; 5]), "nobody was heard");
    }
}
