//! A copy of the tree, in which one mutant after the other is put, and what is built of it.
//!
//! ```text
//! target/mutants/N/tree     the copy; a file is written only when it differs, so that little is built
//! target/mutants/N/target   what cargo builds of it; stays for the next run
//! target/mutants/N/scratch  temporary files of the tests; emptied after each
//! ```
//!
//! Not here: running what was built. Invariants: one process at a time has a copy; outside it
//! nothing is written.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use super::list::{Killer, Mutant};
use crate::test_programs::{Program, programs_of};
use crate::tree::{Tree, project_root};

/// The profile of the simulator (Cargo.toml): quick to build, and quick enough.
const PROFILE: &str = "mutants";
const SIMULATOR: &str = "towline-sim";

/// See the module.
pub(crate) struct Workshop {
    folder: PathBuf,
    /// Programs that were built since the tree last changed.
    built: HashMap<(String, Option<String>), Program>,
    _lock: File,
}

impl Workshop {
    /// Copy number `number`, as the tree stands now.
    ///
    /// # Errors
    /// When another process has it, or it cannot be written.
    pub(crate) fn open(number: usize) -> io::Result<Workshop> {
        let root = project_root();
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or("target".into(), PathBuf::from);
        let folder = root.join(target).join("mutants").join(number.to_string());
        fs::create_dir_all(folder.join("tree"))?;
        let lock = File::create(folder.join("lock"))?;
        lock.try_lock()
            .map_err(|_| io::Error::other(format!("another run uses {}", folder.display())))?;
        let workshop = Workshop { folder, built: HashMap::new(), _lock: lock };
        copy(&root, &workshop.tree())?;
        workshop.clear_scratch()?;
        Ok(workshop)
    }

    /// The copy.
    pub(crate) fn tree(&self) -> PathBuf {
        self.folder.join("tree")
    }

    /// For temporary files.
    pub(crate) fn scratch(&self) -> PathBuf {
        self.folder.join("scratch")
    }

    /// Removes what a test left, and makes the folder.
    ///
    /// # Errors
    /// What the system said.
    pub(crate) fn clear_scratch(&self) -> io::Result<()> {
        match fs::remove_dir_all(self.scratch()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        fs::create_dir_all(self.scratch())
    }

    /// Puts the bug into the copy.
    ///
    /// # Errors
    /// When it cannot be put in.
    pub(crate) fn put_in(&mut self, mutant: &Mutant) -> io::Result<()> {
        let path = self.tree().join(&mutant.file);
        let changed = mutant.changed(&fs::read_to_string(&path)?);
        let changed = changed.map_err(|why| io::Error::other(format!("{}: {why}", mutant.name)))?;
        self.built.clear();
        fs::write(path, changed)
    }

    /// Takes the bug out of it.
    ///
    /// # Errors
    /// What the system said.
    pub(crate) fn take_out(&mut self, mutant: &Mutant) -> io::Result<()> {
        self.built.clear();
        copy_file(&project_root().join(&mutant.file), &self.tree().join(&mutant.file))
    }

    /// Builds the program of a killer, and nothing else.
    ///
    /// # Errors
    /// The end of what cargo said.
    pub(crate) fn program(&mut self, killer: &Killer) -> io::Result<Program> {
        let key = match killer {
            Killer::Unit { package, target, .. } => (package.clone(), target.clone()),
            Killer::Simulator { .. } => (SIMULATOR.to_owned(), Some(PROFILE.to_owned())),
        };
        if let Some(program) = self.built.get(&key) {
            return Ok(program.clone());
        }
        let program = match killer {
            Killer::Unit { package, target, .. } => self.test_program(package, target.as_deref()),
            Killer::Simulator { .. } => self.simulator(),
        }?;
        self.built.insert(key, program.clone());
        Ok(program)
    }

    fn test_program(&self, package: &str, target: Option<&str>) -> io::Result<Program> {
        let mut arguments = vec!["test", "--no-run", "--package", package];
        match target {
            Some(target) => arguments.extend(["--test", target]),
            None => arguments.push("--lib"),
        }
        arguments.push("--message-format=json-render-diagnostics");
        let output = self.cargo(&arguments)?;
        let programs = programs_of(&String::from_utf8_lossy(&output.stdout))?;
        programs.into_iter().next().ok_or_else(|| io::Error::other("nothing was built"))
    }

    fn simulator(&self) -> io::Result<Program> {
        self.cargo(&["build", "--profile", PROFILE, "--package", SIMULATOR, "--bin", SIMULATOR])?;
        let executable = self.folder.join("target").join(PROFILE).join(SIMULATOR);
        Ok(Program {
            package: SIMULATOR.into(),
            name: SIMULATOR.into(),
            executable,
            folder: self.tree(),
        })
    }

    fn cargo(&self, arguments: &[&str]) -> io::Result<Output> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let output = Command::new(cargo)
            .args(arguments)
            .arg("--locked")
            .current_dir(self.tree())
            .env("CARGO_TARGET_DIR", self.folder.join("target"))
            // No debugger looks at them, and they are linked again and again.
            .env("CARGO_PROFILE_DEV_DEBUG", "none")
            .envs(without_warnings())
            .stdin(Stdio::null())
            .output()?;
        match output.status.success() {
            true => Ok(output),
            false => Err(io::Error::other(end_of(&String::from_utf8_lossy(&output.stderr)))),
        }
    }
}

