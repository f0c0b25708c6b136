//! Help text and reference pages, made from the tables, so that they cannot disagree with the code.

use std::fmt::Write as _;

use crate::attributes::{ATTRIBUTES, Attribute, Kind, OBJECTS, Object, ObjectEntry, VERBS, Verb};
use crate::catalogue::{self, Severity};
use crate::metrics::metrics_reference;
use crate::mqsc;

/// docs/reference/mqsc.md.
#[must_use]
pub fn mqsc_page() -> String {
    let mut page = String::from(INTRODUCTION);
    page.push_str("\n## Commands\n\n| command | short | objects | meaning |\n|---|---|---|---|\n");
    for verb in VERBS {
        let objects = OBJECTS.iter().filter(|object| object.verbs.contains(&verb.verb));
        let objects: Vec<&str> = objects.map(|object| object.name).collect();
        let synonyms = verb.synonyms.join(", ");
        line(&mut page, &[verb.name, &synonyms, &objects.join(", "), verb.doc]);
    }
    for object in OBJECTS {
        section(&mut page, object);
    }
    page
}

const INTRODUCTION: &str = "<!-- Made from crates/admin/src/attributes by a test: \
UPDATE_REFERENCE=1 cargo test -p towline-admin. Do not edit. -->
# MQSC

Commands are given to `towline mqsc`, one a line:

```
DEFINE QLOCAL(ORDERS) MAXDEPTH(100000) BOTHRESH(5) BOQNAME('orders.bad')
DISPLAY QUEUE(*) WHERE(CURDEPTH GT 0)
```

- A line that starts with `*` is a comment. `+` at the end of a line continues it at the first
  non-blank character of the next line, `-` at its first column. `;` also ends a command.
- Words and names are folded to upper case unless they are in single quotes; a quote in quotes is
  doubled. Queue names are case-sensitive: `ORDERS` and `'orders'` are two queues.
- `DISPLAY` takes a name, a generic name (`ORD*`, `*`), and `WHERE(attribute operator value)` with
  `LT GT EQ NE LE GE` (order), `LK NL` (like, not like a generic name), `CT EX` (contains, does not
  contain). For one object it shows all attributes, for a generic name the names; `ALL` shows all
  attributes, a list of attributes shows these.
- `DEFINE` takes `REPLACE` (change an existing object; its messages stay) and `LIKE(name)` (copy the
  other attributes).
- A command or attribute of IBM MQ that Towline does not support is refused with a message that says
  so.
";

fn section(page: &mut String, entry: &ObjectEntry) {
    let mut title = format!("\n## {}", entry.name);
    for synonym in entry.synonyms {
        title.push_str(", ");
        title.push_str(synonym);
    }
    writeln!(page, "{title}\n\n{}\n", entry.doc).ok();
    if entry.object == Object::Queue {
        page.push_str("Shows the attributes of QLOCAL, QALIAS and QMODEL.\n");
        return;
    }
    page.push_str("| attribute | values | default | meaning |\n|---|---|---|---|\n");
    for attribute in ATTRIBUTES.iter().filter(|each| each.can_show(entry.object)) {
        let name = match attribute.synonyms {
            [] => attribute.name.to_owned(),
            synonyms => format!("{} ({})", attribute.name, synonyms.join(", ")),
        };
        let default = default(attribute, entry.object);
        line(page, &[&name, &values(attribute), &default, attribute.doc]);
    }
}

fn default(attribute: &Attribute, object: Object) -> String {
    if !attribute.can_set(object) {
        return "display only".into();
    }
    if object == Object::Alias || object == Object::Local || object == Object::Model {
        return if attribute.default.is_empty() {
            "empty".into()
        } else {
            attribute.default.into()
        };
    }
    // The queue manager's come from its configuration.
    String::new()
}

fn values(attribute: &Attribute) -> String {
    match attribute.kind {
        Kind::Text { characters_max } => format!("up to {characters_max} characters"),
        Kind::Name => "name of a queue, or empty".into(),
        Kind::Number { max: u64::MAX, unit: "", .. } => "number".into(),
        Kind::Number { max: u64::MAX, unit, .. } => unit.into(),
        Kind::Number { min, max, unit } => format!("{min} to {max} {unit}").trim_end().into(),
        Kind::Choice(words) => words.join(", "),
        Kind::Flag => format!("{0} or NO{0}, without a value", attribute.name),
    }
}

