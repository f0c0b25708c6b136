//! Each key of the configuration is read by something: one that is only parsed, checked and explained
//! promises what nothing does.
//!
//! A field of a struct in `config/` counts as read when code of the product outside that folder, and
//! outside tests, says `.field`, or calls a method of `config/` whose body does. It goes by names: a
//! field that shares its name with one of another struct is found by the reviewer, or not at all.

use crate::finding::Finding;
use crate::rules::is_test_path;
use crate::source::Source;
use crate::tree::Tree;

/// Where the structs are.
const FOLDER: &str = "crates/config/src/";
/// A method that only judges a value does not act on it.
const JUDGES: &[&str] = &["check", "default"];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut fields = Vec::new();
    let mut methods: Vec<(String, String)> = Vec::new();
    let mut readers = Vec::new();
    for (path, text) in tree.with_extension("rs") {
        if is_test_path(path) || !path.starts_with("crates/") {
            continue;
        }
        let code = Source::of(text).code_without_tests();
        if path.starts_with(FOLDER) {
            fields.extend(fields_of(&code).into_iter().map(|(line, name)| (path, line, name)));
            methods.extend(methods_of(&code));
        } else {
            readers.push(code);
        }
    }
    let acts = |name: &str| readers.iter().any(|code| says(code, name));
    let is_read = |name: &str| {
        let by_method = |(method, body): &(String, String)| {
            !JUDGES.contains(&method.as_str()) && says(body, name) && acts(method)
        };
        acts(name) || methods.iter().any(by_method)
    };
    let unread = fields.iter().filter(|(_, _, name)| !is_read(name));
    let finding = |(path, line, name): &(&str, usize, String)| {
        Finding::line(
            path,
            *line,
            format!("nothing reads the key `{name}`: act on it or remove it"),
        )
    };
    unread.map(finding).collect()
}

/// Whether `.name` stands in the code as a whole word.
fn says(code: &str, name: &str) -> bool {
    let wanted = format!(".{name}");
    code.match_indices(&wanted).any(|(at, _)| {
        let after = code.get(at + wanted.len()..).and_then(|rest| rest.chars().next());
        !after.is_some_and(|letter| letter.is_alphanumeric() || letter == '_')
    })
}

/// Public fields, each with its line.
fn fields_of(code: &str) -> Vec<(usize, String)> {
    let mut fields = Vec::new();
    let mut inside = false;
    for (index, line) in code.lines().enumerate() {
        inside = (inside || line.starts_with("pub struct ")) && !line.starts_with('}');
        let Some(rest) = line.strip_prefix("    pub ") else { continue };
        let name = rest.split(':').next().unwrap_or_default();
        let is_name = name.chars().all(|letter| letter.is_ascii_lowercase() || letter == '_');
        if inside && is_name && rest.contains(':') {
            fields.push((index + 1, name.to_owned()));
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
    fn comments_tests_and_longer_names_do_not_count() {
        let text = "// log.delay()\n#[cfg(test)]\nmod tests { fn t() { log.delay() } }\n\
                    fn f() { log.extent_bytes_max + log.delayed() }";
        assert_eq!(found(text).len(), 2);
    }
}
