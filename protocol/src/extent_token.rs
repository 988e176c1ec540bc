//! Tokens for reads in place: a proxy grants bytes of one extent on one device, and the node of the
//! device verifies the grant without a request to the proxy.
//!
//! ```text
//! base64url( version (1) | postcard of the grant | HMAC-SHA256 of both (32) )
//!
//! grant   device | extent 16 | first | last | expires (ms) | tenant (text) | lists of networks
//! ```
//!
//! The HMAC's key is derived from the cluster key for these tokens alone. So a token signs nothing
//! else, and no other signature of the cluster is a token.
//!
//! Invariants:
//! * A token grants reads only, of one extent, on one device, until it expires.
//! * A text is at most one grant: encodings with spare bits or trailing bytes are refused.
//! * Only [`ExtentTokenKey::open`] makes a grant from a text, after its HMAC was compared in constant
//!   time.

use std::fmt;
use std::net::IpAddr;
use std::ops::Range;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use crate::id::{DeviceId, ExtentId};
use crate::network::Network;

const VERSION: u8 = 1;
const MAC_BYTES: usize = 32;
/// Derivation context of the key.
const CONTEXT: &str = "martlet 2026 tokens for reads of extents in place";
/// Longest token that is decoded.
pub const TOKEN_CHARS_MAX: usize = 4096;
/// Most networks in a token. [`ExtentGrant::from_networks`] replaces more by the caller's address.
pub const TOKEN_NETWORKS_MAX: usize = 16;
/// Tenant in tokens of unsigned requests. No account has this name.
pub const ANONYMOUS_TENANT: &str = "(anonymous)";
/// Lifetime of a token.
pub const TOKEN_LIFETIME_MS: u64 = 60_000;

/// Permission to read bytes of one extent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtentGrant {
    /// Device that holds the extent.
    pub device: DeviceId,
    /// Id of the extent on the device: for a fragment, the fragment's id.
    pub extent: ExtentId,
    /// First granted byte of the extent.
    pub first: u64,
    /// Last granted byte of the extent, included.
    pub last: u64,
    /// End of the grant, in milliseconds since 1970 of the cluster's time.
    pub expires_ms: u64,
    /// Account that the reads are counted for.
    pub tenant: String,
    /// Networks of the reader: the address must be in each list that isn't empty.
    pub networks: Vec<Vec<Network>>,
}

/// A read that presents a grant.
#[derive(Clone, Debug)]
pub struct GrantedRead {
    /// Extent that the request names.
    pub extent: ExtentId,
    /// Bytes of the extent; the end is not included.
    pub range: Range<u64>,
    /// Address of the reader; none if it has none, as on a Unix socket.
    pub peer: Option<IpAddr>,
    /// Current time of the cluster, in milliseconds since 1970.
    pub now_ms: u64,
}

/// Reason for refusing a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenRefusal {
    /// The text is no token of this cluster.
    #[error("the token is not valid")]
    Invalid,
    /// The grant has ended.
    #[error("the token has expired: locate the object again")]
    Expired,
    /// The grant is for another extent.
    #[error("the token is for another extent")]
    Extent,
    /// The grant is for a device of another node.
    #[error("the token is for a device that this node doesn't have: locate the object again")]
    Device,
    /// The range exceeds the granted bytes.
    #[error("the token doesn't grant these bytes")]
    Range,
    /// The reader's address is outside of the granted networks.
    #[error("the token doesn't grant reads from this address")]
    Network,
}

impl ExtentGrant {
    /// Returns true if an unsigned request located the object.
    pub fn is_anonymous(&self) -> bool {
        self.tenant == ANONYMOUS_TENANT
    }

    /// Checks that the grant covers a read. The caller compares the device with its own devices.
    pub fn check(&self, read: &GrantedRead) -> Result<(), TokenRefusal> {
        if read.now_ms >= self.expires_ms {
            return Err(TokenRefusal::Expired);
        }
        if read.extent != self.extent {
            return Err(TokenRefusal::Extent);
        }
        let Range { start, end } = read.range;
        if start >= end || start < self.first || end - 1 > self.last {
            return Err(TokenRefusal::Range);
        }
        let contains = |networks: &Vec<Network>| {
            let peer = read.peer;
            networks.is_empty()
                || peer.is_some_and(|peer| networks.iter().any(|network| network.contains(peer)))
        };
        if self.networks.iter().all(contains) { Ok(()) } else { Err(TokenRefusal::Network) }
    }

