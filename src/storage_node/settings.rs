//! Settings of a storage node.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use martlet_membership::{MemberArgs, MemberSettings};
use martlet_serving::settings::{CommonArgs, CommonSettings, MergedSettings};
use martlet_serving::{Failure, Size};
use serde::{Deserialize, Deserializer, Serialize};

use crate::process::data_port::{DataPortArgs, DataPortSettings};
use crate::process::direct::{DirectArgs, DirectSettings};
use crate::process::memory;

/// Default folder for rings and peers.
pub(crate) const DATA_DIR: &str = "martlet-storage-node";
/// Default port of the admin address.
pub(crate) const ADMIN_PORT: u16 = 6201;

const AFTER_HELP: &str = "\
Every setting can also come from the environment (MARTLET_NAME, MARTLET_INTERNAL_ADDRESS, …) or \
from a TOML file; flags override the environment, which overrides the file. A file for a node with \
two disks:

  name = \"n1\"
  data_dir = \"/var/lib/martlet/n1\"
  internal_address = \"10.0.0.1:6200\"
  cluster_key_file = \"/etc/martlet/cluster.key\"
  rings = [\"/etc/martlet/index.ring\", \"/etc/martlet/data-0.ring\"]
  [devices]
  sdb = \"/mnt/sdb\"
  sdc = \"/mnt/sdc\"

Examples:
  martlet storage-node --config /etc/martlet/n1.toml
  martlet storage-node --name n1 --device sdb=/mnt/sdb --ring index.ring --ring data-0.ring \\
      --cluster-key-file cluster.key";

/// Flags of `martlet storage-node`.
#[derive(Args, Clone, Debug, Default, Serialize)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct StorageNodeArgs {
    #[command(flatten)]
    #[serde(flatten)]
    member: MemberArgs,
    #[command(flatten)]
    #[serde(flatten)]
    devices: DeviceArgs,
    /// Maximum number of concurrent calls of other members, of each kind [default: 1024]
    #[arg(long, value_name = "NUMBER", hide_short_help = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    max_requests: Option<usize>,
    #[command(flatten)]
    #[serde(flatten)]
    direct: DirectArgs,
    #[command(flatten)]
    #[serde(flatten)]
    data_port: DataPortArgs,
    #[command(flatten)]
    #[serde(flatten)]
    common: CommonArgs,
}

/// Flags for the devices of a storage node.
#[derive(Args, Clone, Debug, Default, Serialize)]
pub(crate) struct DeviceArgs {
    /// Address for other members of the cluster [default: 127.0.0.1:6200]
    #[arg(long, value_name = "HOST:PORT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    internal_address: Option<SocketAddr>,
    /// Device: its name in the rings and its folder; repeatable
    #[arg(long = "device", value_name = "NAME=DIR")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    devices: Vec<String>,
    /// Space of each device for deletes and the index [default: min(max(2 %, 2 GiB), 10 %)]
    #[arg(long, value_name = "SIZE", hide_short_help = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    reserve: Option<String>,
    /// Memory for the devices' indexes and for bodies [default: a quarter of the machine's]
    #[arg(long, value_name = "SIZE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<String>,
}

/// Settings of a storage node.
#[derive(Clone, Debug, Deserialize)]
#[serde(default)]
pub(crate) struct StorageNodeSettings {
    /// Address of the internal port, for other members.
    pub(super) internal_address: SocketAddr,
    /// Folders of the devices, by their names in the rings.
    #[serde(deserialize_with = "devices")]
    pub(super) devices: BTreeMap<String, PathBuf>,
    /// Bytes of each device that are reserved for deletes and the index. Default: the storage
    /// node's.
    pub(super) reserve: Option<Size>,
    /// Memory for the indexes of the devices and for bodies. Default: a quarter of the machine's.
    pub(super) memory: Option<Size>,
    /// Maximum number of concurrent index calls of other members, and also of concurrent extent
    /// streams. Further requests are refused with a hint to retry.
    pub(super) max_requests: usize,
    /// Settings of the data port.
    #[serde(skip)]
    pub(super) data_port: DataPortSettings,
    #[serde(skip)]
    pub(super) direct: DirectSettings,
    #[serde(skip)]
    pub(crate) member: MemberSettings,
    #[serde(skip)]
    pub(super) common: CommonSettings,
}

impl Default for StorageNodeSettings {
    fn default() -> Self {
        Self {
            internal_address: SocketAddr::from(([127, 0, 0, 1], 6200)),
            devices: BTreeMap::new(),
            reserve: None,
            memory: None,
            max_requests: 1024,
            direct: DirectSettings::default(),
            data_port: DataPortSettings::default(),
            member: MemberSettings::default(),
            common: CommonSettings::default(),
        }
    }
}

