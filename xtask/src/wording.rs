//! Counts the words that only this project uses where the field has others, per 1,000 words of
//! prose.
//!
//! A newcomer searches for "follower" or "hard state" and does not find "who lags" or "what is
//! kept". The count shows whether prose moves towards the field's words; it judges no sentence:
//! "who" has its right uses, so the share is what counts. Prose is the comments of Rust files, and
//! Markdown without its code blocks and code spans. Tidy holds both to a ceiling, so that the share
//! does not grow again.

use std::collections::BTreeMap;

use crate::finding::Finding;
use crate::source::Source;
use crate::tree::Tree;

/// The most occurrences in 100,000 words of comments and of documents: what the project has
/// reached. Lower them when it falls; they are never raised.
const CEILINGS: [usize; 2] = [60, 55];

/// The parts of the prose, in the order of [`CEILINGS`].
const PARTS: [&str; 2] = ["comments", "documents"];

/// Words and phrases, in lower case. One entry counts all its forms.
const IDIOLECT: &[(&str, &[&str])] = &[
    ("who", &["who", "whoever", "whom", "whose"]),
    ("nobody", &["nobody", "somebody", "everybody", "anybody"]),
    ("told", &["told", "tell", "tells", "telling"]),
    ("brought", &["brought", "brings", "bring"]),
    ("begin again", &["begin again", "begins again", "began again", "beginning again"]),
    ("room", &["room", "rooms"]),
    ("place", &["place", "places"]),
];

/// Words of some prose, and how many of them are idiolect.
#[derive(Debug, Default, PartialEq, Eq)]
struct Count {
    words: usize,
    of_idiolect: BTreeMap<&'static str, usize>,
}

/// The table that `cargo xtask words` prints; with `files`, also the files with most, most first.
pub(crate) fn report(tree: &Tree, files: usize) -> String {
    let (counts, mut by_file) = measure(tree);
    let mut table = format!("{:<14}{:>10}{:>10}{:>10}\n", "prose", "words", "idiolect", "/ 1,000");
    for (name, count) in PARTS.iter().zip(&counts) {
        row(&mut table, name, count.words, count.all(), count.words);
        for (word, _) in IDIOLECT {
            let found = count.of_idiolect.get(word).copied().unwrap_or(0);
            row(&mut table, &format!("  {word}"), 0, found, count.words);
        }
    }
    by_file.sort_by(|a, b| b.cmp(a));
    for (found, path) in by_file.iter().take(files) {
        table.push_str(&format!("{found:>6}  {path}\n"));
    }
    table
}

/// The rule: neither part has more than its ceiling.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    above(tree, CEILINGS)
}

fn above(tree: &Tree, ceilings: [usize; 2]) -> Vec<Finding> {
    let (counts, mut by_file) = measure(tree);
    by_file.sort_by(|a, b| b.cmp(a));
    let most = by_file.first().map_or("", |(_, path)| path);
    let mut findings = Vec::new();
    for ((part, count), ceiling) in PARTS.iter().zip(&counts).zip(ceilings) {
        let share = share(count.all(), count.words);
        if share > ceiling {
            let what = format!(
                "{part}: {} words of 1,000 are the project's own where the field has others \
                 (who, nobody, told, ...); at most {} may be: `cargo xtask words 20` lists the files",
                decimal(share),
                decimal(ceiling)
            );
            findings.push(Finding::file(most, what));
        }
    }
    findings
}

/// The counts of comments and documents, and the occurrences in each file.
fn measure(tree: &Tree) -> ([Count; 2], Vec<(usize, &str)>) {
    let mut counts = [Count::default(), Count::default()];
    let mut by_file: Vec<(usize, &str)> = Vec::new();
    for (extension, part) in [("rs", 0), ("md", 1)] {
        for (path, text) in tree.with_extension(extension) {
            let prose = if part == 0 { Source::of(text).comments } else { markdown(text) };
            let count = count(&prose);
            by_file.push((count.all(), path));
            counts[part].add(&count);
        }
    }
    (counts, by_file)
}

/// Hundredths of one in a thousand, rounded: no float is needed for two decimals.
fn share(found: usize, of: usize) -> usize {
    (found * 200_000 + of) / (2 * of.max(1))
}

fn decimal(hundredths: usize) -> String {
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

fn row(table: &mut String, name: &str, words: usize, found: usize, of: usize) {
    let words = if words == 0 { String::new() } else { words.to_string() };
    let share = decimal(share(found, of));
    table.push_str(&format!("{name:<14}{words:>10}{found:>10}{share:>10}\n"));
}

impl Count {
    fn all(&self) -> usize {
        self.of_idiolect.values().sum()
    }

    fn add(&mut self, other: &Count) {
        self.words += other.words;
        for (word, found) in &other.of_idiolect {
            *self.of_idiolect.entry(word).or_default() += found;
        }
    }
}

fn count(prose: &str) -> Count {
    let words: Vec<String> = prose
        .split(|letter: char| !letter.is_alphanumeric() && letter != '\'')
        .filter(|word| word.chars().any(char::is_alphabetic))
        .map(str::to_lowercase)
        .collect();
    let mut count = Count { words: words.len(), of_idiolect: BTreeMap::new() };
    for (name, forms) in IDIOLECT {
        let is_form = |form: &&str| -> usize {
            let parts: Vec<&str> = form.split(' ').collect();
            words.windows(parts.len()).filter(|window| window.iter().eq(&parts)).count()
        };
        let found = forms.iter().map(is_form).sum();
        count.of_idiolect.insert(name, found);
    }
    count
}

/// Markdown without code blocks and code spans.
fn markdown(text: &str) -> String {
    let mut is_code = false;
    let mut prose = String::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            for (number, span) in line.split('`').enumerate() {
                prose.push_str(if number % 2 == 0 { span } else { " " });
            }
            prose.push('\n');
        }
    }
    prose
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tests::tree;

    #[test]
    fn words_are_counted_in_prose_only() {
        let counted =
            count("Who is told? Whoever begins again; this room, and `room`, no mushroom.");
        assert_eq!(counted.words, 12);
        let found: Vec<usize> =
            ["who", "told", "begin again", "room", "place"].map(|w| counted.of_idiolect[w]).into();
        assert_eq!(found, [2, 1, 1, 2, 0]);
        assert_eq!(markdown("a `who` b\n```\nwho\n```\nc").split_whitespace().count(), 3);
    }

    #[test]
    fn the_table_gives_the_share_of_a_thousand_words() {
        let comment = format!("// {}nobody\nlet who = 1;", "word ".repeat(499));
        let report = report(&tree(&[("a.rs", &comment), ("b.md", "`who` is it")]), 1);
        assert!(report.contains("comments             500         1      2.00"), "{report}");
        assert!(report.contains("documents              2         0      0.00"), "{report}");
        assert!(report.ends_with("     1  a.rs\n"), "{report}");
    }

    #[test]
    fn each_part_has_a_ceiling() {
        let comment = format!("// {}nobody", "word ".repeat(499));
        let tree = tree(&[("a.rs", &comment), ("b.md", "Whose is it")]);
        assert_eq!(above(&tree, [200, 33_333]), []);
        let lines: Vec<String> =
            above(&tree, [199, 33_332]).iter().map(Finding::to_string).collect();
        assert!(lines[0].starts_with("b.md: comments: 2.00 words of 1,000 are"), "{lines:?}");
        assert!(lines[1].contains("documents: 333.33 words") && lines[1].contains("most 333.32"));
        assert_eq!(lines.len(), 2);
    }
}
