//! The decision about a request: its token, its extent, its bytes.

use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;

use martlet_protocol::extent_token::{ExtentGrant, ExtentTokenKey, GrantedRead, TokenRefusal};
use martlet_protocol::http::AuthenticatedFlag;
use martlet_protocol::{ByteStream, Clock, Error, ErrorKind};
use martlet_storage_node::{ExtentInPlace, StorageNode};

use crate::figures::DataPortFigures;
use crate::head::{DataRequest, RangeHeader, Verifier};
use crate::limits::DataPortLimits;
use crate::reply_head::{PieceHead, Refusal};
use crate::turns::{Turn, Turns};

/// The devices behind a data port, and its limits. Shared by all connections.
pub struct DataPortServer {
    node: Arc<StorageNode>,
    key: ExtentTokenKey,
    clock: Arc<dyn Clock>,
    pub(crate) limits: DataPortLimits,
    turns: Turns,
    pub(crate) figures: Arc<DataPortFigures>,
}

/// An admitted request. Its turn ends when it is dropped.
pub(crate) struct Piece {
    pub(crate) extent: ExtentInPlace,
    pub(crate) range: Range<u64>,
    pub(crate) is_partial: bool,
    pub(crate) verifier: Verifier,
    pub(crate) tenant: String,
    /// Verified bytes; none for HEAD, and if the client verifies.
    pub(crate) verified: Option<ByteStream>,
    _turn: Turn,
}

impl Piece {
    pub(crate) fn head(&self) -> PieceHead<'_> {
        PieceHead {
            range: self.range.clone(),
            length: self.extent.length(),
            is_partial: self.is_partial,
            blake3: self.extent.blake3(),
            checksums: self.extent.checksums(&self.range),
            verifier: self.verifier,
        }
    }
}

/// The connection of a request.
pub(crate) struct Origin<'a> {
    pub(crate) peer: IpAddr,
    /// Set once a request showed a valid token of a signed locate.
    pub(crate) proven: &'a AuthenticatedFlag,
}

impl DataPortServer {
    /// A port to the devices of `node`, for tokens of `key`. `clock` has the time of the cluster.
    pub fn new(
        node: Arc<StorageNode>,
        key: ExtentTokenKey,
        clock: Arc<dyn Clock>,
        limits: DataPortLimits,
    ) -> Self {
        let turns = Turns::new(limits.requests_max);
        Self { node, key, clock, limits, turns, figures: Arc::default() }
    }

    /// Counters of the port.
    pub fn figures(&self) -> Arc<DataPortFigures> {
        self.figures.clone()
    }

    /// Decides a request. Opens the extent, and reads the first verified bytes, so that their
    /// errors still have a status.
    pub(crate) async fn answer(
        &self,
        request: &DataRequest,
        origin: &Origin<'_>,
    ) -> Result<Piece, Refusal> {
        let mut tenant = None;
        let outcome = self.decide(request, origin, &mut tenant).await;
        let status = match &outcome {
            Ok(piece) => piece.head().status(),
            Err(refusal) => refusal.status,
        };
        self.figures.answered(tenant.as_deref(), status);
        outcome
    }

    async fn decide(
        &self,
        request: &DataRequest,
        origin: &Origin<'_>,
        tenant: &mut Option<String>,
    ) -> Result<Piece, Refusal> {
        let grant = self.key.open(&request.token).map_err(refused)?;
        *tenant = Some(grant.tenant.clone());
        let read = GrantedRead {
            extent: request.extent,
            range: grant.first..grant.last.saturating_add(1),
            peer: Some(origin.peer),
            now_ms: self.clock.now_ms(),
        };
        grant.check(&read).map_err(refused)?;
        if !grant.is_anonymous() {
            origin.proven.set();
        }
        if !self.node.has_device(grant.device) {
            return Err(refused(TokenRefusal::Device));
        }
        let busy = || Refusal::new(503, Some("overload"), "too many concurrent requests");
        let turn = self.turns.take(&grant.tenant).ok_or_else(busy)?;
        let extent = self.node.open_in_place(grant.device, grant.extent).await;
        let extent = extent.map_err(|error| unreadable(&error))?;
        let range = requested(request.range, extent.length())?;
        grant.check(&GrantedRead { range: range.clone(), ..read }).map_err(refused)?;
        let ExtentGrant { tenant, .. } = grant;
        let (verifier, is_partial) = (request.verifier, request.range != RangeHeader::Absent);
        let mut verified = None;
        if request.wants_bytes && verifier == Verifier::Node {
            let bytes = extent.read(range.clone()).await;
            verified = Some(bytes.map_err(|error| unreadable(&error))?);
        }
        Ok(Piece { extent, range, is_partial, verifier, tenant, verified, _turn: turn })
    }
}

/// Bytes that a request names.
fn requested(range: RangeHeader, length: u64) -> Result<Range<u64>, Refusal> {
    let outside = |message| Refusal { length: Some(length), ..Refusal::new(416, None, message) };
    match range {
        RangeHeader::Absent => Ok(0..length),
        RangeHeader::Unreadable => Err(outside("send one range of bytes")),
        RangeHeader::One(range) => {
            range.resolve(length).ok_or_else(|| outside("the range is outside of the piece"))
        }
    }
}

fn refused(refusal: TokenRefusal) -> Refusal {
    let code = match refusal {
        TokenRefusal::Invalid => "invalid",
        TokenRefusal::Expired => "expired",
        TokenRefusal::Extent => "extent",
        TokenRefusal::Device => "device",
        TokenRefusal::Range => "range",
        TokenRefusal::Network => "network",
    };
    Refusal::new(403, Some(code), refusal.to_string())
}

/// Refusal of a piece that can't be opened or read. A corrupt one is in quarantine by now.
fn unreadable(error: &Error) -> Refusal {
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::Corrupt => {
            let message = "the device doesn't hold the piece: locate the object again";
            Refusal::new(404, Some("gone"), message)
        }
        _ => {
            tracing::debug!(%error, "a device can't serve a piece");
            let message = "the device can't serve the piece now: read another holder";
            Refusal::new(503, Some("device"), message)
        }
    }
}

impl std::fmt::Debug for DataPortServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DataPortServer")
    }
}
