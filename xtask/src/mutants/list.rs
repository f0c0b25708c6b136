//! The mutants, as the files of tests/mutants/ name them. One table for each, its name says the
//! bug:
//!
//! ```text
//! [vote-without-sync]
//! what = "the bug, and what it would cost in production"
//! file = "crates/replication/src/hard_state_file.rs"
//! find = "text that occurs once in that file, whitespace included"
//! replace = "what stands there instead"
//! killers = [
//!   { package = "towline-replication", test = "a_test, or the beginning of its name" },
//!   { package = "towline-node", target = "session", test = "..." },  # of crates/node/tests
//!   { simulator = "0..200" },                                        # seeds of the kind model
//!   { simulator = "0..20", kind = "cluster" },                       # of another kind
//! ]
//! survives = "why no killer exists yet"          # only where that is so
//! ```
//!
//! Invariant: [`Mutant::changed`] yields a text only when what is to be replaced occurs once, so
//! that code that moves does not silently change what a mutant is.

use std::fmt;
use std::io;

use toml::{Table, Value};

use crate::tree::{Tree, project_root};

/// Where the files are.
pub(crate) const FOLDER: &str = "tests/mutants/";
/// Kind of a killer that is a test.
pub(crate) const UNIT: &str = "unit";
/// Kind of a killer that is a run of the simulator.
pub(crate) const SIMULATOR: &str = "simulator";

/// Kinds of runs of the simulator; the first one is meant when none is named.
const SIMULATOR_KINDS: [&str; 7] =
    ["model", "cluster", "alone", "crash", "one", "one-crash", "regions"];

/// One bug.
#[derive(Clone, Debug)]
pub(crate) struct Mutant {
    pub(crate) name: String,
    /// The file that lists it, without folder and ending.
    pub(crate) list: String,
    pub(crate) what: String,
    pub(crate) file: String,
    pub(crate) find: String,
    pub(crate) replace: String,
    /// Cheapest first.
    pub(crate) killers: Vec<Killer>,
    /// Why none kills it, when that is known.
    pub(crate) survives: Option<String>,
}

/// What may notice a mutant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Killer {
    /// Tests with this text in their names.
    Unit {
        package: String,
        /// The test program; `None`: that of the library.
        target: Option<String>,
        test: String,
    },
    /// Seeds of the simulator.
    Simulator {
        /// `--kind` of `towline-sim`.
        kind: String,
        seeds: String,
    },
}

impl Killer {
    #[cfg(test)]
    pub(crate) fn unit(package: &str, target: Option<&str>, test: &str) -> Killer {
        let target = target.map(str::to_owned);
        Killer::Unit { package: package.to_owned(), target, test: test.to_owned() }
    }

    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Killer::Unit { .. } => UNIT,
            Killer::Simulator { .. } => SIMULATOR,
        }
    }

    fn parse(value: &Value) -> Option<Killer> {
        let table = value.as_table()?;
        let text = |key: &str| table.get(key).and_then(Value::as_str).map(str::to_owned);
        let keys: Vec<&str> = table.keys().map(String::as_str).collect();
        match keys.as_slice() {
            ["simulator"] | ["kind", "simulator"] => {
                let kind = text("kind").unwrap_or_else(|| SIMULATOR_KINDS[0].to_owned());
                let is_known = SIMULATOR_KINDS.contains(&kind.as_str());
                Some(Killer::Simulator { kind, seeds: text("simulator")? }).filter(|_| is_known)
            }
            ["package", "test"] | ["package", "target", "test"] => Some(Killer::Unit {
                package: text("package")?,
                target: text("target"),
                test: text("test")?,
            }),
            _ => None,
        }
    }
}

impl fmt::Display for Killer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Killer::Unit { package, target: None, test } => write!(out, "{package} {test}"),
            Killer::Unit { package, target: Some(target), test } => {
                write!(out, "{package} {target} {test}")
            }
            Killer::Simulator { kind, seeds } => write!(out, "simulator, {kind}, seeds {seeds}"),
        }
    }
}

impl Mutant {
    /// Whether it, or its list, has this name.
    pub(crate) fn is_named(&self, name: &str) -> bool {
        self.name == name || self.list == name
    }

    /// The text of its file with the bug in it.
    ///
    /// # Errors
    /// How often it would have to be put in, when not once.
    pub(crate) fn changed(&self, text: &str) -> Result<String, String> {
        match text.matches(&self.find).count() {
            1 if self.find != self.replace => Ok(text.replacen(&self.find, &self.replace, 1)),
            1 => Err("it changes nothing".into()),
            0 => Err(format!("its `find` is not in {}", self.file)),
            more => Err(format!("its `find` is {more} times in {}", self.file)),
        }
    }

