//! Which file of a crate uses which other file of the same crate, and by which names.
//!
//! It reads Rust as far as that needs: modules, `use` trees, definitions, and paths in code such as
//! `crate::x::y(..)`. A name that comes through a re-export (`pub use`) counts for the file that
//! defines it, not for the file that hands it on. Three things count for nothing, because a module
//! is the sum of its files: `mod x;`; what the file of a module uses of its own submodules (while
//! what a submodule uses of the modules around it counts); and a type that a file names only to add
//! an `impl` block to it.
//!
//! Not here: method calls (they need no import), names that a macro makes, `#[path]`, and test code
//! (`#[cfg(test)]` items and the files that they declare).

mod scan;

use std::collections::{BTreeMap, BTreeSet};

use crate::rules::is_test_path;
use crate::source::Source;
use crate::tree::Tree;

/// One module: of a file of its own, or inline in the file of its parent.
#[derive(Debug, Default)]
struct Module {
    /// Index in [`Imports::files`].
    file: usize,
    /// Index of the parent; the root is its own.
    parent: usize,
    children: BTreeMap<String, usize>,
    /// Names of its items.
    defines: BTreeSet<String>,
    /// What `use` binds, by the name that it has here.
    bindings: BTreeMap<String, Binding>,
    /// `use path::*`.
    globs: Vec<Binding>,
    /// Paths in its code, with their lines.
    paths: Vec<(Vec<String>, usize)>,
}

/// One name of a `use`.
#[derive(Clone, Debug)]
struct Binding {
    path: Vec<String>,
    line: usize,
    is_public: bool,
}

/// What a path means.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Target {
    Module(usize),
    Item { file: usize, name: String },
}

/// Why one file needs another one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Edge {
    /// The line of the first use, counted from 1.
    pub(crate) line: usize,
    pub(crate) names: BTreeSet<String>,
}

/// The definition of a struct, enum, union, trait or type alias.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TypeName {
    pub(crate) name: String,
    /// Index in [`Imports::files`].
    pub(crate) file: usize,
    /// Counted from 1.
    pub(crate) line: usize,
    /// Whether it is `pub`, in whatever scope.
    pub(crate) is_visible: bool,
}

/// The files of one crate, and what each uses of the others.
#[derive(Debug, Default)]
pub(crate) struct Imports {
    /// Paths from the root of the project.
    pub(crate) files: Vec<String>,
    /// By (user, used), as indices of `files`.
    pub(crate) edges: BTreeMap<(usize, usize), Edge>,
    /// The types that it defines, file by file.
    pub(crate) types: Vec<TypeName>,
    modules: Vec<Module>,
    /// By file: how often its code has a word outside its `use` items.
    words: Vec<BTreeMap<String, usize>>,
    /// By file: how many of these are the type of an `impl` block.
    impls: Vec<BTreeMap<String, usize>>,
}

/// The folders of all crates of the project, sorted.
pub(crate) fn crates(tree: &Tree) -> Vec<&str> {
    let manifests = tree.entries.iter().filter_map(|entry| entry.path.strip_suffix("/Cargo.toml"));
    manifests.filter(|folder| root_file(tree, folder).is_some()).collect()
}

/// The name by which people call a crate: its folder.
pub(crate) fn name(folder: &str) -> &str {
    folder.rsplit('/').next().unwrap_or(folder)
}

/// `lib.rs` if there is one: a `main.rs` beside it is another crate that only uses it.
fn root_file(tree: &Tree, folder: &str) -> Option<String> {
    let files = ["lib.rs", "main.rs"].map(|name| format!("{folder}/src/{name}"));
    files.into_iter().find(|path| tree.text(path).is_some())
}

impl Imports {
    /// Of the crate in `folder`; empty when it has no root file.
    pub(crate) fn of(tree: &Tree, folder: &str) -> Imports {
        let mut imports = Imports::default();
        let Some(root) = root_file(tree, folder) else { return imports };
        imports.read(tree, folder, &root, 0);
        imports.connect();
        imports
    }