    /// Restricts the grant to lists of networks that contain `caller`. Lists that are too long for a
    /// token are replaced by the caller's address alone, which all of them contain.
    ///
    /// Returns none if the lists are too long and the caller's address is not known.
    #[must_use]
    pub fn from_networks(self, lists: &[Vec<Network>], caller: Option<IpAddr>) -> Option<Self> {
        let lists = lists.iter().filter(|list| !list.is_empty());
        let networks: Vec<_> = lists.cloned().collect();
        if networks.iter().map(Vec::len).sum::<usize>() <= TOKEN_NETWORKS_MAX {
            return Some(Self { networks, ..self });
        }
        Some(Self { networks: vec![vec![Network::of_address(caller?)]], ..self })
    }
}

/// Key that signs and verifies tokens. Never printed.
#[derive(Clone)]
pub struct ExtentTokenKey([u8; 32]);

impl fmt::Debug for ExtentTokenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ExtentTokenKey(…)")
    }
}

impl ExtentTokenKey {
    /// Derives the key from the cluster's secret, or from the random bytes of a single server.
    pub fn derive(secret: &[u8]) -> Self {
        Self(blake3::derive_key(CONTEXT, secret))
    }

    /// Returns the token of a grant.
    ///
    /// # Panics
    /// Never: a grant is plain data, which postcard can encode.
    pub fn seal(&self, grant: &ExtentGrant) -> String {
        let mut bytes = postcard::to_extend(grant, vec![VERSION]).expect("a grant is plain data");
        let mac = self.hmac(&bytes).finalize().into_bytes();
        bytes.extend_from_slice(&mac);
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Returns the grant of a token that this key signed.
    ///
    /// # Errors
    /// [`TokenRefusal::Invalid`] for all other texts.
    pub fn open(&self, token: &str) -> Result<ExtentGrant, TokenRefusal> {
        let invalid = TokenRefusal::Invalid;
        if token.len() > TOKEN_CHARS_MAX {
            return Err(invalid);
        }
        let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|_| invalid)?;
        let at = bytes.len().checked_sub(MAC_BYTES).ok_or(invalid)?;
        let (signed, mac) = bytes.split_at(at);
        self.hmac(signed).verify_slice(mac).map_err(|_| invalid)?;
        let (&VERSION, grant) = signed.split_first().ok_or(invalid)? else { return Err(invalid) };
        match postcard::take_from_bytes(grant) {
            Ok((grant, [])) => Ok(grant),
            _ => Err(invalid),
        }
    }

