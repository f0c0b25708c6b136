//! `towline user`: a line of a server's users file, printed or put into the file. Makes no
//! connection: a server reads the file when it starts, and on SIGHUP.
//!
//! Invariants: other lines of the file stay as they are; it is replaced whole or not at all; one
//! that is made here only its owner can read.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, IsTerminal, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use serde_json::json;
use towline_client::user_line;

use crate::arguments::User;
use crate::failure::Failure;
use crate::{reach, show};

/// Runs the command.
pub(crate) fn run(arguments: &User) -> Result<(), Failure> {
    let password = password(arguments)?;
    let line = user_line(&arguments.name, &password, arguments.iterations);
    let line = line.map_err(Failure::Usage)?;
    let (name, json) = (&arguments.name, arguments.json);
    match &arguments.file {
        None if json => show::json(&json!({ "user": name, "line": line })),
        None => show::line(&line),
        Some(file) => {
            let kept = keep(file, name, &line);
            kept.map_err(|error| Failure::about(file.display(), error))?;
            match json {
                true => show::json(&json!({ "user": name, "file": file })),
                false => Ok(()),
            }
        }
    }
}

fn password(arguments: &User) -> Result<String, Failure> {
    if let Some(password) = reach::given_password(arguments.password_file.as_deref())? {
        return Ok(password);
    }
    let input = std::io::stdin();
    if input.is_terminal() {
        return asked_twice(&arguments.name);
    }
    let mut line = String::new();
    input.lock().read_line(&mut line)?;
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}

/// The password is not shown while it is typed, so it is typed twice.
fn asked_twice(name: &str) -> Result<String, Failure> {
    let password = reach::prompt(&format!("Password of {name}"))?;
    let again = reach::prompt("Once more")?;
    if password != again {
        return Err(Failure::Usage("the two passwords differ".into()));
    }
    Ok(password)
}

/// Puts the line into the file, which is made when it is not there.
fn keep(file: &Path, name: &str, line: &str) -> std::io::Result<()> {
    let (text, before) = match File::open(file) {
        Ok(open) => (std::io::read_to_string(&open)?, Some(open.metadata()?)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => (String::new(), None),
        Err(error) => return Err(error),
    };
    let mut beside = file.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside);
    let mut new = made.map_err(|error| {
        let hint = match error.kind() {
            std::io::ErrorKind::AlreadyExists => " (is another `towline user` running?)",
            std::io::ErrorKind::NotFound => " (the folder does not exist)",
            _ => "",
        };
        let why = format!("{}: {error}{hint}", beside.display());
        std::io::Error::new(error.kind(), why)
    })?;
    let written = write(&mut new, &with(&text, name, line), before.as_ref());
    written.and_then(|()| std::fs::rename(&beside, file)).inspect_err(|_| {
        // What is half done must not stand in the way of the next try.
        std::fs::remove_file(&beside).ok();
    })
}

fn write(new: &mut File, text: &str, before: Option<&std::fs::Metadata>) -> std::io::Result<()> {
    if let Some(before) = before {
        // The server may run as another user, and must still be able to read it.
        let ours = new.metadata()?;
        if (ours.uid(), ours.gid()) != (before.uid(), before.gid()) {
            fchown(&*new, Some(before.uid()), Some(before.gid()))?;
        }
        // Never more than before, and no rights for others.
        new.set_permissions(PermissionsExt::from_mode(before.mode() & 0o660))?;
    }
    new.write_all(text.as_bytes())?;
    new.sync_all()
}

/// The text of the file with the line in it: where that name stood, or else at the end.
fn with(text: &str, name: &str, line: &str) -> String {
    let mut result = String::with_capacity(text.len() + line.len() + 1);
    let mut found = false;
    for old in text.lines() {
        let same = old.trim_start().split_once(':').is_some_and(|(user, _)| user == name);
        if same && found {
            continue;
        }
        result.push_str(if same { line } else { old });
        result.push('\n');
        found |= same;
    }
    if !found {
        result.push_str(line);
        result.push('\n');
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_added_or_replaces_the_one_of_that_name() {
        let file = "# ours\nalice:1\nbob:1";
        assert_eq!(with(file, "carol", "carol:2"), "# ours\nalice:1\nbob:1\ncarol:2\n");
        assert_eq!(with(file, "alice", "alice:2"), "# ours\nalice:2\nbob:1\n");
        assert_eq!(with("a:1\nb:1\na:2\n", "a", "a:3"), "a:3\nb:1\n", "a doubled one goes");
        assert_eq!(with("", "alice", "alice:1"), "alice:1\n");
    }

    #[test]
    fn what_stands_in_the_way_of_a_users_file_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let why = keep(&folder.path().join("none/users"), "a", "a:1").unwrap_err().to_string();
        assert!(why.contains("the folder does not exist") && !why.contains("another"), "{why}");
        std::fs::write(folder.path().join("users.new"), "").unwrap();
        let why = keep(&folder.path().join("users"), "a", "a:1").unwrap_err().to_string();
        assert!(why.contains("is another `towline user` running?"), "{why}");
    }

    #[test]
    fn a_new_file_is_its_owners_only_and_an_old_one_keeps_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("users");
        let mode = || std::fs::metadata(&file).unwrap().mode() & 0o777;
        keep(&file, "alice", "alice:1").unwrap();
        assert_eq!(mode(), 0o600);
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o640)).unwrap();
        keep(&file, "bob", "bob:1").unwrap();
        assert_eq!(mode(), 0o640);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "alice:1\nbob:1\n");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
    }
}
