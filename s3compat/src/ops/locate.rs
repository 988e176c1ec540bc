//! `LocateObject`: the places of an object's bytes, with tokens to read them there. The operation
//! and its JSON document are this store's own; `docs/IN_PLACE.md` describes them for clients.
//!
//! Invariants:
//! * A token grants no more than the request's principal may read by GetObject at this moment.
//! * A token keeps the networks of the key and its tenant. If a policy of the request depends on the
//!   client's address, the token is bound to this address.
//! * If a policy of the request depends on TLS, only data ports with TLS are named. If one depends on the version of TLS,
//!   none is: the version is that of the port's own connection.
//! * Accounts with a limit on bytes get no tokens, because nodes don't know the rest of the limit.

use std::net::IpAddr;

use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, StatusCode};
use martlet_protocol::extent_token::{ANONYMOUS_TENANT, ExtentGrant};
use martlet_protocol::limits::BLOCK_BYTES;
use martlet_protocol::{DataPort, Network};
use martlet_proxy::{
    Located, LocatedExtent, LocatedExtents, LocatedPiece, NotDirect, PieceHolder, Selection,
};
use s3s::S3Result;
use serde::Serialize;

use super::operations::Operations;
use crate::access::{ConnectionNeeds, Identity};
use crate::attributes::{etag_header, stamp_headers, validators, wire_version};
use crate::errors::{denied, internal};
use crate::header_values::VERSION_ID;
use crate::in_place::InPlaceConfig;
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::request::OperationRequest;

/// Header by which clients tell a reply of locate from the object of another store.
const LOCATE: HeaderName = HeaderName::from_static("x-martlet-locate");
/// Version of the document.
const FORMAT: HeaderValue = HeaderValue::from_static("1");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// The document.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WireLocated {
    size: u64,
    etag: String,
    version_id: Option<String>,
    stamp: String,
    #[serde(rename = "expires_ms")]
    expires_ms: u64,
    direct: bool,
    reason: Option<&'static str>,
    extents: Vec<WireExtent>,
    next: Option<u64>,
}

#[derive(Serialize)]
struct WireExtent {
    id: String,
    offset: u64,
    length: u64,
    blake3: String,
    code: Option<WireCode>,
    pieces: Vec<WirePiece>,
}

#[derive(Serialize)]
struct WireCode {
    k: u8,
    m: u8,
    #[serde(rename = "F")]
    fragment_bytes: u64,
}

#[derive(Serialize)]
struct WirePiece {
    piece: u8,
    id: String,
    from: u64,
    length: u64,
    holders: Vec<WireHolder>,
}

#[derive(Serialize)]
struct WireHolder {
    url: String,
    token: String,
    host_id: String,
}

/// Grants of one reply: what all its tokens have in common.
struct TokenMaker<'a> {
    config: &'a InPlaceConfig,
    tenant: &'a str,
    networks: Vec<Vec<Network>>,
    peer: Option<IpAddr>,
    needs: ConnectionNeeds,
    expires_ms: u64,
}

impl TokenMaker<'_> {
    /// Returns true if connections to a data port have what the policies of the request depend on.
    fn admits(&self, port: &DataPort) -> bool {
        let is_secure = !self.needs.tls || port.url.starts_with("https://");
        is_secure && !self.needs.tls_version
    }

    /// Returns true if pieces have holders, and no holder has the TLS that the policies depend on.
    fn refuses_all(&self, found: &LocatedExtents) -> bool {
        let mut ports = found
            .extents
            .iter()
            .flat_map(|extent| &extent.pieces)
            .flat_map(|piece| &piece.holders)
            .map(|holder| &holder.port)
            .peekable();
        ports.peek().is_some() && !ports.any(|port| self.admits(port))
    }

    /// Returns the token of a piece on a device. None if the networks are too many for a token and
    /// the client's address is not known.
    fn token(&self, piece: &LocatedPiece, holder: &PieceHolder) -> Option<String> {
        let first = piece.selected.start / BLOCK_BYTES * BLOCK_BYTES;
        let end = piece.selected.end.next_multiple_of(BLOCK_BYTES).min(piece.length);
        let grant = ExtentGrant {
            device: holder.device,
            extent: piece.id,
            first,
            last: end - 1,
            expires_ms: self.expires_ms,
            tenant: self.tenant.to_owned(),
            networks: Vec::new(),
        };
        let grant = grant.from_networks(&self.networks, self.peer)?;
        Some(self.config.key.seal(&grant))
    }

    fn extent(&self, located: LocatedExtent) -> Option<WireExtent> {
        let LocatedExtent { extent, offset, code, pieces } = located;
        let pieces: Option<Vec<_>> = pieces.into_iter().map(|piece| self.piece(&piece)).collect();
        Some(WireExtent {
            id: extent.id.to_string(),
            offset,
            length: extent.length.into(),
            blake3: hex::encode(extent.blake3),
            code: code.map(|code| WireCode {
                k: code.k,
                m: code.m,
                fragment_bytes: code.fragment_bytes,
            }),
            pieces: pieces?,
        })
    }

    fn piece(&self, piece: &LocatedPiece) -> Option<WirePiece> {
        let holder = |holder: &PieceHolder| {
            Some(WireHolder {
                url: format!("{}/x/{}", holder.port.url, piece.id),
                token: self.token(piece, holder)?,
                host_id: holder.port.host_id.clone(),
            })
        };
        let admitted = piece.holders.iter().filter(|holder| self.admits(&holder.port));
        let holders: Option<Vec<_>> = admitted.map(holder).collect();
        Some(WirePiece {
            piece: piece.number,
            id: piece.id.to_string(),
            from: piece.from,
            length: piece.length,
            holders: holders?,
        })
    }
}

