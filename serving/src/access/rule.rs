//! Rules of routes: the roles that a route admits, and the place where a request names its tenant.

use martlet_admin_api::principals::AdminRole::{self, Operator, TenantAdmin, Viewer};

/// Rule of a route. Each description of a route has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteAccess {
    /// No authentication.
    Public,
    /// Every principal.
    Anyone,
    /// Viewers and operators.
    Read,
    /// Operators.
    Operate,
    /// Viewers, operators, and tenant admins for what belongs to their tenant.
    TenantRead(TenantField),
    /// Operators, and tenant admins for what belongs to their tenant.
    TenantChange(TenantField),
    /// Operators, and tenant admins. The route itself returns to tenant admins what is theirs.
    Records,
}

/// Field of a request that leads to the tenant: in the JSON body if the route has one, else in the
/// query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TenantField {
    /// Field with the name of a tenant.
    Tenant(&'static str),
    /// Field with the name of a bucket, whose owner is the tenant.
    Bucket(&'static str),
    /// Field with an access key of the tenant.
    AccessKey(&'static str),
}

impl TenantField {
    /// Returns the name of the field.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Tenant(name) | Self::Bucket(name) | Self::AccessKey(name) => name,
        }
    }
}

impl RouteAccess {
    /// Returns the roles that the route admits.
    pub(crate) fn roles(self) -> &'static [AdminRole] {
        match self {
            Self::Public | Self::Anyone | Self::TenantRead(_) => &[Viewer, Operator, TenantAdmin],
            Self::Read => &[Viewer, Operator],
            Self::Operate => &[Operator],
            Self::TenantChange(_) | Self::Records => &[Operator, TenantAdmin],
        }
    }

    /// Returns true if the route admits the role, for some tenant at least.
    pub fn admits(self, role: AdminRole) -> bool {
        self.roles().contains(&role)
    }

    /// Returns the field that a tenant admin's request must have.
    pub(crate) fn tenant_field(self) -> Option<TenantField> {
        match self {
            Self::TenantRead(field) | Self::TenantChange(field) => Some(field),
            _ => None,
        }
    }

    /// Returns the sentence for a principal without a needed role.
    pub fn refusal(self, role: AdminRole) -> String {
        let needed: Vec<&str> = self.roles().iter().map(|role| role.name()).collect();
        let whose = if self.tenant_field().is_some() { " (of the tenant)" } else { "" };
        format!(
            "this needs the role {}{whose}, and the request has the role {role}: use a key with \
             that role",
            needed.join(" or ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_admit_roles() {
        let field = TenantField::Tenant("tenant");
        let admitted = |rule: RouteAccess| AdminRole::ALL.map(|role| rule.admits(role));
        assert_eq!(admitted(RouteAccess::Anyone), [true; 3]);
        assert_eq!(admitted(RouteAccess::Read), [true, true, false]);
        assert_eq!(admitted(RouteAccess::Operate), [false, true, false]);
        assert_eq!(admitted(RouteAccess::TenantRead(field)), [true; 3]);
        assert_eq!(admitted(RouteAccess::TenantChange(field)), [false, true, true]);
        assert_eq!(admitted(RouteAccess::Records), [false, true, true]);
        let refusal = RouteAccess::TenantChange(field).refusal(Viewer);
        assert!(refusal.contains("operator or tenant-admin (of the tenant)"), "{refusal}");
    }
}