    /// Reads one file as a new module, and the files of the modules that it declares.
    fn read(
        &mut self,
        tree: &Tree,
        crate_folder: &str,
        path: &str,
        parent: usize,
    ) -> Option<usize> {
        let code = Source::of(tree.text(path)?).code_without_tests();
        let file = self.files.len();
        self.files.push(path.to_owned());
        self.words.push(BTreeMap::new());
        self.impls.push(BTreeMap::new());
        let module = self.modules.len();
        self.modules.push(Module { file, parent, ..Module::default() });
        for (declaring, inline, name) in scan::file(self, module, &code) {
            let folder = format!("{}{inline}", folder_of_children(path));
            let candidates = [format!("{folder}{name}.rs"), format!("{folder}{name}/mod.rs")];
            let found = candidates.iter().find(|path| tree.text(path).is_some());
            if let Some(found) = found
                && !found.strip_prefix(crate_folder).is_some_and(is_test_path)
                && let Some(child) = self.read(tree, crate_folder, found, declaring)
            {
                self.modules[declaring].children.insert(name, child);
            }
        }
        Some(module)
    }

    fn connect(&mut self) {
        let mut uses = Vec::new();
        for (index, module) in self.modules.iter().enumerate() {
            for (name, binding) in &module.bindings {
                let only_handed_on =
                    binding.is_public && !self.words[module.file].contains_key(name);
                if !only_handed_on && !self.only_adds_to(module.file, name) {
                    uses.push((index, binding.path.clone(), binding.line));
                }
            }
            for glob in &module.globs {
                uses.extend(self.names_through(index, glob));
            }
            uses.extend(module.paths.iter().map(|(path, line)| (index, path.clone(), *line)));
        }
        for (module, path, line) in uses {
            if let Some(Target::Item { file, name }) = self.resolve(module, &path, &mut Vec::new())
                && file != self.modules[module].file
                && !self.is_within(file, self.modules[module].file)
            {
                let edge = self.edges.entry((self.modules[module].file, file)).or_default();
                edge.line = if edge.line == 0 { line } else { edge.line.min(line) };
                edge.names.insert(name);
            }
        }
    }

    /// Whether a file names a type only as the type of `impl` blocks.
    fn only_adds_to(&self, file: usize, name: &str) -> bool {
        let impls = self.impls[file].get(name);
        impls.is_some() && impls == self.words[file].get(name)
    }

    /// Whether the module of `file` lies below the module of `ancestor`.
    fn is_within(&self, file: usize, ancestor: usize) -> bool {
        self.files[file].starts_with(&folder_of_children(&self.files[ancestor]))
    }

    /// The paths that the code of `module` means when it uses names of a glob import.
    fn names_through(&self, module: usize, glob: &Binding) -> Vec<(usize, Vec<String>, usize)> {
        let of_module = match self.resolve(module, &glob.path, &mut Vec::new()) {
            Some(Target::Module(index)) => index,
            // The variants of an enum.
            Some(Target::Item { .. }) => return vec![(module, glob.path.clone(), glob.line)],
            None => return Vec::new(),
        };
        let mut names = BTreeSet::new();
        self.names_in(of_module, &mut names, &mut BTreeSet::new());
        let user = &self.modules[module];
        names.retain(|name| {
            self.words[user.file].contains_key(name)
                && !user.defines.contains(name)
                && !user.bindings.contains_key(name)
        });
        let path = |name| glob.path.iter().cloned().chain([name]).collect();
        names.into_iter().map(|name| (module, path(name), glob.line)).collect()
    }

    /// All names that a module has, those of its own glob imports too.
    fn names_in(&self, module: usize, names: &mut BTreeSet<String>, seen: &mut BTreeSet<usize>) {
        if !seen.insert(module) {
            return;
        }
        let here = &self.modules[module];
        names.extend(here.defines.iter().chain(here.bindings.keys()).cloned());
        for glob in &here.globs {
            if let Some(Target::Module(index)) = self.resolve(module, &glob.path, &mut Vec::new()) {
                self.names_in(index, names, seen);
            }
        }
    }

    /// What a path means when code of the module `from` names it; `None` for other crates.
    fn resolve(
        &self,
        from: usize,
        path: &[String],
        seen: &mut Vec<(usize, String)>,
    ) -> Option<Target> {
        let mut module = from;
        let mut rest = path;
        while let Some((first, others)) = rest.split_first() {
            match first.as_str() {
                "crate" => module = 0,
                "super" => module = self.modules[module].parent,
                "self" => {}
                _ => break,
            }
            rest = others;
        }
        let Some((first, others)) = rest.split_first() else { return Some(Target::Module(module)) };
        let here = &self.modules[module];
        let is_item = here.defines.contains(first);
        // `mod run; pub use run::run;`: the path that ends with the name means the item.
        let is_handed_on =
            here.bindings.contains_key(first) && !seen.contains(&(module, first.clone()));
        if let Some(child) = here.children.get(first)
            && !(others.is_empty() && (is_item || is_handed_on))
        {
            return self.resolve_below(*child, others, seen);
        }
        if is_item {
            return Some(Target::Item { file: here.file, name: first.clone() });
        }
        if seen.contains(&(module, first.clone())) {
            return None;
        }
        seen.push((module, first.clone()));
        if let Some(binding) = here.bindings.get(first) {
            return match self.resolve(module, &binding.path, seen)? {
                Target::Module(index) => self.resolve_below(index, others, seen),
                item => Some(item),
            };
        }
        here.globs.iter().find_map(|glob| match self.resolve(module, &glob.path, seen)? {
            Target::Module(index) => self.resolve_below(index, rest, seen),
            Target::Item { .. } => None,
        })
    }

