//! `towline completions` and `towline man`, made from the options themselves.

use std::io::Write;
use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::arguments::Towline;
use crate::failure::Failure;

/// Prints the completions of a shell.
pub(crate) fn completions(shell: Shell) -> Result<(), Failure> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Towline::command(), "towline", &mut text);
    Ok(std::io::stdout().lock().write_all(&text)?)
}

/// Prints the manual page of `towline`, or writes those of all commands into a folder.
pub(crate) fn manual(folder: Option<&Path>) -> Result<(), Failure> {
    match folder {
        Some(folder) => {
            std::fs::create_dir_all(folder)?;
            Ok(clap_mangen::generate_to(Towline::command(), folder)?)
        }
        None => {
            let mut text = Vec::new();
            Man::new(Towline::command()).render(&mut text)?;
            Ok(std::io::stdout().lock().write_all(&text)?)
        }
    }
}