    fn hmac(&self, bytes: &[u8]) -> Hmac<Sha256> {
        let hmac = <Hmac<Sha256> as Mac>::new_from_slice(&self.0);
        hmac.expect("HMAC takes keys of any length").chain_update(bytes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key() -> ExtentTokenKey {
        ExtentTokenKey::derive(b"secret")
    }

    fn grant() -> ExtentGrant {
        ExtentGrant {
            device: DeviceId(3),
            extent: ExtentId([7; 16]),
            first: 100,
            last: 199,
            expires_ms: 5_000,
            tenant: "team".into(),
            networks: Vec::new(),
        }
    }

    fn read() -> GrantedRead {
        let peer = "192.0.2.7".parse().ok();
        GrantedRead { extent: ExtentId([7; 16]), range: 100..200, peer, now_ms: 4_999 }
    }

    fn networks(texts: &[&str]) -> Vec<Network> {
        texts.iter().map(|text| Network::parse(text).unwrap()).collect()
    }

    prop_compose! {
        fn any_grant()(
            device in any::<u32>(),
            extent in any::<[u8; 16]>(),
            first in any::<u64>(),
            last in any::<u64>(),
            expires_ms in any::<u64>(),
            tenant in "[a-z0-9-]{0,64}",
            bits in prop::collection::vec((any::<[u8; 4]>(), 0..=32_u8), 0..TOKEN_NETWORKS_MAX),
        ) -> ExtentGrant {
            let network = |(address, bits): (_, u8)| {
                let [a, b, c, d] = address;
                Network::parse(&format!("{a}.{b}.{c}.{d}/{bits}")).unwrap()
            };
            let networks = vec![bits.into_iter().map(network).collect()];
            let (device, extent) = (DeviceId(device), ExtentId(extent));
            ExtentGrant { device, extent, first, last, expires_ms, tenant, networks }
        }
    }

    proptest! {
        #[test]
        fn a_token_opens_to_its_grant(grant in any_grant()) {
            let token = key().seal(&grant);
            prop_assert!(token.len() <= TOKEN_CHARS_MAX);
            prop_assert!(token.bytes().all(|it| it.is_ascii_alphanumeric() || b"-_".contains(&it)));
            prop_assert_eq!(key().open(&token), Ok(grant));
        }

        #[test]
        fn no_text_is_a_token(text in ".{0,200}") {
            prop_assert_eq!(key().open(&text), Err(TokenRefusal::Invalid));
        }

        #[test]
        fn a_grant_covers_exactly_its_bytes(start in 0..300_u64, end in 0..300_u64) {
            let covered = start < end && (100..200).contains(&start) && end <= 200;
            let outcome = grant().check(&GrantedRead { range: start..end, ..read() });
            let expected = if covered { Ok(()) } else { Err(TokenRefusal::Range) };
            prop_assert_eq!(outcome, expected);
        }
    }

    #[test]
    fn each_changed_bit_is_refused() {
        let grant = ExtentGrant { networks: vec![networks(&["10.0.0.0/8"])], ..grant() };
        let token = key().seal(&grant);
        let bytes = URL_SAFE_NO_PAD.decode(&token).unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let text = URL_SAFE_NO_PAD.encode(&flipped);
            assert_eq!(key().open(&text), Err(TokenRefusal::Invalid), "bit {bit}");
        }
        for bit in 0..token.len() * 8 {
            let mut text = token.clone().into_bytes();
            text[bit / 8] ^= 1 << (bit % 8);
            // A flipped bit may make a text that isn't UTF-8, which no request can carry.
            let Ok(text) = String::from_utf8(text) else { continue };
            assert_eq!(key().open(&text), Err(TokenRefusal::Invalid), "bit {bit} of the text");
        }
        for cut in 0..token.len() {
            assert_eq!(key().open(&token[..cut]), Err(TokenRefusal::Invalid), "{cut} characters");
        }
        assert_eq!(key().open(&format!("{token}A")), Err(TokenRefusal::Invalid));
        assert_eq!(key().open(&format!("{token}=")), Err(TokenRefusal::Invalid));
        let long = "A".repeat(TOKEN_CHARS_MAX + 1);
        assert_eq!(key().open(&long), Err(TokenRefusal::Invalid));
    }

    #[test]
    fn tokens_of_other_keys_and_versions_are_refused() {
        let other = ExtentTokenKey::derive(b"Secret");
        assert_eq!(other.open(&key().seal(&grant())), Err(TokenRefusal::Invalid));
        for (version, tail) in [(VERSION + 1, &b""[..]), (VERSION, b"x")] {
            let mut bytes = postcard::to_extend(&grant(), vec![version]).unwrap();
            bytes.extend_from_slice(tail);
            let mac = key().hmac(&bytes).finalize().into_bytes();
            bytes.extend_from_slice(&mac);
            let token = URL_SAFE_NO_PAD.encode(bytes);
            assert_eq!(key().open(&token), Err(TokenRefusal::Invalid));
        }
        assert_eq!(format!("{:?}", key()), "ExtentTokenKey(…)");
    }

    #[test]
    fn a_grant_ends_and_is_for_its_extent() {
        assert_eq!(grant().check(&read()), Ok(()));
        let late = GrantedRead { now_ms: 5_000, ..read() };
        assert_eq!(grant().check(&late), Err(TokenRefusal::Expired));
        let other = GrantedRead { extent: ExtentId([8; 16]), ..read() };
        assert_eq!(grant().check(&other), Err(TokenRefusal::Extent));
    }

    #[test]
    fn a_grant_keeps_all_lists_of_networks() {
        let lists = [networks(&["192.0.2.0/24", "10.0.0.0/8"]), vec![], networks(&["192.0.0.0/8"])];
        let grant = grant().from_networks(&lists, None).unwrap();
        let from = |peer: &str| grant.check(&GrantedRead { peer: peer.parse().ok(), ..read() });
        assert_eq!(from("192.0.2.9"), Ok(()));
        assert_eq!(from("10.0.0.1"), Err(TokenRefusal::Network), "in the first list alone");
        assert_eq!(from("192.1.0.1"), Err(TokenRefusal::Network), "in the last list alone");
        let unknown = grant.check(&GrantedRead { peer: None, ..read() });
        assert_eq!(unknown, Err(TokenRefusal::Network));
    }

    #[test]
    fn too_many_networks_become_the_callers_address() {
        let many: Vec<_> = (0..=TOKEN_NETWORKS_MAX).map(|at| format!("10.{at}.0.0/16")).collect();
        let many = networks(&many.iter().map(String::as_str).collect::<Vec<_>>());
        let caller = "10.1.2.3".parse().ok();
        let restricted = grant().from_networks(std::slice::from_ref(&many), caller).unwrap();
        let from =
            |peer: &str| restricted.check(&GrantedRead { peer: peer.parse().ok(), ..read() });
        assert_eq!(from("10.1.2.3"), Ok(()));
        assert_eq!(from("10.1.2.4"), Err(TokenRefusal::Network));
        assert_eq!(grant().from_networks(&[many], None), None);
    }
}
