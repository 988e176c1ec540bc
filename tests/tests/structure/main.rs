//! Structure of the repository: dependencies between crates, size of files and functions, lints.
#![allow(clippy::unwrap_used, reason = "all of this runs within tests")]

mod mutants;
mod prose;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use martlet_tests::workspace::circles::circles;
use martlet_tests::workspace::declarations::{inherent_methods, tuple_parameters};
use martlet_tests::workspace::import_graph::ImportGraph;
use martlet_tests::workspace::sources::modules;
use martlet_tests::workspace::tokens::tokens;
use martlet_tests::workspace::{
    self, Function, crate_files, dependencies, files, functions, production_lines, rust_files,
    shown,
};

/// Crate, the workspace crates that it may depend on, and packages that it must not depend on.
const MAY: [(&str, &[&str], &[&str]); 23] = [
    ("martlet-protocol", &[], &["rocksdb"]),
    (
        "martlet-ring",
        &["martlet-protocol"],
        &["tokio", "futures", "async-trait", "hyper", "socket2"],
    ),
    ("martlet-erasure", &["martlet-protocol"], &["tokio", "futures", "async-trait"]),
    (
        "martlet-topology",
        &["martlet-protocol", "martlet-ring"],
        &["tokio", "futures", "async-trait", "hyper"],
    ),
    (
        "martlet-ring-steps",
        &[
            "martlet-protocol",
            "martlet-ring",
            "martlet-topology",
            "martlet-admin-api",
            "martlet-serving",
        ],
        &["rocksdb", "s3s", "axum", "clap", "tokio"],
    ),
    ("martlet-storage-node", &["martlet-protocol"], &["hyper", "s3s"]),
    (
        "martlet-proxy",
        &["martlet-protocol", "martlet-ring", "martlet-erasure", "martlet-topology"],
        &["rocksdb", "s3s", "hyper"],
    ),
    ("martlet-s3compat", &["martlet-protocol", "martlet-proxy"], &["rocksdb"]),
    (
        "martlet-replicator",
        &["martlet-protocol", "martlet-ring", "martlet-erasure", "martlet-topology"],
        &["rocksdb", "s3s"],
    ),
    ("martlet-admin-api", &["martlet-protocol"], &["tokio", "hyper", "axum", "clap"]),
    (
        "martlet-serving",
        &["martlet-protocol", "martlet-admin-api", "martlet-heap-profile"],
        &["rocksdb", "s3s"],
    ),
    // Its hooks run within each allocation: nothing else is in it.
    ("martlet-heap-profile", &[], &["tokio", "parking_lot", "tracing", "mimalloc", "serde"]),
    (
        "martlet-membership",
        &[
            "martlet-protocol",
            "martlet-ring",
            "martlet-topology",
            "martlet-admin-api",
            "martlet-serving",
        ],
        &["rocksdb", "s3s"],
    ),
    (
        "martlet-deploy",
        &[
            "martlet-protocol",
            "martlet-ring",
            "martlet-admin-api",
            "martlet-serving",
            "martlet-membership",
        ],
        &["rocksdb", "s3s", "axum", "clap"],
    ),
    (
        "martlet-doctor",
        &[
            "martlet-protocol",
            "martlet-ring",
            "martlet-storage-node",
            "martlet-admin-api",
            "martlet-serving",
            "martlet-membership",
        ],
        &["s3s", "axum", "clap"],
    ),
    (
        "martlet-importer",
        &["martlet-protocol", "martlet-serving"],
        &["rocksdb", "s3s", "axum", "clap"],
    ),
    (
        "martlet-notifications",
        &["martlet-protocol", "martlet-proxy", "martlet-s3compat", "martlet-serving"],
        &["rocksdb", "s3s", "axum"],
    ),
    (
        "martlet-data-port",
        &["martlet-protocol", "martlet-storage-node", "martlet-serving", "martlet-admin-api"],
        &["s3s", "axum"],
    ),
    (
        "martlet-admin-server",
        &[
            "martlet-membership",
            "martlet-protocol",
            "martlet-ring",
            "martlet-ring-steps",
            "martlet-topology",
            "martlet-proxy",
            "martlet-s3compat",
            "martlet-replicator",
            "martlet-admin-api",
            "martlet-serving",
        ],
        &["rocksdb", "s3s", "hyper"],
    ),
    (
        "martlet-console",
        &["martlet-protocol", "martlet-admin-api", "martlet-oidc", "martlet-serving"],
        &["rocksdb", "s3s", "hyper"],
    ),
    ("martlet-oidc", &["martlet-protocol"], &["rocksdb", "s3s", "axum", "clap"]),
    ("martlet-top", &["martlet-admin-api"], &["tokio", "hyper", "axum", "clap", "rocksdb", "s3s"]),
    (
        "martlet-scale-model",
        &["martlet-protocol", "martlet-ring"],
        &["tokio", "futures", "async-trait", "rocksdb"],
    ),
];
/// Manifest of the crate that wraps the allocator.
const ALLOCATOR: &str = "heap-profile/Cargo.toml";
/// The binary, the tests and programs that measure may depend on all crates.
const FREE: [&str; 5] =
    ["martlet", "martlet-tests", "martlet-instructions", "martlet-port-floor", "martlet-scale"];

