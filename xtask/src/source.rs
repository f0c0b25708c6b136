//! A Rust file with code, comments and strings separated, so that a rule about code does not trip
//! over a word in a comment, and the other way round.
//!
//! It is a lexer for exactly that and no parser: it knows comments (nested), strings (raw, byte and
//! C strings too), characters and lifetimes. Both texts keep the lines and columns of the original.

/// One Rust file, taken apart.
#[derive(Debug)]
pub(crate) struct Source {
    /// The code; comments and the insides of strings are blanks.
    pub(crate) code: String,
    /// The comments; all else is blanks.
    pub(crate) comments: String,
}

/// One function and the size of its body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Function {
    /// Its name.
    pub(crate) name: String,
    /// Line of the word `fn`, counted from 1.
    pub(crate) line: usize,
    /// Lines between its braces that hold code (as clippy's `too_many_lines` counts).
    pub(crate) code_lines: usize,
}

/// What the lexer is inside of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Inside {
    Code,
    LineComment,
    BlockComment { depth: usize },
    Text,
    RawText { hashes: usize },
}

impl Source {
    /// Takes a file apart. Any text is accepted; nonsense yields nonsense of the same shape.
    pub(crate) fn of(text: &str) -> Source {
        let letters: Vec<char> = text.chars().collect();
        let mut split = Source { code: String::new(), comments: String::new() };
        let mut inside = Inside::Code;
        let mut at = 0;
        while at < letters.len() {
            let rest = &letters[at..];
            let (next, taken, is_code) = lex(inside, rest, at.checked_sub(1).map(|i| letters[i]));
            let is_comment = matches!(inside, Inside::LineComment | Inside::BlockComment { .. })
                || matches!(next, Inside::LineComment | Inside::BlockComment { .. });
            for letter in &rest[..taken] {
                split.code.push(if is_code || *letter == '\n' { *letter } else { ' ' });
                split.comments.push(if is_comment || *letter == '\n' { *letter } else { ' ' });
            }
            inside = next;
            at += taken;
        }
        split
    }

    /// The code without `#[cfg(test)]` items (blanked, so that lines stay what they were).
    pub(crate) fn code_without_tests(&self) -> String {
        let mut code = self.code.clone();
        for mark in ["#[cfg(test)]", "#[cfg(any(test"] {
            while let Some(start) = code.find(mark) {
                let end = item_end(&code, start).unwrap_or(code.len());
                let blank: String =
                    code[start..end].chars().map(|c| if c == '\n' { c } else { ' ' }).collect();
                code.replace_range(start..end, &blank);
            }
        }
        code
    }

    /// All functions with a body, nested ones too, in order.
    pub(crate) fn functions(&self) -> Vec<Function> {
        let mut functions = Vec::new();
        for (start, word) in words(&self.code) {
            if word != "fn" {
                continue;
            }
            let after = self.code[start + 2..].trim_start();
            let name: String = after.chars().take_while(|c| is_word(*c)).collect();
            if name.is_empty() {
                continue;
            }
            let Some((open, close)) = body(&self.code, start) else { continue };
            let lines = self.code[open + 1..close].lines();
            functions.push(Function {
                name,
                line: line_of(&self.code, start),
                code_lines: lines.filter(|line| !line.trim().is_empty()).count(),
            });
        }
        functions
    }
}

/// Words (identifiers, keywords, numbers) with the byte where each starts.
pub(crate) fn words(code: &str) -> impl Iterator<Item = (usize, &str)> {
    code.split(|c| !is_word(c))
        .filter(|word| !word.is_empty())
        .map(|word| (word.as_ptr() as usize - code.as_ptr() as usize, word))
}

/// The line of a byte position, counted from 1.
pub(crate) fn line_of(text: &str, position: usize) -> usize {
    text[..position].bytes().filter(|byte| *byte == b'\n').count() + 1
}

fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// One step of the lexer: what it is inside of next, how many letters it took, whether they are
/// code.
fn lex(inside: Inside, rest: &[char], before: Option<char>) -> (Inside, usize, bool) {
    let starts = |text: &str| text.chars().enumerate().all(|(i, c)| rest.get(i) == Some(&c));
    match inside {
        Inside::Code if starts("//") => (Inside::LineComment, 2, false),
        Inside::Code if starts("/*") => (Inside::BlockComment { depth: 1 }, 2, false),
        Inside::Code if starts("\"") => (Inside::Text, 1, true),
        Inside::Code if starts("'") => (Inside::Code, character_length(rest), true),
        Inside::Code => match raw_text_start(rest, before) {
            Some((hashes, taken)) => (Inside::RawText { hashes }, taken, true),
            None => (Inside::Code, 1, true),
        },
        Inside::LineComment if starts("\n") => (Inside::Code, 1, true),
        Inside::LineComment => (Inside::LineComment, 1, false),
        Inside::BlockComment { depth } if starts("/*") => {
            (Inside::BlockComment { depth: depth + 1 }, 2, false)
        }
        Inside::BlockComment { depth: 1 } if starts("*/") => (Inside::Code, 2, false),
        Inside::BlockComment { depth } if starts("*/") => {
            (Inside::BlockComment { depth: depth - 1 }, 2, false)
        }
        Inside::BlockComment { depth } => (Inside::BlockComment { depth }, 1, false),
        Inside::Text if starts("\\") => (Inside::Text, rest.len().min(2), false),
        Inside::Text if starts("\"") => (Inside::Code, 1, true),
        Inside::Text => (Inside::Text, 1, false),
        Inside::RawText { hashes } => {
            let end = format!("\"{}", "#".repeat(hashes));
            if starts(&end) { (Inside::Code, 1 + hashes, true) } else { (inside, 1, false) }
        }
    }
}

