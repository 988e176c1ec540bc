//! Packets of the direct socket. `docs/WIRE.md` draws them.

use martlet_protocol::ExtentId;
use martlet_protocol::extent_token::TOKEN_CHARS_MAX;
use martlet_protocol::limits::BLOCK_BYTES;

const MAGIC: &[u8; 4] = b"MDS1";
const HEAD_BYTES: usize = 16;
/// Longest packet of a client.
pub(super) const REQUEST_BYTES_MAX: usize = HEAD_BYTES + 16 + TOKEN_CHARS_MAX;
/// Longest sentence of a refusal.
const SENTENCE_BYTES_MAX: usize = 1024;

const LEASE: u8 = 1;
const RELEASE: u8 = 2;
const GRANTED: u8 = 129;
const REFUSED: u8 = 130;
const REVOKED: u8 = 131;
const RELEASED: u8 = 132;

const READ_ONLY: u8 = 1;
const DIRECT: u8 = 2;

/// Packet of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// Requests descriptors of an extent.
    Lease {
        /// Number of the request.
        request: u64,
        /// Extent, or fragment.
        extent: ExtentId,
        /// Token, in text.
        token: String,
    },
    /// Ends a lease.
    Release {
        /// Number of the request.
        request: u64,
        /// Number of the lease.
        lease: u64,
    },
}

/// Packet of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply<'a> {
    /// Begins a lease. Two descriptors travel with the packet.
    Granted(Grant<'a>),
    /// Refuses a request.
    Refused {
        /// Number of the request.
        request: u64,
        /// Reason.
        code: RefusalCode,
        /// Reason in words.
        sentence: &'a str,
    },
    /// Announces the end of a lease.
    Revoked {
        /// Reason.
        code: RevocationCode,
        /// Number of the lease.
        lease: u64,
        /// End of the lease, in milliseconds since 1970.
        until_ms: u64,
    },
    /// Confirms the end of a lease.
    Released {
        /// Number of the request.
        request: u64,
        /// Number of the lease.
        lease: u64,
    },
}

/// Description of a lease that begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Grant<'a> {
    pub(super) request: u64,
    pub(super) lease: u64,
    /// Length of the extent.
    pub(super) length: u64,
    /// End of the lease, in milliseconds since 1970.
    pub(super) expires_ms: u64,
    pub(super) crcs: &'a [u32],
    pub(super) is_read_only: bool,
    pub(super) is_direct: bool,
}

/// Reason of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(super) enum RefusalCode {
    Malformed = 1,
    User = 2,
    Token = 3,
    Expired = 4,
    Range = 5,
    Network = 6,
    Absent = 7,
    Packed = 8,
    Parity = 9,
    Writable = 10,
    Busy = 11,
    Device = 12,
    Quarantined = 13,
    Failed = 14,
}

/// Reason for which a lease ends early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(super) enum RevocationCode {
    Expired = 1,
    Corrupt = 2,
    DeviceClosed = 3,
    Space = 4,
}

impl Request {
    /// Decodes a packet; none if it is malformed.
    pub(super) fn decode(packet: &[u8]) -> Option<Self> {
        let (head, rest) = packet.split_at_checked(HEAD_BYTES)?;
        if !head.starts_with(MAGIC) || head[5..8] != [0; 3] {
            return None;
        }
        let request = number(&head[8..])?;
        match head[4] {
            LEASE => {
                let (extent, token) = rest.split_first_chunk()?;
                let token =
                    std::str::from_utf8(token).ok().filter(|it| it.len() <= TOKEN_CHARS_MAX)?;
                Some(Self::Lease { request, extent: ExtentId(*extent), token: token.to_owned() })
            }
            RELEASE => Some(Self::Release { request, lease: number(rest)? }),
            _ => None,
        }
    }
}

/// Returns the number that is all of `bytes`.
fn number(bytes: &[u8]) -> Option<u64> {
    bytes.try_into().ok().map(u64::from_le_bytes)
}

impl Reply<'_> {
    /// Encodes the packet.
    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Granted(grant) => grant.encode(),
            Self::Refused { request, code, sentence } => {
                let end = sentence.floor_char_boundary(SENTENCE_BYTES_MAX);
                let mut packet = head(REFUSED, 0, *code as u16, *request);
                packet.extend_from_slice(&sentence.as_bytes()[..end]);
                packet
            }
            Self::Revoked { code, lease, until_ms } => {
                let mut packet = head(REVOKED, 0, *code as u16, 0);
                packet.extend_from_slice(&lease.to_le_bytes());
                packet.extend_from_slice(&until_ms.to_le_bytes());
                packet
            }
            Self::Released { request, lease } => {
                let mut packet = head(RELEASED, 0, 0, *request);
                packet.extend_from_slice(&lease.to_le_bytes());
                packet
            }
        }
    }
}

