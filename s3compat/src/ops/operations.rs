//! State of the operations of one request.

use std::sync::Arc;

use martlet_protocol::Clock;
use martlet_proxy::Session;

use crate::in_place::InPlaceConfig;
use crate::token::TokenKey;

/// Operations of one request.
pub(crate) struct Operations {
    /// Session of the request, over the store.
    pub(crate) store: Session,
    pub(crate) clock: Arc<dyn Clock>,
    /// Region that this store reports to clients.
    pub(crate) region: Arc<str>,
    pub(crate) tokens: TokenKey,
    /// None if no client may read in place.
    pub(crate) in_place: Option<InPlaceConfig>,
}