impl Operations {
    pub(super) async fn locate_object(&self, request: &OperationRequest) -> S3Result<Reply> {
        let config = self.in_place.as_ref().filter(|_| self.store.in_place().has_data_ports());
        let config = config.ok_or_else(|| Refusal::not_implemented("locate"))?;
        let query = request.query()?;
        let parsed = request.conditions();
        let target = self.read_target(request, &query).await?;
        let name = target.name();
        let selection = parsed.range.unwrap_or(Selection::Whole);
        let bucket = request.bucket();
        let located =
            match self.store.in_place().locate(bucket, name, selection, &parsed.conditions).await {
                Ok(located) => located,
                Err(error) => return target.failed(error),
            };
        target.check(&located.object)?;
        let token = self.store.token(bucket, name.key, located.stamp);
        let document = self.document(request, config, &located, token.to_string())?;
        let mut headers = stamp_headers(token);
        validators(&mut headers, &located.object);
        headers.insert(CONTENT_TYPE, JSON);
        headers.insert(LOCATE, FORMAT);
        let mut reply = Reply::empty(StatusCode::OK).with_headers(headers);
        reply.body = serde_json::to_vec(&document).map_err(|_| internal())?.into();
        reply.with_header(VERSION_ID, wire_version(&located.object))
    }

    fn document(
        &self,
        request: &OperationRequest,
        config: &InPlaceConfig,
        located: &Located,
        stamp: String,
    ) -> S3Result<WireLocated> {
        let Located { object, extents, .. } = located;
        let maker = self.token_maker(request, config)?;
        let found = match extents {
            Err(NotDirect::Inline) => Err("inline"),
            Err(NotDirect::Encrypted) => Err("encrypted"),
            Ok(_) if limits_bytes(&request.context.identity) => Err("rate-limited"),
            Ok(found) if maker.refuses_all(found) => Err("tls"),
            Ok(found) => Ok(found.clone()),
        };
        let (direct, reason) = (found.is_ok(), found.as_ref().err().copied());
        let LocatedExtents { extents, next } = found.unwrap_or_default();
        let extents = extents.into_iter().map(|extent| maker.extent(extent));
        let extents: Option<Vec<_>> = extents.collect();
        let etag = etag_header(object.etag);
        Ok(WireLocated {
            size: object.size,
            etag: etag.to_str().map_err(|_| internal())?.to_owned(),
            version_id: wire_version(object),
            stamp,
            expires_ms: maker.expires_ms,
            direct,
            reason,
            extents: extents.ok_or_else(denied)?,
            next,
        })
    }

    fn token_maker<'a>(
        &self,
        request: &'a OperationRequest,
        config: &'a InPlaceConfig,
    ) -> S3Result<TokenMaker<'a>> {
        let peer = request.context.connection.peer;
        let (tenant, mut networks) = match &request.context.identity {
            Identity::Anonymous => (ANONYMOUS_TENANT, Vec::new()),
            Identity::Known(who) => (&*who.account, who.networks.clone()),
        };
        let needs = request.authorization()?.connection_needs();
        if needs.address {
            networks.push(vec![Network::of_address(peer.ok_or_else(denied)?)]);
        }
        let expires_ms = self.clock.now_ms().saturating_add(config.lifetime_ms);
        Ok(TokenMaker { config, tenant, networks, peer, needs, expires_ms })
    }
}

/// Returns true if the sender has a limit on its rate of bytes.
fn limits_bytes(identity: &Identity) -> bool {
    match identity {
        Identity::Anonymous => false,
        Identity::Known(who) => who.meters.limits_bytes(),
    }
}
