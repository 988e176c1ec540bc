//! Condition of a proxy.

use std::sync::Arc;

use async_trait::async_trait;
use martlet_membership::Member;
use martlet_serving::operator::{Health, RoleCondition};

/// Source of a proxy's condition.
pub(super) struct ProxyHealth(pub(super) Arc<Member>);

#[async_trait]
impl Health for ProxyHealth {
    async fn condition(&self) -> RoleCondition {
        let rings = self.0.keeper.rings();
        let names = rings.index_nodes();
        let (up, down): (Vec<&str>, Vec<&str>) = names
            .iter()
            .partition(|name| self.0.nodes.get(name).is_some_and(|it| it.history.answers()));
        let mut condition = condition_of(&up, &down);
        condition.reasons.extend(self.0.version_problems());
        condition.serves &= self.0.level.refusal().is_none();
        condition
    }
}

/// Returns the condition of a proxy. It serves while more than half of the nodes with entries
/// answer.
fn condition_of(up: &[&str], down: &[&str]) -> RoleCondition {
    let reasons = down.iter().map(|name| format!("the node {name} does not answer")).collect();
    RoleCondition { serves: up.len() > down.len(), reasons }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_is_ready_while_a_quorum_of_nodes_answers() {
        assert!(!condition_of(&[], &[]).serves);
        assert!(condition_of(&["a"], &[]).serves);
        let one_out = condition_of(&["a", "b"], &["c"]);
        assert!(one_out.serves);
        assert_eq!(one_out.reasons, ["the node c does not answer"]);
        assert!(!condition_of(&["a"], &["b", "c"]).serves);
        assert!(!condition_of(&["a"], &["b"]).serves);
    }
}
