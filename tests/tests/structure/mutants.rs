//! Lists of mutants: each planted bug still applies, and each survivor still names a file.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use martlet_tests::workspace;

/// Least number of mutants of each kind.
const OF_KIND_MIN: usize = 5;
/// Kinds of planted mutants: files in `tests/mutants/planted`.
const KINDS: [&str; 8] =
    ["erasure", "fences", "fixes", "interleavings", "quorum", "recovery", "rings", "versions"];

fn folder() -> PathBuf {
    workspace::root().join("tests/mutants")
}

fn table(path: &Path) -> toml::Table {
    let text = fs::read_to_string(path).unwrap();
    text.parse().unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn text<'a>(table: &'a toml::Value, field: &str) -> &'a str {
    table.get(field).and_then(toml::Value::as_str).unwrap_or_else(|| panic!("{field} of {table}"))
}

/// Mutants by kind.
fn planted() -> BTreeMap<String, Vec<toml::Value>> {
    let files = fs::read_dir(folder().join("planted")).unwrap().map(|file| file.unwrap().path());
    files
        .map(|path| {
            let kind = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let mutants = table(&path)["mutant"].as_array().unwrap().clone();
            (kind, mutants)
        })
        .collect()
}

#[test]
fn each_planted_mutant_applies() {
    for (kind, mutants) in planted() {
        for mutant in mutants {
            let (name, file) = (text(&mutant, "name"), text(&mutant, "file"));
            let code = fs::read_to_string(workspace::root().join(file)).unwrap_or_default();
            let times = code.matches(text(&mutant, "before")).count();
            assert_eq!(
                times, 1,
                "{name} no longer applies: {file} has its text {times} times. Write the mutant anew \
                 for the present code in tests/mutants/planted/{kind}.toml, or remove it if the code \
                 that it breaks is gone."
            );
            assert_ne!(text(&mutant, "before"), text(&mutant, "after"), "{name} changes nothing");
        }
    }
}

#[test]
fn each_kind_has_mutants_and_each_mutant_a_name_and_a_check() {
    let all = planted();
    assert_eq!(all.keys().map(String::as_str).collect::<Vec<_>>(), KINDS);
    let rules = fs::read_to_string(workspace::root().join("docs/INVARIANTS.md")).unwrap();
    let mut names = BTreeSet::new();
    for (kind, mutants) in &all {
        assert!(mutants.len() >= OF_KIND_MIN, "only {} mutants of {kind}", mutants.len());
        for mutant in mutants {
            let name = text(mutant, "name");
            assert!(names.insert(name), "two mutants have the name {name}");
            let rule = format!("**{}.**", text(mutant, "rule"));
            assert!(rules.contains(&rule), "{name} breaks {rule}, which is no rule");
            let check: Vec<&str> = text(mutant, "found_by").split(' ').collect();
            let is_known = match check[..] {
                ["unit" | "interleavings", package, _, ..] | ["power-cuts", package] => {
                    let crate_folder = package.strip_prefix("martlet-").unwrap_or_default();
                    workspace::root().join(crate_folder).join("Cargo.toml").is_file()
                }
                ["simulation", "objects" | "sets", seeds] => seeds.parse::<u64>().is_ok(),
                _ => false,
            };
            assert!(is_known, "{name} has no check that exists: {check:?}");
        }
    }
}

#[test]
fn each_survivor_has_a_file_and_a_reason() {
    let survivors = table(&folder().join("survivors.toml"));
    let listed = survivors.get("survivor").and_then(toml::Value::as_array);
    for survivor in listed.into_iter().flatten() {
        let (file, change) = (text(survivor, "file"), text(survivor, "change"));
        assert!(workspace::root().join(file).is_file(), "{file} is gone: {change}");
        assert!(text(survivor, "reason").len() >= 20, "{file}: {change} needs a reason");
    }
    let settings = table(&workspace::root().join(".cargo/mutants.toml"));
    for file in settings["examine_globs"].as_array().unwrap() {
        let file = file.as_str().unwrap();
        assert!(workspace::root().join(file).is_file(), "{file} in .cargo/mutants.toml is gone");
    }
}