const PRODUCTION_LINES_MAX: usize = 500;
const TEST_LINES_MAX: usize = 500;
const FUNCTION_LINES_MAX: usize = 70;
const COMFORTABLE_LINES: usize = 25;
/// Minimum share of functions of at most `COMFORTABLE_LINES` lines.
const COMFORTABLE_PERCENT_MIN: usize = 90;
/// Maximum number of files that import from each other.
const CIRCLE_FILES_MAX: usize = 2;
/// Maximum number of methods of a type in the object layer, without those of traits.
const PROXY_METHODS_MAX: usize = 26;
/// As above, in the other crates.
const METHODS_MAX: usize = 54;
/// Type with a method for each operation of S3.
const OPERATIONS: &str = "Operations";
/// Maximum number of functions with tuples as parameters, in 1,000 functions.
const TUPLES_PER_1000_MAX: usize = 2;

#[test]
fn crates_depend_on_each_other_as_drawn() {
    let found = dependencies();
    let rules: BTreeMap<_, _> =
        MAY.iter().map(|(name, may, never)| (*name, (may, never))).collect();
    for (name, dependencies) in &found {
        if FREE.contains(&name.as_str()) {
            continue;
        }
        let (may, never) =
            rules.get(name.as_str()).unwrap_or_else(|| panic!("{name} is not drawn"));
        for dependency in dependencies {
            let drawn = !dependency.starts_with("martlet") || may.contains(&dependency.as_str());
            assert!(drawn, "{name} must not depend on {dependency}");
            assert!(
                !never.contains(&dependency.as_str()),
                "{name} must not depend on {dependency}"
            );
        }
    }
    assert!(found.len() >= 18, "the workspace lost a crate: {:?}", found.keys());
}

#[test]
fn every_crate_takes_the_lints_of_the_workspace() {
    let root = manifest(&workspace::root().join("Cargo.toml"));
    let rust = &root["workspace"]["lints"]["rust"];
    for (lint, level) in
        [("missing_docs", "warn"), ("unreachable_pub", "warn"), ("unsafe_code", "forbid")]
    {
        assert_eq!(rust[lint].as_str(), Some(level), "{lint}");
    }
    let clippy = &root["workspace"]["lints"]["clippy"];
    assert_eq!(clippy["pedantic"]["level"].as_str(), Some("warn"));
    assert_eq!(clippy["unwrap_used"].as_str(), Some("warn"));
    for path in files(|path| path.ends_with("Cargo.toml")) {
        if shown(&path) == ALLOCATOR {
            continue;
        }
        let takes = manifest(&path)["lints"]["workspace"].as_bool();
        assert_eq!(takes, Some(true), "{} does not take them", shown(&path));
    }
}