/// What a mutant leaves unused is no error of it, though lints of the project deny it.
fn without_warnings() -> [(OsString, OsString); 1] {
    [("RUSTFLAGS".into(), "--cap-lints=warn".into())]
}

/// The first error of a build, and what follows it, without the warnings before it.
fn end_of(said: &str) -> String {
    const LINES: usize = 15;
    let lines: Vec<&str> = said.lines().collect();
    let first = lines.iter().position(|line| line.starts_with("error"));
    let first = first.unwrap_or(lines.len().saturating_sub(LINES));
    lines.into_iter().skip(first).take(LINES).collect::<Vec<_>>().join("\n")
}

/// Makes `to` the same as `from`; what tools made is in neither.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let wanted = Tree::read(from)?;
    let paths: HashSet<&str> = wanted.entries.iter().map(|entry| entry.path.as_str()).collect();
    for entry in &Tree::read(to)?.entries {
        if !paths.contains(entry.path.as_str()) {
            fs::remove_file(to.join(&entry.path))?;
        }
    }
    for path in paths {
        copy_file(&from.join(path), &to.join(path))?;
    }
    Ok(())
}

/// Copies a file that differs; one that does not keeps its time, by which cargo knows it.
fn copy_file(from: &Path, to: &Path) -> io::Result<()> {
    if fs::read(to).is_ok_and(|there| fs::read(from).is_ok_and(|wanted| there == wanted)) {
        return Ok(());
    }
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::copy(from, to).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_gets_what_differs_loses_what_is_gone_and_leaves_the_rest_untouched() {
        let scratch = std::env::temp_dir().join(format!("xtask-mutants-{}", std::process::id()));
        let (from, to) = (scratch.join("from"), scratch.join("to"));
        for folder in [from.join("sub"), from.join("target"), to.clone()] {
            fs::create_dir_all(folder).unwrap();
        }
        fs::write(from.join("same.rs"), "same").unwrap();
        fs::write(from.join("sub/other.rs"), "new").unwrap();
        fs::write(from.join("target/made.rs"), "made").unwrap();
        fs::write(to.join("gone.rs"), "gone").unwrap();
        copy(&from, &to).unwrap();
        let time = |name: &str| fs::metadata(to.join(name)).unwrap().modified().unwrap();
        let before = time("same.rs");
        fs::write(to.join("sub/other.rs"), "with a bug").unwrap();
        copy(&from, &to).unwrap();
        let other = fs::read_to_string(to.join("sub/other.rs")).unwrap();
        let there = (to.join("gone.rs").exists(), to.join("target").exists());
        let after = time("same.rs");
        fs::remove_dir_all(&scratch).unwrap();
        assert_eq!((other.as_str(), there, after), ("new", (false, false), before));
    }

    #[test]
    fn of_a_failed_build_the_first_error_is_shown() {
        assert_eq!(end_of("warning: a\n\nerror[E1]: b\n --> c\n"), "error[E1]: b\n --> c");
        assert_eq!(end_of("killed"), "killed");
    }
}