/// Letters of a character literal, or 1 for the quote of a lifetime.
fn character_length(rest: &[char]) -> usize {
    match (rest.get(1), rest.get(2)) {
        (Some('\\'), Some(_)) => {
            let end = rest.iter().skip(3).position(|letter| *letter == '\'');
            end.map_or(1, |position| position + 4)
        }
        (Some(_), Some('\'')) => 3,
        _ => 1,
    }
}

/// `r"`, `r#"`, `br##"`...: the number of hashes and the letters up to and with the quote.
fn raw_text_start(rest: &[char], before: Option<char>) -> Option<(usize, usize)> {
    let prefix = match rest {
        ['r', ..] => 1,
        ['b' | 'c', 'r', ..] => 2,
        _ => return None,
    };
    let hashes = rest.iter().skip(prefix).take_while(|letter| **letter == '#').count();
    let is_start = rest.get(prefix + hashes) == Some(&'"') && !before.is_some_and(is_word);
    is_start.then_some((hashes, prefix + hashes + 1))
}

/// The braces of the body that follows `start`; `None` when a `;` ends the item before any.
fn body(code: &str, start: usize) -> Option<(usize, usize)> {
    let mut nesting = 0_usize;
    for (offset, letter) in code[start..].char_indices() {
        match letter {
            '(' | '[' => nesting += 1,
            ')' | ']' => nesting = nesting.saturating_sub(1),
            ';' if nesting == 0 => return None,
            '{' if nesting == 0 => {
                let open = start + offset;
                return closing_brace(code, open).map(|close| (open, close));
            }
            _ => {}
        }
    }
    None
}

fn closing_brace(code: &str, open: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (offset, letter) in code[open..].char_indices() {
        match letter {
            '{' => depth += 1,
            '}' if depth == 1 => return Some(open + offset),
            '}' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// The end of the item that an attribute at `start` belongs to.
fn item_end(code: &str, start: usize) -> Option<usize> {
    match body(code, start) {
        Some((_, close)) => Some(close + 1),
        None => code[start..].find(';').map(|offset| start + offset + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_strings_are_not_code() {
        let source =
            Source::of("let a = \"fn x() {\"; // fn y() {\n/* a /* b */ c */ let c = '{';");
        assert!(!source.code.contains("fn"), "{}", source.code);
        assert!(source.code.contains("let c"), "{}", source.code);
        assert!(source.comments.contains("fn y() {"), "{}", source.comments);
    }

    #[test]
    fn raw_strings_end_at_their_own_hashes() {
        let source = Source::of("let a = r#\"quote \" // no comment\"#; done();");
        assert!(source.code.contains("done();"), "{}", source.code);
        assert_eq!(source.comments.trim(), "");
    }

    #[test]
    fn a_lifetime_is_not_the_start_of_a_character() {
        let source = Source::of("fn f<'a>(x: &'a str) -> char { '\\'' } // end");
        assert!(source.code.contains("str) -> char {"), "{}", source.code);
        assert_eq!(source.comments.trim(), "// end");
    }

    #[test]
    fn lines_and_columns_stay() {
        let text = "a // one\n\"two\nthree\" b\n";
        let source = Source::of(text);
        assert_eq!(source.code.lines().count(), text.lines().count());
        assert_eq!(source.code.find('b'), text.find('b'));
    }

    #[test]
    fn a_body_is_counted_without_blank_lines_and_comments() {
        let source =
            Source::of("fn long(a: [u8; 2]) {\n  one();\n\n  // why\n  two();\n}\nfn no();");
        let expected = Function { name: "long".to_owned(), line: 1, code_lines: 2 };
        assert_eq!(source.functions(), [expected]);
    }

    #[test]
    fn test_modules_are_blanked() {
        let source = Source::of("a();\n#[cfg(test)]\nmod tests { use std::fs; }\nb();");
        let code = source.code_without_tests();
        assert!(!code.contains("std::fs") && code.contains("b();"), "{code}");
        let outside = Source::of("#[cfg(test)]\nmod tests;\nb();").code_without_tests();
        assert!(!outside.contains("tests") && outside.contains("b();"), "{outside}");
    }
}
