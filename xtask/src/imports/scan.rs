//! One pass over the code of a file: its modules, definitions, `use` items and paths.
//!
//! No parser: a definition is the word after `struct`, `fn` and so on at the level of items; a path
//! is words joined by `::`. What does not compile yields nonsense, but ends.

use super::{Binding, Imports, Module, TypeName};
use crate::source::line_of;

/// A file module that is declared: the declaring module, the folder of the inline modules around
/// the declaration (`a/`, or nothing), and its name.
pub(super) type Declaration = (usize, String, String);

/// Words before the name of an item.
const INTRODUCERS: &[&str] =
    &["struct", "enum", "union", "trait", "type", "fn", "const", "static", "macro_rules"];

/// Those of types.
const OF_TYPES: &[&str] = &["struct", "enum", "union", "trait", "type"];

/// Words that stand between an introducer and something else than the name.
const NO_NAMES: &[&str] = &["fn", "unsafe", "async", "extern", "mut", "_"];

/// Where a pass stands.
struct Scan<'a> {
    code: &'a str,
    /// Words, `::` and other single letters, each with the byte where it starts.
    tokens: Vec<(usize, &'a str)>,
    at: usize,
    /// What the braces around `at` are: a module, or anything else.
    braces: Vec<Option<(usize, String)>>,
    file_module: usize,
}

/// Reads the file of `module`; what it finds goes into the modules of `imports`.
pub(super) fn file(imports: &mut Imports, module: usize, code: &str) -> Vec<Declaration> {
    let mut scan =
        Scan { code, tokens: tokens(code), at: 0, braces: Vec::new(), file_module: module };
    let mut declared = Vec::new();
    while scan.at < scan.tokens.len() {
        scan.step(imports, &mut declared);
    }
    declared
}

