//! `towline completions` and `towline man`, made from the options themselves.

use std::io::Write;
use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::arguments::Towline;
use crate::failure::Failure;

/// Sections of `towline.1` that the options do not give, in roff.
const COMMON_SECTIONS: &str = "\
.SH ENVIRONMENT
.TP
.B TOWLINE_DATA
Data folder of the queue manager (--data).
.TP
.B TOWLINE_URL
Address of the queue manager (--url), where neither --data nor --url is given.
.TP
.B TOWLINE_PASSWORD
Password, where --password-file is not given.
.TP
.B TOWLINE_LOG, TOWLINE_LOG_FORMAT
Log level (error, warn, info, debug, trace) and format (text, json) of towline run.
.TP
.B NO_COLOR
When set, the log has no colours.
.SH FILES
.TP
.B ./data/QM1
Default data folder: the recovery log in log/, the local socket towline.sock, the name in name.
.TP
.B /etc/towline/towline.toml
Configuration of the systemd unit (towline run --config).
.TP
.B /var/lib/towline
Data folder of the systemd unit.
.SH EXAMPLES
.EX
towline run QM1 --data ./data/QM1
towline put DEV.QUEUE.1 hello
towline get DEV.QUEUE.1
towline mqsc -c 'DISPLAY QUEUE(*)'
towline status --watch
.EE
";

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
            clap_mangen::generate_to(Towline::command(), folder)?;
            Ok(std::fs::write(folder.join("towline.1"), page()?)?)
        }
        None => Ok(std::io::stdout().lock().write_all(&page()?)?),
    }
}

/// The page of `towline` itself, with what all commands have in common.
fn page() -> Result<Vec<u8>, Failure> {
    let mut text = Vec::new();
    Man::new(Towline::command()).render(&mut text)?;
    text.extend_from_slice(COMMON_SECTIONS.as_bytes());
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_of_towline_has_files_environment_and_examples() {
        let page = String::from_utf8(page().unwrap()).unwrap();
        for section in [".SH SUBCOMMANDS", ".SH ENVIRONMENT", ".SH FILES", ".SH EXAMPLES"] {
            assert_eq!(page.matches(section).count(), 1, "{section}");
        }
        // A line of text that begins with a dot or an apostrophe would be a request of roff.
        let texts = COMMON_SECTIONS.lines().filter(|line| line.starts_with(['.', '\'']));
        let known = [".SH ", ".TP", ".EX", ".EE", ".B "];
        assert!(texts.clone().all(|line| known.iter().any(|known| line.starts_with(known))));
    }
}
