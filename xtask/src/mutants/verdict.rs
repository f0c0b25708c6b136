//! What came of each mutant, as a table of at most 80 columns or as JSON.
//!
//! Not here: running anything.

use std::time::Duration;

use serde_json::{Value as Json, json};

use super::list::Mutant;

/// Widths of the columns: name, by what, after how many seconds. With two spaces between: 80.
const NAME: usize = 34;
const BY: usize = 36;
const SECONDS: usize = 6;

/// What came of a mutant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// A killer of this kind failed: this test, or this seed.
    Killed { kind: &'static str, by: String },
    /// All its killers succeeded.
    Survived,
    /// It has no killers, or none of the chosen kind.
    NotTried,
    /// What the compiler said.
    DoesNotBuild(String),
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Verdict {
    pub(crate) mutant: Mutant,
    pub(crate) fate: Fate,
    /// Time to build what its killers need.
    pub(crate) build: Duration,
    /// Time that its killers ran.
    pub(crate) ran: Duration,
}

impl Verdict {
    fn is_survivor(&self) -> bool {
        match self.fate {
            Fate::Survived => true,
            Fate::NotTried => self.mutant.survives.is_some(),
            Fate::Killed { .. } | Fate::DoesNotBuild(_) => false,
        }
    }

    fn by(&self) -> String {
        match (&self.fate, &self.mutant.survives) {
            (Fate::Killed { by, .. }, None) => by.clone(),
            (Fate::Killed { by, .. }, Some(_)) => format!("{by} (its `survives` is out of date)"),
            (Fate::Survived | Fate::NotTried, Some(why)) => format!("SURVIVED: {why}"),
            (Fate::Survived, None) => "SURVIVED".into(),
            (Fate::NotTried, None) => "no killer of this kind".into(),
            (Fate::DoesNotBuild(_), _) => "ERROR: does not build".into(),
        }
    }

    /// For the progress.
    pub(crate) fn in_one_line(&self) -> String {
        let (build, ran) = (self.build.as_secs_f64(), self.ran.as_secs_f64());
        let line = format!(
            "{}: {}, {ran:.1} s, after {build:.1} s of building",
            self.mutant.name,
            self.by()
        );
        match &self.fate {
            Fate::DoesNotBuild(why) => format!("{line}\n{why}"),
            Fate::Killed { .. } | Fate::Survived | Fate::NotTried => line,
        }
    }
}

/// 0: all were killed; 1: one survives; 3: something is wrong with one, or with a killer.
pub(crate) fn exit_status(verdicts: &[Verdict], killers_are_well: bool) -> u8 {
    if !killers_are_well || verdicts.iter().any(|it| matches!(it.fate, Fate::DoesNotBuild(_))) {
        3
    } else {
        u8::from(verdicts.iter().any(Verdict::is_survivor))
    }
}

pub(crate) fn table(verdicts: &[Verdict], took: Duration) -> String {
    let mut text = format!("\n{:NAME$}  {:BY$}  {:>SECONDS$}\n", "mutant", "killed by", "s");
    for verdict in verdicts {
        let seconds = match verdict.fate {
            Fate::NotTried | Fate::DoesNotBuild(_) => String::new(),
            Fate::Killed { .. } | Fate::Survived => format!("{:.1}", verdict.ran.as_secs_f64()),
        };
        let (names, bys) = (wrapped(&verdict.mutant.name, NAME), wrapped(&verdict.by(), BY));
        for line in 0..names.len().max(bys.len()) {
            let cell = |of: &[String]| of.get(line).cloned().unwrap_or_default();
            let seconds = if line == 0 { seconds.as_str() } else { "" };
            let row = format!("{:NAME$}  {:BY$}  {seconds:>SECONDS$}", cell(&names), cell(&bys));
            text.push_str(row.trim_end());
            text.push('\n');
        }
    }
    let survivors = verdicts.iter().filter(|it| it.is_survivor()).count();
    let killed = verdicts.iter().filter(|it| matches!(it.fate, Fate::Killed { .. })).count();
    let (build, ran) = sums(verdicts);
    text.push_str(&format!(
        "\n{killed} of {} killed, {survivors} survived; {:.0} s, of which {build:.0} s building and \
         {ran:.0} s testing\n",
        verdicts.len(),
        took.as_secs_f64(),
    ));
    text
}

pub(crate) fn as_json(verdicts: &[Verdict], took: Duration) -> Json {
    let mutants: Vec<Json> = verdicts
        .iter()
        .map(|verdict| {
            let Verdict { mutant, fate, build, ran } = verdict;
            let (state, kind, by) = match fate {
                Fate::Killed { kind, by } => ("killed", Some(*kind), Some(by.as_str())),
                Fate::Survived => ("survived", None, None),
                Fate::NotTried => ("not tried", None, None),
                Fate::DoesNotBuild(why) => ("does not build", None, Some(why.as_str())),
            };
            json!({
                "name": mutant.name, "list": mutant.list, "what": mutant.what, "file": mutant.file,
                "state": state, "kind": kind, "by": by, "survives": mutant.survives,
                "seconds": ran.as_secs_f64(), "build_seconds": build.as_secs_f64(),
            })
        })
        .collect();
    let (build, ran) = sums(verdicts);
    json!({
        "mutants": mutants, "seconds": took.as_secs_f64(),
        "build_seconds": build, "test_seconds": ran,
    })
}

/// Seconds of building and of testing.
fn sums(verdicts: &[Verdict]) -> (f64, f64) {
    verdicts.iter().fold((0.0, 0.0), |(build, ran), it| {
        (build + it.build.as_secs_f64(), ran + it.ran.as_secs_f64())
    })
}

/// Lines of at most `width` columns. Names of tests are long words: they are parted behind `_`, `-`
/// and `:` too.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for piece in text.split_inclusive([' ', '_', '-', ':']) {
        for part in parts(piece, width) {
            let fits = lines.last().is_some_and(|line| {
                line.chars().count() + part.trim_end().chars().count() <= width
            });
            match lines.last_mut() {
                Some(line) if fits => line.push_str(&part),
                _ => lines.push(part),
            }
        }
    }
    lines.iter().map(|line| line.trim_end().to_owned()).collect()
}