    fn parse(list: &str, name: &str, table: &Table) -> Result<Mutant, String> {
        const KEYS: [&str; 6] = ["what", "file", "find", "replace", "killers", "survives"];
        if let Some(key) = table.keys().find(|key| !KEYS.contains(&key.as_str())) {
            return Err(format!("`{key}` is none of {}", KEYS.join(", ")));
        }
        let text = |key: &str| {
            let found = table.get(key).and_then(Value::as_str);
            found.map(str::to_owned).ok_or(format!("it has no `{key}`"))
        };
        let killers = table.get("killers").and_then(Value::as_array);
        let killers = killers.into_iter().flatten().map(|value| {
            let wrong = format!("a killer is `package` and `test`, or `simulator`, not {value}");
            Killer::parse(value).ok_or(wrong)
        });
        let mutant = Mutant {
            name: name.to_owned(),
            list: list.to_owned(),
            what: text("what")?,
            file: text("file")?,
            find: text("find")?,
            replace: text("replace")?,
            killers: killers.collect::<Result<_, _>>()?,
            survives: text("survives").ok(),
        };
        match mutant.killers.is_empty() && mutant.survives.is_none() {
            true => Err("it has neither `killers` nor `survives`".into()),
            false => Ok(mutant),
        }
    }
}

/// The mutants of one file, in the order of their names; for each that is wrong, why.
pub(crate) fn parse(path: &str, text: &str) -> Vec<Result<Mutant, String>> {
    let list = path.strip_prefix(FOLDER).unwrap_or(path).trim_end_matches(".toml");
    let tables: Table = match text.parse() {
        Ok(tables) => tables,
        Err(error) => return vec![Err(error.to_string())],
    };
    let tables = tables.iter().map(|(name, value)| {
        let table = value.as_table().ok_or(format!("`{name}` is no table"))?;
        Mutant::parse(list, name, table).map_err(|why| format!("{name}: {why}"))
    });
    tables.collect()
}

/// Whether a file of the project lists mutants.
pub(crate) fn is_list(path: &str) -> bool {
    path.starts_with(FOLDER) && path.ends_with(".toml")
}

/// All mutants of this project.
///
/// # Errors
/// When a file cannot be read, or one of them is wrong.
pub(crate) fn read_all() -> io::Result<Vec<Mutant>> {
    let tree = Tree::read(&project_root().join(FOLDER))?;
    let lists = tree.with_extension("toml");
    lists
        .flat_map(|(path, text)| parse(path, text))
        .collect::<Result<_, _>>()
        .map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "[half-a-unit]\nwhat = \"w\"\nfile = \"f.rs\"\nfind = \"a < b\"\n\
        replace = \"a <= b\"\nkillers = [{ package = \"p\", test = \"t\" }, { simulator = \"0..9\" }]\n";

    #[test]
    fn a_mutant_is_read_and_put_in_where_its_text_occurs_once() {
        let mutants = parse("tests/mutants/log.toml", ONE);
        let mutant = mutants[0].as_ref().unwrap();
        assert!(mutant.is_named("half-a-unit") && mutant.is_named("log"));
        let kinds: Vec<&str> = mutant.killers.iter().map(Killer::kind).collect();
        assert_eq!(kinds, [UNIT, SIMULATOR]);
        assert_eq!(mutant.changed("if a < b {").unwrap(), "if a <= b {");
        assert!(mutant.changed("if a > b {").unwrap_err().contains("is not in f.rs"));
        assert!(mutant.changed("a < b && a < b").unwrap_err().contains("2 times"));
    }

    #[test]
    fn seeds_are_of_the_model_unless_another_kind_is_named() {
        let read = |text: &str| parse("tests/mutants/log.toml", text).remove(0).unwrap().killers;
        assert_eq!(read(ONE)[1].to_string(), "simulator, model, seeds 0..9");
        let cluster = read(&ONE.replace("\"0..9\"", "\"0..9\", kind = \"cluster\""));
        assert_eq!(cluster[1].to_string(), "simulator, cluster, seeds 0..9");
    }

    #[test]
    fn what_is_missing_or_unknown_is_said() {
        for (from, to, why) in [
            ("what = ", "why = ", "`why` is none of"),
            ("find = \"a < b\"\n", "", "it has no `find`"),
            ("{ simulator = \"0..9\" }", "{ seeds = \"0..9\" }", "a killer is"),
            ("\"0..9\" }", "\"0..9\", kind = \"cloud\" }", "a killer is"),
            ("killers = ", "survives = \"x\" # ", ""),
            ("killers = ", "# ", "neither"),
        ] {
            let text = ONE.replace(from, to);
            let parsed = parse("tests/mutants/log.toml", &text).remove(0);
            match why {
                "" => assert_eq!(parsed.unwrap().survives.as_deref(), Some("x")),
                why => assert!(parsed.unwrap_err().contains(why), "{why}"),
            }
        }
    }
}
