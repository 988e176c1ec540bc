//! Networks of addresses: `10.0.0.0/8`, `2001:db8::/32`, or one address.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// An IP network. Its text form is `address/bits`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

impl Network {
    /// Parses a network, or a single address as a network of one.
    pub fn parse(text: &str) -> Option<Self> {
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

    /// Returns the network of one address.
    pub fn of_address(address: IpAddr) -> Self {
        let address = address.to_canonical();
        Self { address, bits: width(address) }
    }

    /// Returns true if the network contains an address. IPv4-mapped IPv6 addresses count as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        width(address) == width(self.address)
            && shared_bits(address, self.address) >= u32::from(self.bits)
    }

    /// Returns true if S3 regards the network as public: broader than a `/8` for IPv4, or than a
    /// `/32` for IPv6.
    pub fn is_broad(&self) -> bool {
        match self.address {
            IpAddr::V4(_) => self.bits < 8,
            IpAddr::V6(_) => self.bits < 32,
        }
    }
}

impl FromStr for Network {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::parse(text).ok_or_else(|| {
            let wrong = format!(
                "{text:?} is not a network: write 10.0.0.0/8, 2001:db8::/32 or one address"
            );
            Error::invalid(wrong)
        })
    }
}

impl TryFrom<String> for Network {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl From<Network> for String {
    fn from(network: Network) -> Self {
        network.to_string()
    }
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// Number of leading bits that two addresses of one family share; zero for different families.
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
    fn malformed_networks_are_refused() {
        for text in ["", "10.0.0.0/33", "10.0.0/8", "::/129", "10.0.0.0/", "10.0.0.0/+8", "x"] {
            assert_eq!(Network::parse(text), None, "{text}");
            let refusal = text.parse::<Network>().unwrap_err().to_string();
            assert!(refusal.contains("is not a network: write"), "{refusal}");
        }
    }

    #[test]
    fn networks_are_written_as_they_are_read() {
        for text in ["10.0.0.0/8", "192.0.2.7/32", "2001:db8::/32", "::/0"] {
            let network: Network = text.parse().unwrap();
            assert_eq!(network.to_string(), text);
            let read = postcard::from_bytes(&postcard::to_stdvec(&network).unwrap());
            assert_eq!(read, Ok(network));
        }
        assert_eq!("192.0.2.7".parse::<Network>().unwrap().to_string(), "192.0.2.7/32");
    }

    #[test]
    fn broad_networks_are_the_public() {
        let broad = |text: &str| Network::parse(text).unwrap().is_broad();
        assert!(broad("0.0.0.0/0") && broad("0.0.0.0/1") && broad("::/0") && broad("2000::/31"));
        assert!(!broad("10.0.0.0/8") && !broad("203.0.113.0/24") && !broad("2001:db8::/32"));
    }
}