impl Scan<'_> {
    fn token(&self, ahead: usize) -> &str {
        self.tokens.get(self.at + ahead).map_or("", |(_, token)| *token)
    }

    fn before(&self) -> &str {
        self.at.checked_sub(1).map_or("", |at| self.tokens[at].1)
    }

    fn line(&self) -> usize {
        self.tokens.get(self.at).map_or(0, |(start, _)| line_of(self.code, *start))
    }

    /// The innermost module around `at`.
    fn module(&self) -> usize {
        let inline = self.braces.iter().rev().find_map(|brace| brace.as_ref());
        inline.map_or(self.file_module, |(module, _)| *module)
    }

    fn is_between_items(&self) -> bool {
        self.braces.last().is_none_or(Option::is_some)
    }

    fn step(&mut self, imports: &mut Imports, declared: &mut Vec<Declaration>) {
        let token = self.token(0).to_owned();
        match token.as_str() {
            "{" => self.braces.push(None),
            "impl" => self.note_impl(imports),
            "}" => drop(self.braces.pop()),
            "mod" if self.is_between_items() && is_name(self.token(1)) => {
                self.declare(imports, declared);
                return;
            }
            "use" if !matches!(self.token(1), "<" | "") => {
                self.use_item(imports);
                return;
            }
            _ if INTRODUCERS.contains(&token.as_str()) && self.is_between_items() => {
                let ahead = if self.token(1) == "!" { 2 } else { 1 };
                let name = self.token(ahead).to_owned();
                if is_name(&name) && !NO_NAMES.contains(&name.as_str()) {
                    self.note_type(imports, &token, &name);
                    imports.modules[self.module()].defines.insert(name);
                    self.at += ahead;
                }
            }
            _ if is_name(&token) && self.token(1) == "::" && self.before() != "::" => {
                self.path(imports);
                return;
            }
            _ if is_name(&token) => self.note_word(imports, token),
            _ => {}
        }
        self.at += 1;
    }

    fn note_word(&self, imports: &mut Imports, word: String) {
        let file = imports.modules[self.file_module].file;
        *imports.words[file].entry(word).or_default() += 1;
    }

    fn note_type(&self, imports: &mut Imports, introducer: &str, name: &str) {
        if OF_TYPES.contains(&introducer) {
            let file = imports.modules[self.file_module].file;
            let is_visible = matches!(self.before(), "pub" | ")");
            let line = self.line();
            imports.types.push(TypeName { name: name.to_owned(), file, line, is_visible });
        }
    }

    /// The type of `impl Type {` and `impl<T> Type<T> {`, without a trait.
    fn note_impl(&self, imports: &mut Imports) {
        let mut depth = 0_usize;
        let mut name = None;
        for (_, token) in &self.tokens[self.at + 1..] {
            match *token {
                "<" => depth += 1,
                ">" => depth = depth.saturating_sub(1),
                "{" | "where" if depth == 0 => break,
                // A trait, a path, or `impl Trait` in a signature.
                "for" | "::" | "(" | ")" | "," | ";" | "&" | "+" | "=" if depth == 0 => return,
                word if depth == 0 && is_name(word) && name.is_none() => name = Some(word),
                _ => {}
            }
        }
        if let Some(name) = name {
            let file = imports.modules[self.file_module].file;
            *imports.impls[file].entry(name.to_owned()).or_default() += 1;
        }
    }

    /// `mod x;` or `mod x {`.
    fn declare(&mut self, imports: &mut Imports, declared: &mut Vec<Declaration>) {
        let name = self.token(1).to_owned();
        let parent = self.module();
        match self.token(2) {
            "{" => {
                let file = imports.modules[self.file_module].file;
                let index = imports.modules.len();
                imports.modules.push(Module { file, parent, ..Module::default() });
                imports.modules[parent].children.insert(name.clone(), index);
                self.braces.push(Some((index, name)));
            }
            _ => {
                let around = self.braces.iter().flatten();
                let folder = around.map(|(_, name)| format!("{name}/")).collect();
                declared.push((parent, folder, name));
            }
        }
        self.at += 3;
    }

    /// A path in code, up to the first thing that is no plain name.
    fn path(&mut self, imports: &mut Imports) {
        let line = self.line();
        let mut path = vec![self.token(0).to_owned()];
        self.at += 1;
        while self.token(0) == "::" && is_name(self.token(1)) {
            path.push(self.token(1).to_owned());
            self.at += 2;
        }
        self.note_word(imports, path[0].clone());
        imports.modules[self.module()].paths.push((path, line));
    }

    fn use_item(&mut self, imports: &mut Imports) {
        let is_public = matches!(self.before(), "pub" | ")");
        let module = self.module();
        self.at += 1;
        self.use_tree(imports, (module, is_public), &[]);
        // The `;`.
        self.at += 1;
    }

    /// One branch of a `use`, up to its `,`, `}` or `;`.
    fn use_tree(
        &mut self,
        imports: &mut Imports,
        (module, is_public): (usize, bool),
        prefix: &[String],
    ) {
        let line = self.line();
        let mut path = prefix.to_vec();
        let mut name = None;
        while !matches!(self.token(0), "," | "}" | ";" | "") {
            match self.token(0) {
                "{" => {
                    self.at += 1;
                    while !matches!(self.token(0), "}" | "") {
                        self.use_tree(imports, (module, is_public), &path);
                        self.at += usize::from(self.token(0) == ",");
                    }
                    self.at += 1;
                    return;
                }
                "*" => {
                    let glob = Binding { path: path.clone(), line, is_public };
                    imports.modules[module].globs.push(glob);
                    self.at += 1;
                    return;
                }
                "as" => {
                    name = Some(self.token(1).to_owned());
                    self.at += 1;
                }
                "::" => {}
                // `use x::{self}` is x itself.
                "self" if !path.is_empty() => {}
                segment => path.push(segment.to_owned()),
            }
            self.at += 1;
        }
        if let Some(name) = name.or_else(|| path.last().cloned()) {
            imports.modules[module].bindings.insert(name, Binding { path, line, is_public });
        }
    }
}

fn is_name(token: &str) -> bool {
    token.starts_with(|letter: char| letter.is_alphabetic() || letter == '_')
}

/// Without blanks, character literals, and the insides of strings (which are blank already).
fn tokens(code: &str) -> Vec<(usize, &str)> {
    let mut tokens = Vec::new();
    let mut rest = code;
    while let Some(first) = rest.chars().next() {
        let length = if first.is_alphanumeric() || first == '_' {
            rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_')
                .unwrap_or(rest.len())
        } else if rest.starts_with("::") {
            2
        } else if first == '\'' {
            character_bytes(rest)
        } else {
            first.len_utf8()
        };
        let (token, after) = rest.split_at(length);
        let is_character = first == '\'' && length > 1;
        if !first.is_whitespace() && !is_character {
            tokens.push((code.len() - rest.len(), token));
        }
        rest = after;
    }
    tokens
}

/// Bytes of a character literal, or 1 for the quote of a lifetime.
fn character_bytes(rest: &str) -> usize {
    let inside = &rest[1..];
    if let Some(escaped) = inside.strip_prefix('\\') {
        let skipped = escaped.chars().next().map_or(0, char::len_utf8);
        return escaped[skipped..].find('\'').map_or(1, |end| 2 + skipped + end + 1);
    }
    let letter = inside.chars().next().map_or(0, char::len_utf8);
    if letter > 0 && inside[letter..].starts_with('\'') { letter + 2 } else { 1 }
}
