//! Data ports: addresses at which clients read extents in place, and the host behind each.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};

use crate::error::Error;

/// Longest URL of a data port.
const URL_CHARS_MAX: usize = 255;
/// Prefix of the text whose hash is a host's id.
const HOST_CONTEXT: &str = "martlet-host-1\n";
/// File with a random id of the running kernel.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
const HOST_ID_DIGITS: usize = 32;

/// Data port of a node. Its text form is the URL, a space and the host's id.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DataPort {
    /// `http://HOST:PORT` or `https://HOST:PORT`.
    pub url: String,
    /// Id of the host, by [`host_id`]; empty if it is not known.
    pub host_id: String,
}

impl DataPort {
    /// Checks the URL of a data port: a scheme and an authority, nothing else.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) for other texts.
    pub fn new(url: &str, host_id: &str) -> Result<Self, Error> {
        let authority = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-:[]_".contains(&byte);
        let is_right = authority.is_some_and(|text| !text.is_empty() && text.bytes().all(is_plain))
            && url.len() <= URL_CHARS_MAX;
        if !is_right {
            let message = format!("{url:?} is not a data URL: write http://HOST:PORT");
            return Err(Error::invalid(message));
        }
        Ok(Self { url: url.to_owned(), host_id: host_id.to_owned() })
    }
}

impl fmt::Display for DataPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.url, self.host_id)
    }
}

impl FromStr for DataPort {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (url, host_id) = text.split_once(' ').unwrap_or((text, ""));
        let is_id =
            host_id.len() <= HOST_ID_DIGITS && host_id.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_id {
            return Err(Error::invalid("the host id of a data port must be hexadecimal"));
        }
        Self::new(url, host_id)
    }
}

/// Returns the id of this host: equal for all processes of one running kernel, and different after
/// a reboot. None if the kernel doesn't show its boot id.
pub fn host_id() -> Option<String> {
    let boot_id = std::fs::read_to_string(BOOT_ID).ok()?;
    Some(host_id_of(boot_id.trim()))
}

fn host_id_of(boot_id: &str) -> String {
    let hash = Sha256::new().chain_update(HOST_CONTEXT).chain_update(boot_id).finalize();
    let mut digits = hex::encode(hash);
    digits.truncate(HOST_ID_DIGITS);
    digits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_written_as_they_are_read() {
        let id = "0f".repeat(16);
        for url in ["http://10.0.0.5:9002", "https://n1.example.com:9002", "http://[::1]:9002"] {
            let port = DataPort::new(url, &id).unwrap();
            assert_eq!(port.to_string().parse::<DataPort>().unwrap(), port);
            let unknown = DataPort::new(url, "").unwrap();
            assert_eq!(unknown.to_string().parse::<DataPort>().unwrap(), unknown);
        }
    }

    #[test]
    fn other_texts_are_refused() {
        let long = format!("http://{}", "a".repeat(URL_CHARS_MAX));
        for url in ["", "http://", "10.0.0.5:9002", "ftp://x", "http://x/y", "http://a b", &long] {
            assert!(DataPort::new(url, "").is_err(), "{url}");
        }
        for text in ["http://x:1 zz", "http://x:1 0f 0f", "x"] {
            assert!(text.parse::<DataPort>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_host_id_is_a_hash_of_the_boot_id() {
        // printf 'martlet-host-1\n%s' 5e6c6a3e-0c6f-4b6f-9d0a-3a1e2b9d7c10 | sha256sum
        let id = host_id_of("5e6c6a3e-0c6f-4b6f-9d0a-3a1e2b9d7c10");
        assert_eq!(id, "7bb1436faa438f717f1670516ce01dcf");
        assert_eq!(host_id(), host_id());
    }
}
