//! Words of a command that a person copies into a shell.
//!
//! Not here: running commands. (`shlex` is in the tree only to build other crates, and quotes in
//! another way than the examples of the guides.)

/// A word as a POSIX shell takes it: quoted unless it is plain.
#[must_use]
pub fn shell_word(text: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+:,@%=".contains(letter);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_word_stays_and_any_other_is_quoted() {
        let plain = "/var/lib/QM1/a._-+:,@%=";
        assert_eq!(shell_word(plain), plain);
        assert_eq!(shell_word(""), "''");
        assert_eq!(shell_word("two words; $x"), "'two words; $x'");
        assert_eq!(shell_word("it's"), r"'it'\''s'");
    }
}