/// A piece in parts that fit.
fn parts(piece: &str, width: usize) -> Vec<String> {
    let letters: Vec<char> = piece.chars().collect();
    letters.chunks(width).map(|part| part.iter().collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(fate: Fate, survives: Option<&str>) -> Verdict {
        let mutant = Mutant {
            name: "a-vote-that-is-kept-without-a-sync-of-the-file".into(),
            list: "replication".into(),
            what: "w".into(),
            file: "f".into(),
            find: "a".into(),
            replace: "b".into(),
            killers: Vec::new(),
            survives: survives.map(str::to_owned),
        };
        let ran = Duration::from_millis(1_234);
        Verdict { mutant, fate, build: Duration::from_secs(2), ran }
    }

    fn killed(by: &str) -> Verdict {
        verdict(Fate::Killed { kind: "unit", by: by.into() }, None)
    }

    #[test]
    fn the_table_has_80_columns_and_loses_nothing_of_a_long_name() {
        let by = "hard_state_file::tests::a_slot_that_is_not_known_to_be_synced_is_synced_first";
        let table =
            table(&[killed(by), verdict(Fate::NotTried, Some("it is new"))], Duration::ZERO);
        assert!(table.lines().take(8).all(|line| line.chars().count() <= 80), "{table}");
        let joined: String =
            table.lines().map(|line| line.chars().skip(36).take(36).collect::<String>()).collect();
        let joined: String = joined.split_whitespace().collect();
        assert!(joined.contains(by), "{joined}");
        assert!(
            table.contains("SURVIVED: it is new") && table.contains("1 of 2 killed"),
            "{table}"
        );
    }

    #[test]
    fn a_survivor_makes_the_status_1_also_when_it_is_known_and_an_error_3() {
        let survivor = verdict(Fate::Survived, None);
        let known = verdict(Fate::NotTried, Some("why"));
        let broken = verdict(Fate::DoesNotBuild("E1".into()), None);
        let other_kind = verdict(Fate::NotTried, None);
        assert_eq!(exit_status(&[killed("t"), other_kind], true), 0);
        assert_eq!(exit_status(&[killed("t"), survivor.clone()], true), 1);
        assert_eq!(exit_status(&[known], true), 1);
        assert_eq!(exit_status(&[broken.clone(), survivor], true), 3);
        assert_eq!(exit_status(&[killed("t")], false), 3, "a killer fails without a mutant");
        assert!(broken.in_one_line().ends_with("E1"));
    }

    #[test]
    fn the_json_says_what_killed_each() {
        let json = as_json(&[killed("a::b")], Duration::from_secs(9));
        assert_eq!((&json["seconds"], &json["build_seconds"]), (&json!(9.0), &json!(2.0)));
        let mutant = &json["mutants"][0];
        assert_eq!((&mutant["state"], &mutant["by"]), (&json!("killed"), &json!("a::b")));
    }
}
