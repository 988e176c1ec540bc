//! Openings of a device, by which nodes distinguish a device from an older copy (rule G1).

use serde::{Deserialize, Serialize};

use crate::id::{DeviceId, random_bytes};

/// Permanent random name of a cluster, or of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// Returns a new random name.
    pub fn random() -> Self {
        Self(random_bytes())
    }
}

impl std::fmt::Display for Uuid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl From<Uuid> for String {
    fn from(uuid: Uuid) -> Self {
        uuid.to_string()
    }
}

impl TryFrom<String> for Uuid {
    type Error = hex::FromHexError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let mut bytes = [0; 16];
        hex::decode_to_slice(text, &mut bytes)?;
        Ok(Self(bytes))
    }
}

/// One opening of one formatting of a device, as peers remember it (rule G1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Incarnation {
    /// Identity of the formatting.
    pub device: Uuid,
    /// Rises with each opening, and with each formatting in one place.
    pub generation: u64,
    /// Random, new at each opening; zero for openings before version 2 of the format.
    pub nonce: Uuid,
}

/// An opening of a device, and its state with the device's peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpeningStatus {
    /// Device id in the rings.
    pub device: DeviceId,
    /// The opening.
    pub current: Incarnation,
    /// Opening that it follows: the device's last confirmed opening, or the opening that it
    /// replaces.
    pub base: Option<Incarnation>,
    /// True when peers confirmed it.
    pub confirmed: bool,
    /// True when the device has its votes on disk.
    pub has_votes: bool,
    /// Opening that its peers remember instead.
    pub replaced_by: Option<Incarnation>,
}