fn line(page: &mut String, cells: &[&str]) {
    let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
    // Writing to a String cannot fail.
    writeln!(page, "| {} |", cells.join(" | ")).ok();
}

/// docs/reference/messages.md.
#[must_use]
pub fn messages_page() -> String {
    let mut page = String::from(
        "<!-- Made from crates/admin/src/catalogue by a test: UPDATE_REFERENCE=1 cargo test -p \
         towline-admin. Do not edit. -->\n# Messages\n\nEvery message has an id that never \
         changes its meaning. Its last letter is its severity: `I` information, `W` warning, \
         `E` error: action is needed. `{...}` stands for a value.\n\n| id | text | \
         what it means, what to do |\n|---|---|---|\n",
    );
    for entry in catalogue::ALL.iter() {
        let id = match entry.severity() {
            Severity::Information => entry.id.to_owned(),
            Severity::Warning | Severity::Error => format!("**{}**", entry.id),
        };
        line(&mut page, &[&id, entry.template, entry.explanation]);
    }
    page
}

/// docs/reference/metrics.md.
#[must_use]
pub fn metrics_page() -> String {
    let mut page = String::from(
        "<!-- Made from crates/admin/src/metrics.rs by a test: UPDATE_REFERENCE=1 cargo test -p \
         towline-admin. Do not edit. -->\n# Metrics\n\nFor Prometheus, at `/metrics` of the address \
         in [`[metrics]`](config.md#metrics), of every instance\nof both groups. Each has the labels \
         `qmgr`, `group` and `instance` (of the instance that is asked) and\n`other_group`. What an \
         instance does not know is left out, and is never a zero: only the live group's\nactive \
         instance knows what is at risk in messages and time, only a recovery instance to which is\n\
         shipped how much it lacks.\n\n",
    );
    page.push_str(&metrics_reference());
    page
}

/// Help for the interactive `towline mqsc`, at most 80 columns wide.
#[must_use]
pub fn help() -> String {
    let mut text = String::new();
    for verb in VERBS {
        let objects = OBJECTS.iter().filter(|object| object.verbs.contains(&verb.verb));
        let objects: Vec<&str> = objects.map(|object| object.name).collect();
        let row = format!("{:<8} {}", verb.name, objects.join(" "));
        writeln!(text, "{}", row.trim_end()).ok();
    }
    for object in OBJECTS.iter().filter(|object| object.verbs.contains(&Verb::Alter)) {
        let names = ATTRIBUTES.iter().filter(|each| each.can_set(object.object));
        let mut row = format!("{:<8}", object.name);
        for name in names.map(|attribute| attribute.name) {
            if row.len() + name.len() >= 80 {
                writeln!(text, "{row}").ok();
                row = " ".repeat(8);
            }
            row.push(' ');
            row.push_str(name);
        }
        writeln!(text, "{row}").ok();
    }
    writeln!(text, "A command may have {} bytes; + continues it.", mqsc::STATEMENT_BYTES_MAX).ok();
    text
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// Compares a page with the one in the repository, or rewrites that.
    fn check(name: &str, page: &str) {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference");
        let file = root.join(name);
        if std::env::var_os("UPDATE_REFERENCE").is_some() {
            std::fs::create_dir_all(&root).unwrap();
            std::fs::write(&file, page).unwrap();
        }
        let kept = std::fs::read_to_string(&file).unwrap_or_default();
        assert!(kept == page, "{name} is out of date: run with UPDATE_REFERENCE=1");
    }

    #[test]
    fn reference_pages_are_up_to_date() {
        check("mqsc.md", &mqsc_page());
        check("messages.md", &messages_page());
        check("metrics.md", &metrics_page());
    }

    #[test]
    fn help_fits_eighty_columns() {
        assert!(help().lines().all(|line| line.len() <= 80), "{}", help());
    }
}