impl Grant<'_> {
    fn encode(&self) -> Vec<u8> {
        let read_only = if self.is_read_only { READ_ONLY } else { 0 };
        let direct = if self.is_direct { DIRECT } else { 0 };
        let mut packet = head(GRANTED, read_only | direct, 0, self.request);
        // A file extent begins at offset 0 of its file.
        for number in [self.lease, 0, self.length, self.expires_ms] {
            packet.extend_from_slice(&number.to_le_bytes());
        }
        let blocks = self.crcs.len() as u64;
        for number in [BLOCK_BYTES, blocks] {
            let number = u32::try_from(number).expect("an extent has few blocks");
            packet.extend_from_slice(&number.to_le_bytes());
        }
        packet.extend(self.crcs.iter().flat_map(|crc| crc.to_le_bytes()));
        packet
    }
}

fn head(kind: u8, flags: u8, code: u16, request: u64) -> Vec<u8> {
    let mut packet = MAGIC.to_vec();
    packet.extend_from_slice(&[kind, flags]);
    packet.extend_from_slice(&code.to_le_bytes());
    packet.extend_from_slice(&request.to_le_bytes());
    packet
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lease(token: &str) -> Vec<u8> {
        let mut packet = head(LEASE, 0, 0, 7);
        packet.extend_from_slice(&[9; 16]);
        packet.extend_from_slice(token.as_bytes());
        packet
    }

    #[test]
    fn requests_are_decoded_to_their_last_byte() {
        let token = "t".repeat(TOKEN_CHARS_MAX);
        let extent = ExtentId([9; 16]);
        let decoded = Request::decode(&lease(&token));
        assert_eq!(decoded, Some(Request::Lease { request: 7, extent, token: token.clone() }));
        assert_eq!(lease(&token).len(), REQUEST_BYTES_MAX);
        assert_eq!(Request::decode(&lease(&format!("{token}t"))), None);
        let mut release = head(RELEASE, 0, 0, 1);
        release.extend_from_slice(&5_u64.to_le_bytes());
        let decoded = Request::decode(&release);
        assert_eq!(decoded, Some(Request::Release { request: 1, lease: 5 }));
        release.push(0);
        assert_eq!(Request::decode(&release), None);
    }

    #[test]
    fn other_packets_are_malformed() {
        let good = lease("t");
        for (at, byte) in [(0, b'X'), (3, b'2'), (4, 3), (4, GRANTED), (5, 1), (6, 1), (7, 1)] {
            let mut packet = good.clone();
            packet[at] = byte;
            assert_eq!(Request::decode(&packet), None, "byte {at}");
        }
        for end in 0..32 {
            assert_eq!(Request::decode(&good[..end]), None, "{end} bytes");
        }
        let mut not_text = good;
        not_text.push(0xff);
        assert_eq!(Request::decode(&not_text), None);
    }

    #[test]
    fn replies_have_the_layout_that_is_drawn() {
        let grant = Grant {
            request: 0x0102,
            lease: 3,
            length: 65_537,
            expires_ms: 4,
            crcs: &[0xa1a2_a3a4, 5],
            is_read_only: true,
            is_direct: false,
        };
        let packet = Reply::Granted(grant).encode();
        assert_eq!(&packet[..16], b"MDS1\x81\x01\0\0\x02\x01\0\0\0\0\0\0");
        assert_eq!(number(&packet[16..24]), Some(3));
        assert_eq!(number(&packet[24..32]), Some(0));
        assert_eq!(number(&packet[32..40]), Some(65_537));
        assert_eq!(number(&packet[40..48]), Some(4));
        assert_eq!(&packet[48..56], b"\0\0\x01\0\x02\0\0\0");
        assert_eq!(&packet[56..], b"\xa4\xa3\xa2\xa1\x05\0\0\0");
        let refused = Reply::Refused { request: 1, code: RefusalCode::Failed, sentence: "no" };
        assert_eq!(refused.encode(), b"MDS1\x82\0\x0e\0\x01\0\0\0\0\0\0\0no");
        let revoked = Reply::Revoked { code: RevocationCode::Space, lease: 2, until_ms: 3 };
        let bytes = b"MDS1\x83\0\x04\0\0\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0";
        assert_eq!(revoked.encode(), bytes);
        let released = Reply::Released { request: 1, lease: 2 };
        assert_eq!(released.encode(), b"MDS1\x84\0\0\0\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0");
        let long = "ä".repeat(SENTENCE_BYTES_MAX);
        let refused = Reply::Refused { request: 1, code: RefusalCode::Busy, sentence: &long };
        assert_eq!(refused.encode().len(), HEAD_BYTES + SENTENCE_BYTES_MAX);
    }

    proptest! {
        #[test]
        fn any_bytes_are_decoded_without_a_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..80),
        ) {
            let mut packet = MAGIC.to_vec();
            packet.extend_from_slice(&bytes);
            let _ = Request::decode(&bytes);
            let _ = Request::decode(&packet);
        }
    }
}
