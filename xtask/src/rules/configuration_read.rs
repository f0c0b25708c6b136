//! Each key of the configuration is read by something: one that is only parsed, checked and
//! explained promises what nothing does.
//!
//! A field of a struct in `config/` counts as read when code of the product outside that folder,
//! and outside tests, says `.field`, or calls a method of `config/` with such a body. The file has
//! to name the struct too, or the section that it is: so a key does not count as read because
//! another struct has a field of that name. It goes by names all the same: what is read of two
//! structs in one file is found by the reviewer, or not at all.

use crate::finding::Finding;
use crate::rules::is_test_path;
use crate::source::Source;
use crate::tree::Tree;

/// Where the structs are.
const FOLDER: &str = "crates/config/src/";
/// A method that only judges a value does not act on it.
const JUDGES: &[&str] = &["check", "default"];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut fields: Vec<(&str, Field)> = Vec::new();
    let mut methods: Vec<(String, String)> = Vec::new();
    let mut readers = Vec::new();
    for (path, text) in tree.with_extension("rs") {
        if is_test_path(path) || !path.starts_with("crates/") {
            continue;
        }
        let code = Source::of(text).code_without_tests();
        if path.starts_with(FOLDER) {
            fields.extend(fields_of(&code).into_iter().map(|field| (path, field)));
            methods.extend(methods_of(&code));
        } else {
            readers.push(code);
        }
    }
    let sections_of = |owner: &str| -> Vec<&str> {
        let sections = fields.iter().filter(|(_, field)| has_word(&field.of_type, owner));
        sections.map(|(_, field)| field.name.as_str()).collect()
    };
    let is_read = |field: &Field| {
        let sections = sections_of(&field.owner);
        let acts = |name: &str| {
            readers.iter().any(|code| {
                says(code, name)
                    && (has_word(code, &field.owner)
                        || sections.iter().any(|section| says(code, section)))
            })
        };
        let by_method = |(method, body): &(String, String)| {
            !JUDGES.contains(&method.as_str()) && says(body, &field.name) && acts(method)
        };
        acts(&field.name) || methods.iter().any(by_method)
    };
    let unread = fields.iter().filter(|(_, field)| !is_read(field));
    let finding = |(path, field): &(&str, Field)| {
        let text = format!("nothing reads the key `{}`: act on it or remove it", field.name);
        Finding::line(path, field.line, text)
    };
    unread.map(finding).collect()
}

/// A key.
struct Field {
    line: usize,
    name: String,
    of_type: String,
    /// The struct that it is in.
    owner: String,
}

/// Whether `.name` stands in the code as a whole word.
fn says(code: &str, name: &str) -> bool {
    has_word(code, &format!(".{name}"))
}

/// Whether these letters stand in the code, and no other ones beside them.
fn has_word(code: &str, word: &str) -> bool {
    let is_letter = |letter: char| letter.is_alphanumeric() || letter == '_';
    code.match_indices(word).any(|(at, _)| {
        let before = code.get(..at).and_then(|rest| rest.chars().next_back());
        let after = code.get(at + word.len()..).and_then(|rest| rest.chars().next());
        !after.is_some_and(is_letter) && (word.starts_with('.') || !before.is_some_and(is_letter))
    })
}

/// Fields of structs that all of the program can see.
fn fields_of(code: &str) -> Vec<Field> {
    let mut fields = Vec::new();
    let mut owner = None;
    for (index, line) in code.lines().enumerate() {
        if let Some(rest) =
            line.strip_prefix("pub struct ").or(line.strip_prefix("pub(crate) struct "))
        {
            let end = |letter: char| !letter.is_alphanumeric();
            owner = rest.split(end).next().map(str::to_owned);
        } else if line.starts_with('}') {
            owner = None;
        }
        let rest = line.strip_prefix("    pub ").or(line.strip_prefix("    pub(crate) "));
        let parts = rest.and_then(|rest| rest.split_once(':'));
        let (Some((name, of_type)), Some(owner)) = (parts, &owner) else { continue };
        let is_letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        if name.chars().all(is_letter) {
            let (name, of_type) = (name.to_owned(), of_type.to_owned());
            fields.push(Field { line: index + 1, name, of_type, owner: owner.clone() });
        }
    }
    fields
}

/// Names of functions, each with what stands between it and the next one.
fn methods_of(code: &str) -> Vec<(String, String)> {
    let named = code.split("fn ").skip(1).filter_map(|part| {
        let (name, body) = part.split_once('(')?;
        Some((name.to_owned(), body.to_owned()))
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tests::tree;

    const CONFIG: &str = "pub struct LogConfig {\n    pub extent_bytes: u64,\n    pub delay_ms: u64,\n}\n\
                          impl LogConfig {\n    pub fn delay(&self) -> D { of(self.delay_ms) }\n\
                          fn check(&self) { within(self.delay_ms, self.extent_bytes) }\n}\n";

    fn found(product: &str) -> Vec<String> {
        let files = [
            ("crates/config/src/lib.rs", CONFIG),
            ("crates/server/src/log.rs", product),
            ("crates/server/src/log/tests.rs", "fn t() { config.delay() }"),
        ];
        check(&tree(&files)).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn a_key_that_nothing_reads_is_found() {
        let [both, delay, none] = [
            "",
            "fn f(log: &LogConfig) { use_it(log.extent_bytes) }",
            "fn f(log: &LogConfig) { use_it(log.extent_bytes, log.delay()) }",
        ]
        .map(found);
        assert_eq!(both.len(), 2, "{both:?}");
        assert!(delay.len() == 1 && delay[0].contains("`delay_ms`"), "{delay:?}");
        assert!(none.is_empty(), "{none:?}");
    }

    #[test]
    fn a_field_of_that_name_of_something_else_does_not_count() {
        let read = |code: &str| {
            let config = "pub struct Config {\n    pub log: LogConfig,\n}\n\
                          pub struct LogConfig {\n    pub name: String,\n    pub tls13: bool,\n}\n";
            let files = [("crates/config/src/lib.rs", config), ("crates/server/src/a.rs", code)];
            check(&tree(&files)).iter().map(Finding::to_string).collect::<Vec<_>>()
        };
        let section = "fn f(config: &Config) { g(&config.log) } ";
        assert!(
            read(&format!("{section} fn g(it: &LogConfig) {{ it.name; it.tls13 }}")).is_empty()
        );
        assert!(read("fn f(config: &Config) { config.log.name; config.log.tls13 }").is_empty());
        let other = [read("fn f(queue: &Queue) { queue.name; queue.tls13 }"), read(section)];
        assert_eq!(other.map(|found| found.len()), [3, 2]);
    }

    #[test]
    fn comments_tests_and_longer_names_do_not_count() {
        let text = "// log.delay()\n#[cfg(test)]\nmod tests { fn t() { log.delay() } }\n\
                    fn f() { log.extent_bytes_max + log.delayed() }";
        assert_eq!(found(text).len(), 2);
    }
}
