//! Keys of one channel, derived from the cluster key and from a nonce of each side.
//!
//! ```text
//! secret  = BLAKE3 derive_key("martlet …", cluster key | nonce of the client | nonce of the node)
//! keys    = keyed BLAKE3(secret, "calls"), keyed BLAKE3(secret, "replies")
//! proof   = keyed BLAKE3(secret, "proof"), which the node sends
//! ```
//!
//! The client signs its nonce. The node proves the key by a value that depends on both nonces. So
//! neither side accepts frames of another channel, and no frame of one direction in the other.

use http::HeaderValue;
use subtle::ConstantTimeEq;

use crate::http::ClusterKey;

const CONTEXT: &str = "martlet internal channel 1, session secret";
const NONCE_BYTES: usize = 32;

/// Random number of one side, used once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http) struct Nonce([u8; NONCE_BYTES]);

/// Keys of a channel. Never printed.
pub(in crate::http) struct SessionKeys {
    /// Key of the frames to the node.
    pub(in crate::http) calls: [u8; 32],
    /// Key of the frames to the client.
    pub(in crate::http) replies: [u8; 32],
    proof: [u8; 32],
}

impl Nonce {
    /// Draws a nonce.
    ///
    /// # Panics
    /// When the system has no random bytes.
    pub(in crate::http) fn random() -> Self {
        let mut bytes = [0; NONCE_BYTES];
        getrandom::fill(&mut bytes).expect("the system has random bytes");
        Self(bytes)
    }

    /// Header of the client's request.
    pub(in crate::http) fn header(self) -> HeaderValue {
        header(&self.0)
    }

    /// Reads the header of the client's request.
    pub(in crate::http) fn of_header(value: &HeaderValue) -> Option<Self> {
        let mut bytes = [0; NONCE_BYTES];
        hex::decode_to_slice(value, &mut bytes).ok()?;
        Some(Self(bytes))
    }
}

impl SessionKeys {
    /// Derives the keys of a channel.
    pub(in crate::http) fn new(key: &ClusterKey, client: Nonce, node: Nonce) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
        key.feed(&mut hasher);
        hasher.update(&client.0).update(&node.0);
        let secret = *hasher.finalize().as_bytes();
        let derive = |purpose: &[u8]| *blake3::keyed_hash(&secret, purpose).as_bytes();
        Self { calls: derive(b"calls"), replies: derive(b"replies"), proof: derive(b"proof") }
    }

    /// Header of the node's reply: its nonce and its proof of the key.
    pub(in crate::http) fn header(&self, node: Nonce) -> HeaderValue {
        header(&[node.0, self.proof].concat())
    }

    /// Derives the keys from the header of a node's reply. None if the proof is wrong.
    pub(in crate::http) fn of_header(
        key: &ClusterKey,
        client: Nonce,
        value: &HeaderValue,
    ) -> Option<Self> {
        let mut both = [[0; NONCE_BYTES]; 2];
        hex::decode_to_slice(value, both.as_flattened_mut()).ok()?;
        let [nonce, proof] = both;
        let keys = Self::new(key, client, Nonce(nonce));
        bool::from(keys.proof.ct_eq(&proof)).then_some(keys)
    }
}

fn header(bytes: &[u8]) -> HeaderValue {
    HeaderValue::try_from(hex::encode(bytes)).expect("hexadecimal digits are a header")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(digit: char) -> ClusterKey {
        digit.to_string().repeat(64).parse().unwrap()
    }

    #[test]
    fn both_sides_derive_the_same_keys_and_no_other_pair_does() {
        let [client, node, other] = [Nonce([1; 32]), Nonce([2; 32]), Nonce([3; 32])];
        let ours = SessionKeys::new(&key('a'), client, node);
        let header = ours.header(node);
        let theirs = SessionKeys::of_header(&key('a'), client, &header).unwrap();
        assert_eq!((ours.calls, ours.replies), (theirs.calls, theirs.replies));
        assert_ne!(ours.calls, ours.replies);
        for (key, client, node) in [
            (key('b'), client, node),
            (key('a'), other, node),
            (key('a'), client, other),
            (key('a'), node, client),
        ] {
            let different = SessionKeys::new(&key, client, node);
            assert_ne!(ours.calls, different.calls);
            assert_ne!(ours.proof, different.proof);
        }
    }

    #[test]
    fn a_node_without_the_key_proves_nothing() {
        let [client, node] = [Nonce::random(), Nonce::random()];
        assert_ne!(client, node);
        let stranger = SessionKeys::new(&key('b'), client, node).header(node);
        assert!(SessionKeys::of_header(&key('a'), client, &stranger).is_none());
        let replayed = SessionKeys::new(&key('a'), Nonce::random(), node).header(node);
        assert!(SessionKeys::of_header(&key('a'), client, &replayed).is_none());
        for odd in ["", "00", "zz"] {
            let odd = HeaderValue::from_static(odd);
            assert!(SessionKeys::of_header(&key('a'), client, &odd).is_none());
            assert!(Nonce::of_header(&odd).is_none());
        }
        assert_eq!(Nonce::of_header(&client.header()), Some(client));
    }
}
