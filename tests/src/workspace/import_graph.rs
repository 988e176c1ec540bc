//! Import graph of a crate: the modules of its files, and the modules that each file imports from.
//!
//! * A path is followed through re-exports and other imports to the file that defines its item.
//! * The root module assembles the crate, so its own imports don't count.

use std::collections::{BTreeMap, BTreeSet};

use super::imports::{Import, imports};
use super::sources::{ModulePath, ModuleTokens};

/// Maximum number of imports between a path and the item that the path names.
const HOPS_MAX: usize = 16;

/// Imports of each module of a crate.
#[derive(Debug, Default)]
pub struct ImportGraph {
    modules: BTreeMap<ModulePath, Vec<Import>>,
}

/// Outcome of one segment of a path.
enum Segment {
    /// The segment names a module, or leads to one by an import.
    Module(ModulePath),
    /// The segment names an item of the module.
    Item,
    /// The segment leads to another crate.
    Foreign,
}

impl ImportGraph {
    /// Reads the imports of a crate's modules.
    pub fn new(modules: &ModuleTokens<'_>) -> Self {
        let read = modules.iter().map(|(path, tokens)| (path.clone(), imports(tokens)));
        Self { modules: read.collect() }
    }

    /// Returns each module with the modules that it imports from.
    pub fn edges(&self) -> BTreeMap<&ModulePath, BTreeSet<ModulePath>> {
        let edges = |(path, imports): (_, &Vec<Import>)| (path, self.targets(path, imports));
        self.modules.iter().map(edges).collect()
    }

    fn targets(&self, module: &[String], imports: &[Import]) -> BTreeSet<ModulePath> {
        if module.is_empty() {
            return BTreeSet::new();
        }
        let found = imports.iter().filter_map(|import| self.target(module, import, HOPS_MAX));
        found.filter(|target| target.as_slice() != module).collect()
    }

    /// Returns the module whose item an import of `module` names; `None` for another crate's.
    fn target(&self, module: &[String], import: &Import, hops: usize) -> Option<ModulePath> {
        let mut at = [module, import.within.as_slice()].concat();
        let mut segments = import.path.iter().map(String::as_str).peekable();
        match segments.peek().copied() {
            Some("crate") => at.clear(),
            Some("self" | "super") => {}
            // Other paths begin with a name in the scope of the import.
            _ => match self.segment(&at, import, segments.next()?, hops) {
                Segment::Module(next) => at = next,
                Segment::Item | Segment::Foreign => return None,
            },
        }
        for segment in segments {
            match segment {
                "crate" | "self" => {}
                "super" => drop(at.pop()),
                name => match self.segment(&at, import, name, hops) {
                    Segment::Module(next) => at = next,
                    Segment::Item => break,
                    Segment::Foreign => return None,
                },
            }
        }
        Some(self.file_of(at))
    }

    /// Follows one segment of the path of `import` from the module `at`.
    fn segment(&self, at: &[String], import: &Import, name: &str, hops: usize) -> Segment {
        let child = [at, [name.to_owned()].as_slice()].concat();
        if self.modules.contains_key(&child) {
            return Segment::Module(child);
        }
        let mut others = self.modules.get(at).into_iter().flatten();
        let binding = others.find(|other| {
            *other != import && other.within.is_empty() && other.name.as_deref() == Some(name)
        });
        match (binding, hops) {
            (None, _) | (_, 0) => Segment::Item,
            (Some(other), _) => {
                self.target(at, other, hops - 1).map_or(Segment::Foreign, Segment::Module)
            }
        }
    }

    /// Returns the module of the file that contains a module, which may be inline.
    fn file_of(&self, mut module: ModulePath) -> ModulePath {
        while !module.is_empty() && !self.modules.contains_key(&module) {
            module.pop();
        }
        module
    }
}

#[cfg(test)]
mod tests {
    use super::super::sources::{SourceFile, modules};
    use super::*;

    /// Edges between modules, as `a::b -> c`.
    fn edges(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<SourceFile> =
            files.iter().map(|(path, text)| SourceFile::new(path, text)).collect();
        let graph = ImportGraph::new(&modules(&files));
        let shown = |(from, to): (&ModulePath, BTreeSet<ModulePath>)| {
            let from = from.join("::");
            to.into_iter().map(move |to| format!("{from} -> {}", to.join("::"))).collect::<Vec<_>>()
        };
        graph.edges().into_iter().flat_map(shown).collect()
    }

    #[test]
    fn imports_lead_to_modules() {
        let files = [
            ("lib.rs", "mod a; mod b; mod c;"),
            ("a.rs", "mod d; use std::fmt; use crate::b::B; use super::c::{self, C};"),
            ("a/d.rs", "use super::A; fn f() { crate::c::g(); other::h(); }"),
            ("b.rs", "use self::Kind::One; use crate::Root;"),
            ("c/mod.rs", "pub(in crate::a) struct C;"),
        ];
        assert_eq!(edges(&files), ["a -> b", "a -> c", "a::d -> a", "a::d -> c", "b -> "]);
    }

    #[test]
    fn re_exports_lead_to_the_module_that_defines_the_item() {
        let files = [
            ("lib.rs", "mod a; mod b; pub use a::Item as Renamed; use outside::Thing;"),
            ("a.rs", "mod c; mod d; pub use self::c::Item; pub(super) use c::{self as also};"),
            ("a/c.rs", "use super::d::D;"),
            ("a/d.rs", ""),
            ("b.rs", "use crate::Renamed; use crate::a::also::X; use crate::Thing;"),
        ];
        assert_eq!(edges(&files), ["a -> a::c", "a::c -> a::d", "b -> a::c"]);
    }

    #[test]
    fn tests_import_freely() {
        let files = [
            ("main.rs", "mod a; mod b;"),
            ("a.rs", "#[cfg(test)] pub(super) mod tests; #[cfg(test)] mod more { use super::B; }"),
            ("a/tests.rs", "use crate::b::B;"),
            ("b.rs", "#[cfg(test)] use crate::a::A; use crate::a::C;"),
        ];
        assert_eq!(edges(&files), ["b -> a"]);
    }

    #[test]
    fn inline_modules_belong_to_their_file() {
        let files = [
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "mod inner { use super::X; use super::super::b::B; }"),
            ("b.rs", "use crate::a::inner::Y;"),
        ];
        assert_eq!(edges(&files), ["a -> b", "b -> a"]);
    }

    #[test]
    fn imports_of_each_other_end() {
        let files = [
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "pub use crate::b::X;"),
            ("b.rs", "pub use crate::a::X;"),
        ];
        assert_eq!(edges(&files).len(), 2);
    }
}