/// The one crate that may have `unsafe` code: its lints are those of the workspace otherwise, and each block
/// needs a comment.
#[test]
fn the_allocator_alone_has_unsafe_code() {
    let root = manifest(&workspace::root().join("Cargo.toml"));
    let mut expected = root["workspace"]["lints"].as_table().unwrap().clone();
    expected.remove("rustdoc");
    expected["rust"]["unsafe_code"] = "deny".into();
    let clippy = expected["clippy"].as_table_mut().unwrap();
    clippy.insert("undocumented_unsafe_blocks".to_owned(), "deny".into());
    let found = manifest(&workspace::root().join(ALLOCATOR));
    assert_eq!(found["lints"].as_table().unwrap(), &expected);
}

fn manifest(path: &Path) -> toml::Table {
    fs::read_to_string(path).unwrap().parse().unwrap()
}

#[test]
fn every_file_opens_with_what_it_is_for() {
    for path in rust_files() {
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("//! "), "{} does not open with `//!`", shown(&path));
    }
}

#[test]
fn files_have_one_subject_each() {
    for path in rust_files() {
        let text = fs::read_to_string(&path).unwrap();
        let (all, production) = (text.lines().count(), production_lines(&text));
        let max = if is_test(&path) { TEST_LINES_MAX } else { PRODUCTION_LINES_MAX };
        assert!(production <= max, "{} has {production} lines, {max} at most", shown(&path));
        let tests = all - production;
        assert!(tests <= 200, "{} has {tests} lines of tests: give them a file", shown(&path));
    }
}

fn is_test(path: &Path) -> bool {
    let name = shown(path);
    name.ends_with("tests.rs") || name.contains("/tests/") || name.starts_with("tests/")
}

#[test]
fn functions_are_short() {
    let mut all: Vec<(String, Function)> = Vec::new();
    for path in rust_files() {
        let text = fs::read_to_string(&path).unwrap();
        all.extend(functions(&text).into_iter().map(|function| (shown(&path), function)));
    }
    assert!(all.len() > 1000, "only {} functions were found", all.len());
    for (path, Function { name, line, lines }) in &all {
        assert!(*lines <= FUNCTION_LINES_MAX, "{path}:{line}: {name} has {lines} lines");
    }
    let comfortable = all.iter().filter(|(_, it)| it.lines <= COMFORTABLE_LINES).count();
    let percent = comfortable * 100 / all.len();
    assert!(percent >= COMFORTABLE_PERCENT_MIN, "only {percent} % have {COMFORTABLE_LINES} lines");
}

#[test]
fn files_do_not_import_in_circles() {
    let mut found = Vec::new();
    for (folder, files) in crate_files() {
        let modules = modules(&files);
        let graph = ImportGraph::new(&modules);
        let edges = graph.edges();
        let large = circles(&edges).into_iter().filter(|it| it.len() > CIRCLE_FILES_MAX);
        found.extend(large.map(|circle| {
            let names: Vec<String> = circle.iter().map(|module| module.join("::")).collect();
            format!("{folder}src: {}", names.join(", "))
        }));
    }
    assert!(found.is_empty(), "files import from each other:\n{}", found.join("\n"));
}

/// Types of one crate count as one if they share a name.
#[test]
fn types_have_few_methods() {
    let mut found = Vec::new();
    for (folder, files) in crate_files() {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for tokens in modules(&files).values() {
            for (name, methods) in inherent_methods(tokens) {
                *counts.entry(name).or_default() += methods;
            }
        }
        let max = if folder == "proxy/" { PROXY_METHODS_MAX } else { METHODS_MAX };
        let large =
            counts.into_iter().filter(|(name, methods)| name != OPERATIONS && *methods > max);
        found.extend(large.map(|(name, methods)| format!("{folder}src: {name} has {methods}")));
    }
    assert!(found.is_empty(), "too many methods:\n{}", found.join("\n"));
}

#[test]
fn functions_name_their_parameters() {
    let (mut all, mut found) = (0, Vec::new());
    for path in rust_files() {
        let text = fs::read_to_string(&path).unwrap();
        for function in tuple_parameters(&tokens(&text)) {
            all += 1;
            if function.count > 0 {
                found.push(format!("{}:{}: {}", shown(&path), function.line, function.function));
            }
        }
    }
    let share_is_small = found.len() * 1000 <= TUPLES_PER_1000_MAX * all;
    assert!(share_is_small, "tuples as parameters, in {all} functions:\n{}", found.join("\n"));
}
