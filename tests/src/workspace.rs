//! The repository's files and crates, as the structure test reads them.
//!
//! ```text
//! source text ─ tokens ─┬─ sources ─ imports ─ import_graph ─ circles
//!                       └─ declarations
//! ```
//!
//! * [`sources`]: the modules of a crate, without tests, as [`mod@tokens`].
//! * [`mod@imports`], [`import_graph`]: `use` trees, and the modules that they lead to.
//! * [`mod@circles`]: modules that import from each other.
//! * [`declarations`]: methods of types, and parameters of functions.

pub mod circles;
pub mod declarations;
pub mod import_graph;
pub mod imports;
pub mod sources;
pub mod tokens;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use self::sources::SourceFile;

/// The repository's root.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("the tests are a folder of the repository").to_owned()
}

/// Folders without source files.
const SKIPPED: [&str; 8] = [
    ".git",
    ".rocksdb",
    "target",
    "martlet-data",
    "node_modules",
    ".venv",
    "__pycache__",
    ".pytest_cache",
];

/// Returns all files below the root that satisfy `wanted`, sorted by path.
pub fn files(wanted: impl Fn(&Path) -> bool) -> Vec<PathBuf> {
    let mut found = Vec::new();
    walk(&root(), &mut |path| {
        if wanted(path) {
            found.push(path.to_owned());
        }
    });
    found.sort();
    found
}

fn walk(folder: &Path, visit: &mut impl FnMut(&Path)) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let path = entry.path();
        if entry.file_type().unwrap().is_dir() {
            if !SKIPPED.contains(&entry.file_name().to_str().unwrap_or_default()) {
                walk(&path, visit);
            }
        } else {
            visit(&path);
        }
    }
}

/// Returns all Rust files.
pub fn rust_files() -> Vec<PathBuf> {
    files(|path| path.extension().is_some_and(|extension| extension == "rs"))
}

/// Returns the source files of each crate, by the crate's folder.
pub fn crate_files() -> BTreeMap<String, Vec<SourceFile>> {
    let mut crates: BTreeMap<String, Vec<SourceFile>> = BTreeMap::new();
    for path in rust_files() {
        let name = shown(&path);
        let Some((folder, below)) = name.split_once("src/") else { continue };
        if folder.is_empty() || folder.ends_with('/') {
            let file = SourceFile::new(below, &fs::read_to_string(&path).unwrap());
            crates.entry(folder.to_owned()).or_default().push(file);
        }
    }
    crates
}

/// Path relative to the root, for messages.
pub fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

/// Direct dependencies of each crate of the workspace, without those of tests.
pub type Dependencies = BTreeMap<String, Vec<String>>;

/// Returns the crates of the workspace with their direct dependencies.
pub fn dependencies() -> Dependencies {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(cargo)
        .args(["metadata", "--locked", "--no-deps", "--format-version", "1"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    packages.iter().map(|package| (text(&package["name"]), direct(package))).collect()
}

fn direct(package: &serde_json::Value) -> Vec<String> {
    let all = package["dependencies"].as_array().unwrap();
    let built_in = all.iter().filter(|dependency| dependency["kind"] != "dev");
    built_in.map(|dependency| text(&dependency["name"])).collect()
}

fn text(value: &serde_json::Value) -> String {
    value.as_str().unwrap().to_owned()
}

/// A function of a file: its name and its lines from `fn` to the closing brace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Name of the function.
    pub name: String,
    /// Number of the first line, from 1.
    pub line: usize,
    /// Number of lines.
    pub lines: usize,
}

/// Returns the functions of a formatted source text. Each ends at the first closing brace with the
/// function's indentation.
pub fn functions(source: &str) -> Vec<Function> {
    let lines: Vec<&str> = source.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        let Some(name) = function_name(code) else { continue };
        let margin = &line[..line.len() - code.len()];
        let end = format!("{margin}}}");
        let body = lines[at..].iter().position(|line| *line == end);
        // A signature without a body, or a body on one line, ends at a semicolon or brace.
        let head = lines[at..].iter().position(|line| line.ends_with(';') || line.ends_with('}'));
        let Some(last) = body.into_iter().chain(head.filter(|head| *head == 0)).min() else {
            continue;
        };
        found.push(Function { name, line: at + 1, lines: last + 1 });
    }
    found
}

fn function_name(code: &str) -> Option<String> {
    let mut rest = code;
    for word in ["pub(crate) ", "pub(super) ", "pub ", "const ", "async ", "unsafe "] {
        rest = rest.strip_prefix(word).unwrap_or(rest);
    }
    let name = rest.strip_prefix("fn ")?;
    let end = name.find(|c: char| !c.is_alphanumeric() && c != '_')?;
    Some(name[..end].to_owned())
}

/// Number of lines of a source text before its inline tests.
pub fn production_lines(source: &str) -> usize {
    let lines: Vec<&str> = source.lines().collect();
    let inline = |at: &usize| {
        lines[*at] == "#[cfg(test)]" && lines.get(at + 1).is_some_and(|next| next.ends_with('{'))
    };
    (0..lines.len()).find(inline).unwrap_or(lines.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_found_and_measured() {
        let source = "fn one() {\n    1\n}\n\nimpl X {\n    pub(crate) async fn two(\n        &self,\n    ) {\n        if x {\n        }\n    }\n    fn three();\n}\n";
        let found: Vec<_> =
            functions(source).into_iter().map(|it| (it.name, it.line, it.lines)).collect();
        assert_eq!(found, [("one".into(), 1, 3), ("two".into(), 6, 6), ("three".into(), 12, 1)]);
    }

    #[test]
    fn inline_tests_are_no_production_lines() {
        assert_eq!(production_lines("a\nb\n#[cfg(test)]\nmod tests {\n}\n"), 2);
        assert_eq!(production_lines("a\n#[cfg(test)]\nmod tests;\n"), 3);
    }
}
