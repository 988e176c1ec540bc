//! Embeds the built pages of `web/dist`, if `make console` has made them.

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

fn main() {
    let folder = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let out = PathBuf::from(std::env::var("OUT_DIR").expect("cargo sets it"));
    let dist = format!("{folder}/web/dist");
    // The tree has the folder, because cargo takes a missing one for changed at each build.
    println!("cargo::rerun-if-changed={dist}");
    println!("cargo::rerun-if-changed=build.rs");
    let mut names: Vec<String> = fs::read_dir(&dist)
        .map(|entries| {
            let names = entries.flatten().map(|entry| entry.file_name());
            names.filter_map(|name| name.into_string().ok()).collect()
        })
        .unwrap_or_default();
    names.sort();
    let mut text = String::from("&[\n");
    for name in names.iter().filter(|name| names.contains(&format!("{name}.gz"))) {
        let (plain, packed) = (format!("{dist}/{name}"), format!("{dist}/{name}.gz"));
        let _ = writeln!(
            text,
            "    Asset {{ name: {name:?}, plain: include_bytes!({plain:?}), packed: \
             include_bytes!({packed:?}) }},"
        );
    }
    text.push(']');
    fs::write(out.join("assets.rs"), text).expect("the folder of the build can be written");
}
