//! Place of a role: a process of its own, or the process of a machine beside other roles.

use std::net::SocketAddr;
use std::sync::Arc;

use martlet_console::S3Slot;
use martlet_serving::operator::{self as admin, AdminServer, Operator};
use martlet_serving::settings::CommonSettings;
use martlet_serving::{AdminToken, Failure, Signals};

/// Signals and admin address of a role.
pub(crate) struct RoleHost {
    pub(crate) signals: Signals,
    pub(crate) admin: RoleAdmin,
    /// Place of the role's S3 service, for the console of the process.
    pub(crate) s3: S3Slot,
}

/// Admin address of a role.
pub(crate) enum RoleAdmin {
    /// The role has an address of its own.
    Own,
    /// The process serves one address for all its roles.
    Shared(Arc<Operator>),
}

/// Admin address of a role that may be served by the role itself.
pub(crate) struct AnsweringAdmin(Option<AdminServer>);

impl RoleHost {
    /// Makes a process of its own for a role. Installs signal handlers.
    pub(crate) fn own_process() -> Result<Self, Failure> {
        Ok(Self { signals: Signals::take()?, admin: RoleAdmin::Own, s3: S3Slot::default() })
    }
}

impl RoleAdmin {
    /// Serves the admin address of the role, unless the process does.
    pub(crate) async fn serve(
        self,
        address: SocketAddr,
        tokens: Vec<AdminToken>,
        common: &CommonSettings,
    ) -> Result<(Arc<Operator>, AnsweringAdmin), Failure> {
        match self {
            Self::Shared(operator) => Ok((operator, AnsweringAdmin(None))),
            Self::Own => {
                let port = admin::bind(address, common).await?;
                let operator = Arc::new(Operator::new(tokens));
                let answering = operator.clone().serve(port, common);
                Ok((operator, AnsweringAdmin(Some(answering))))
            }
        }
    }
}

impl AnsweringAdmin {
    /// Stops the admin address if the role serves it.
    pub(crate) async fn end(self) {
        if let Some(answering) = self.0 {
            answering.end().await;
        }
    }
}
