//! One broken rule, shown as compilers show errors so that editors can jump to it.

use std::fmt;

/// Where a rule is broken, and how to mend it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// Path from the root of the project, with `/`.
    pub(crate) path: String,
    /// Counted from 1; 0 when the whole file is meant.
    pub(crate) line: usize,
    /// The rule and what to do, in one line.
    pub(crate) what: String,
}

impl Finding {
    /// Of a whole file.
    pub(crate) fn file(path: &str, what: impl Into<String>) -> Finding {
        Finding { path: path.to_owned(), line: 0, what: what.into() }
    }

    /// Of one line (`line` counts from 1).
    pub(crate) fn line(path: &str, line: usize, what: impl Into<String>) -> Finding {
        Finding { path: path.to_owned(), line, what: what.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(out, "{}: {}", self.path, self.what),
            line => write!(out, "{}:{line}: {}", self.path, self.what),
        }
    }
}