    fn resolve_below(
        &self,
        module: usize,
        rest: &[String],
        seen: &mut Vec<(usize, String)>,
    ) -> Option<Target> {
        if rest.is_empty() {
            Some(Target::Module(module))
        } else {
            self.resolve(module, rest, seen)
        }
    }

    /// The files that use each other in a circle, circle by circle, the largest first.
    pub(crate) fn circles(&self) -> Vec<Vec<usize>> {
        let reached: Vec<BTreeSet<usize>> =
            (0..self.files.len()).map(|file| self.reached_from(file)).collect();
        let mut circles: Vec<Vec<usize>> = Vec::new();
        for file in 0..self.files.len() {
            if reached[file].contains(&file) && !circles.iter().any(|known| known.contains(&file)) {
                let members = reached[file].iter().filter(|other| reached[**other].contains(&file));
                circles.push(members.copied().collect());
            }
        }
        circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
        circles
    }

    /// Itself only if a way leads back to it.
    fn reached_from(&self, file: usize) -> BTreeSet<usize> {
        let mut reached = BTreeSet::new();
        let mut open = vec![file];
        while let Some(next) = open.pop() {
            for (_, used) in self.edges.range((next, 0)..(next + 1, 0)).map(|(key, _)| *key) {
                if reached.insert(used) {
                    open.push(used);
                }
            }
        }
        reached
    }
}

