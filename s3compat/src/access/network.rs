//! Networks of addresses: `10.0.0.0/8`, `2001:db8::/32`, or one address.

use std::net::IpAddr;

/// A network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Network {
    address: IpAddr,
    bits: u8,
}

impl Network {
    /// Reads a network, or an address that is one by itself.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (address, bits) = match text.split_once('/') {
            None => (text, None),
            Some((address, bits)) => (address, Some(bits)),
        };
        let address: IpAddr = address.parse().ok()?;
        let most = width(address);
        let bits = match bits {
            None => most,
            Some(bits) if bits.bytes().all(|byte| byte.is_ascii_digit()) => bits.parse().ok()?,
            Some(_) => return None,
        };
        (bits <= most).then_some(Self { address, bits })
    }

    /// Whether an address is in it. One that is an older address in newer clothes is the older.
    pub(super) fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        width(address) == width(self.address)
            && shared_bits(address, self.address) >= u32::from(self.bits)
    }

    /// Whether it takes in so much of the world that S3 calls it public: more than a `/8`, or of
    /// the newer addresses more than a `/32`.
    pub(super) fn is_broad(&self) -> bool {
        match self.address {
            IpAddr::V4(_) => self.bits < 8,
            IpAddr::V6(_) => self.bits < 32,
        }
    }
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// The bits that two addresses of one family begin with together.
fn shared_bits(one: IpAddr, other: IpAddr) -> u32 {
    match (one, other) {
        (IpAddr::V4(one), IpAddr::V4(other)) => (one.to_bits() ^ other.to_bits()).leading_zeros(),
        (IpAddr::V6(one), IpAddr::V6(other)) => (one.to_bits() ^ other.to_bits()).leading_zeros(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contains(network: &str, address: &str) -> bool {
        Network::parse(network).unwrap().contains(address.parse().unwrap())
    }

    #[test]
    fn networks_hold_their_addresses() {
        assert!(contains("10.0.0.0/8", "10.255.0.1") && !contains("10.0.0.0/8", "11.0.0.1"));
        assert!(contains("10.1.2.3/24", "10.1.2.200"));
        assert!(contains("0.0.0.0/0", "203.0.113.9") && !contains("0.0.0.0/0", "::1"));
        assert!(contains("192.0.2.7", "192.0.2.7") && !contains("192.0.2.7", "192.0.2.8"));
        assert!(contains("10.0.0.0/8", "::ffff:10.0.0.1"));
        assert!(contains("2001:db8::/32", "2001:db8:1::5"));
        assert!(!contains("2001:db8::/32", "2001:db9::5"));
    }

    #[test]
    fn what_is_none_is_refused() {
        for text in ["", "10.0.0.0/33", "10.0.0/8", "::/129", "10.0.0.0/", "10.0.0.0/+8", "x"] {
            assert_eq!(Network::parse(text), None, "{text}");
        }
    }

    #[test]
    fn broad_networks_are_the_public() {
        let broad = |text: &str| Network::parse(text).unwrap().is_broad();
        assert!(broad("0.0.0.0/0") && broad("0.0.0.0/1") && broad("::/0") && broad("2000::/31"));
        assert!(!broad("10.0.0.0/8") && !broad("203.0.113.0/24") && !broad("2001:db8::/32"));
    }
}