const NAMES: [&str; 5] = ["internal_address", "devices", "reserve", "memory", "max_requests"];

impl StorageNodeSettings {
    /// Returns the names of all settings of a storage node besides the common ones.
    pub(crate) fn names() -> Vec<&'static str> {
        let parts =
            [&NAMES[..], &DataPortSettings::NAMES, &DirectSettings::NAMES, &MemberSettings::NAMES];
        parts.concat()
    }

    /// Loads the settings of a start with these flags, and checks them.
    pub(super) fn load(args: &StorageNodeArgs) -> Result<Self, Failure> {
        Self::of(&MergedSettings::at_start(&Self::names(), args, args.common.config.as_deref())?)
    }

    /// Extracts the settings and checks them.
    pub(crate) fn of(merged: &MergedSettings) -> Result<Self, Failure> {
        let settings = Self {
            direct: merged.extract()?,
            data_port: merged.extract()?,
            member: merged.extract()?,
            common: merged.common()?,
            ..merged.extract()?
        };
        settings.common.check()?;
        settings.direct.check()?;
        settings.data_port.check()?;
        memory::check(settings.memory)?;
        if settings.max_requests == 0 {
            return Err(Failure::usage("max_requests must be at least 1"));
        }
        if settings.devices.is_empty() {
            return Err(Failure::usage(
                "no device is given: name each with its name in the rings and its folder, as in \
                 --device sdb=/mnt/sdb",
            ));
        }
        Ok(settings)
    }
}

/// Deserializes a table of names and folders, or a text or list of `NAME=DIR`.
fn devices<'de, D: Deserializer<'de>>(d: D) -> Result<BTreeMap<String, PathBuf>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum DevicesForm {
        Table(BTreeMap<String, PathBuf>),
        Text(String),
        List(Vec<String>),
    }
    let items = match DevicesForm::deserialize(d)? {
        DevicesForm::Table(devices) => return Ok(devices),
        DevicesForm::Text(text) => text.split(',').map(|item| item.trim().to_owned()).collect(),
        DevicesForm::List(items) => items,
    };
    let mut devices = BTreeMap::new();
    for item in items.iter().filter(|item| !item.is_empty()) {
        let parts = item.split_once('=').filter(|(name, dir)| !name.is_empty() && !dir.is_empty());
        let (name, dir) = parts.ok_or_else(|| {
            serde::de::Error::custom(format!("\"{item}\" must be NAME=DIR, as in sdb=/mnt/sdb"))
        })?;
        if devices.insert(name.to_owned(), PathBuf::from(dir)).is_some() {
            let twice = format!("the device {name} is given twice");
            return Err(serde::de::Error::custom(twice));
        }
    }
    Ok(devices)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(
        args: &StorageNodeArgs,
        variable: Option<&str>,
        file: &str,
    ) -> Result<StorageNodeSettings, Failure> {
        let environment =
            |name: &str| variable.filter(|_| name == "MARTLET_DEVICES").map(str::to_owned);
        StorageNodeSettings::of(&MergedSettings::gather(
            &StorageNodeSettings::names(),
            args,
            environment,
            Some(file),
        )?)
    }

    #[test]
    fn devices_are_read_in_all_their_forms() {
        let wanted = BTreeMap::from([("a".to_owned(), "/x".into()), ("b".to_owned(), "/y".into())]);
        let none = StorageNodeArgs::default();
        let devices =
            DeviceArgs { devices: vec!["a=/x".into(), "b=/y".into()], ..DeviceArgs::default() };
        let flags = StorageNodeArgs { devices, ..none.clone() };
        let table = "name = 'n'\n[devices]\na = '/x'\nb = '/y'";
        assert_eq!(settings(&none, None, table).unwrap().devices, wanted);
        assert_eq!(settings(&none, Some("a=/x, b=/y"), "").unwrap().devices, wanted);
        assert_eq!(settings(&flags, Some("c=/z"), "[devices]\nd = '/z'").unwrap().devices, wanted);
    }

    #[test]
    fn mistakes_are_refused() {
        let refusal =
            |file: &str| settings(&StorageNodeArgs::default(), None, file).unwrap_err().to_string();
        assert!(refusal("").contains("--device sdb=/mnt/sdb"));
        assert!(refusal("devices = 'sdb'").contains("NAME=DIR"));
        assert!(refusal("devices = 'a=/x,a=/y'").contains("twice"));
        assert!(refusal("port = 1").contains("internal_address"));
        assert!(refusal("max_requests = 0\ndevices = 'a=/x'").contains("max_requests"));
    }
}