/// Where the files of child modules lie: beside a root or `mod.rs`, else in the folder of its name.
fn folder_of_children(path: &str) -> String {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    match name {
        "lib.rs" | "main.rs" | "mod.rs" => format!("{folder}/"),
        _ => format!("{}/", path.trim_end_matches(".rs")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tests::tree;

    /// The edges of a crate with these files in `src`, as `user > used: names`.
    fn edges(files: &[(&str, &str)]) -> Vec<String> {
        let mut entries = vec![("x/Cargo.toml".to_owned(), "")];
        entries.extend(files.iter().map(|(path, text)| (format!("x/src/{path}"), *text)));
        let entries: Vec<(&str, &str)> =
            entries.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        let tree = tree(&entries);
        assert_eq!(crates(&tree), ["x"]);
        let imports = Imports::of(&tree, "x");
        let name = |file: usize| imports.files[file].trim_start_matches("x/src/").to_owned();
        let edges = imports.edges.iter().map(|((user, used), edge)| {
            let names: Vec<&str> = edge.names.iter().map(String::as_str).collect();
            format!("{} > {}: {}", name(*user), name(*used), names.join(" "))
        });
        edges.collect()
    }

    /// The edges of `a.rs` beside `b.rs` and `c.rs`.
    fn of_a(a: &str) -> Vec<String> {
        edges(&[
            ("lib.rs", "mod a; mod b; mod c; pub use b::{Bell, ring as sound}; pub use c::*;"),
            ("a.rs", a),
            (
                "b.rs",
                "pub struct Bell; pub fn ring() {} pub const LOUD: u8 = 1; pub enum Tone { Low }",
            ),
            (
                "c.rs",
                "pub mod deep { pub fn well() {} } pub(crate) use crate::b::LOUD; pub trait Cup {}",
            ),
        ])
    }

    #[test]
    fn names_are_found_in_use_items_and_in_paths() {
        for (a, expected) in [
            ("use crate::b::Bell;", "a.rs > b.rs: Bell"),
            ("use super::b::{Bell, Tone::*, self};", "a.rs > b.rs: Bell Tone"),
            ("use crate::{b::{ring, LOUD as L}};", "a.rs > b.rs: LOUD ring"),
            ("fn f() { crate::b::ring(); super::b::Bell::new(); }", "a.rs > b.rs: Bell ring"),
            ("use crate::b; fn f() { b::ring(); }", "a.rs > b.rs: ring"),
            ("use super::b::*; fn f() { ring() }", "a.rs > b.rs: ring"),
            ("mod inner { use super::super::b::Bell; }", "a.rs > b.rs: Bell"),
            ("fn f() { use crate::c::deep::well; }", "a.rs > c.rs: well"),
            ("fn f<'a>() -> char { '{' } use crate::b::Bell;", "a.rs > b.rs: Bell"),
        ] {
            assert_eq!(of_a(a), [expected], "{a}");
        }
    }

    #[test]
    fn a_name_that_is_handed_on_counts_for_the_file_that_defines_it() {
        assert_eq!(of_a("use crate::Bell;"), ["a.rs > b.rs: Bell"]);
        assert_eq!(of_a("use crate::sound;"), ["a.rs > b.rs: ring"]);
        assert_eq!(of_a("use crate::c::LOUD;"), ["a.rs > b.rs: LOUD"]);
        assert_eq!(of_a("use crate::Cup;"), ["a.rs > c.rs: Cup"]);
        assert_eq!(of_a("use crate::*; fn f(x: &dyn Cup) {}"), ["a.rs > c.rs: Cup"]);
    }

    #[test]
    fn a_function_that_is_handed_on_under_the_name_of_its_module_is_found() {
        let files = [
            ("lib.rs", "mod a; mod group;"),
            ("a.rs", "fn f() { crate::group::run(); }"),
            ("group/mod.rs", "mod run; pub(crate) use run::run;"),
            ("group/run.rs", "pub(crate) fn run() {}"),
        ];
        assert_eq!(edges(&files), ["a.rs > group/run.rs: run"]);
    }

    #[test]
    fn comments_strings_tests_and_other_crates_are_no_imports() {
        for a in [
            "// use crate::b::Bell;",
            "const A: &str = \"crate::b::ring()\";",
            "#[cfg(test)] mod tests { use crate::b::Bell; }",
            "use std::collections::BTreeMap; use b::Bell; fn f() -> impl Use<'static> {}",
            "use crate::b;",
            "struct Bell; fn f() { Bell::b() }",
        ] {
            assert_eq!(of_a(a), Vec::<String>::new(), "{a}");
        }
        let files = [
            ("lib.rs", "mod a; mod tests; #[cfg(test)] mod testing;"),
            ("a.rs", "pub struct A;"),
            ("tests.rs", "use crate::a::A;"),
            ("testing.rs", "use crate::a::A;"),
        ];
        assert_eq!(edges(&files), Vec::<String>::new());
    }

    #[test]
    fn a_module_is_the_sum_of_its_files() {
        let files = |below: &'static str| {
            edges(&[
                ("main.rs", "mod top;"),
                (
                    "top.rs",
                    "mod below; use below::Part; pub struct Whole(Part); pub const N: u8 = 1;",
                ),
                ("top/below.rs", below),
            ])
        };
        assert_eq!(files("use super::N;"), ["top/below.rs > top.rs: N"]);
        assert_eq!(files("use super::Whole; impl Whole { fn f(&self) {} }"), Vec::<String>::new());
        let takes = files("use super::Whole; impl Whole { fn f(other: &Whole) {} }");
        assert_eq!(takes, ["top/below.rs > top.rs: Whole"]);
        let of_trait = files("use super::Whole; impl Clone for Whole {}");
        assert_eq!(of_trait, ["top/below.rs > top.rs: Whole"]);
    }

    #[test]
    fn circles_are_found_whole_and_the_largest_first() {
        let tree = tree(&[
            ("x/Cargo.toml", ""),
            ("x/src/lib.rs", "mod a; mod b; mod c; mod d; mod e; mod f;"),
            ("x/src/a.rs", "use crate::b::B; pub struct A;"),
            ("x/src/b.rs", "use crate::a::A; pub struct B;"),
            ("x/src/c.rs", "use crate::{a::A, d::D}; pub struct C;"),
            ("x/src/d.rs", "use crate::e::E; pub struct D;"),
            ("x/src/e.rs", "use crate::c::C; use crate::f::F; pub struct E;"),
            ("x/src/f.rs", "pub struct F;"),
        ]);
        // The root is 0.
        assert_eq!(Imports::of(&tree, "x").circles(), [vec![3, 4, 5], vec![1, 2]]);
    }
}
