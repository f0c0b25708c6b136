//! The commands of the guides, as a person types them from the page: each block of the document is
//! run line by line, with our program in the path. Only ports and folders differ.
//!
//! Not here: the multi-instance guide, which needs two machines (`rights`), and steps that damage
//! something (`damaged_messages`, `group_votes`).

use std::fs;
use std::process::{Command, Output};

use towline_e2e::daemon::{Daemon, Site, said};
use towline_e2e::program;
use towline_e2e::{Try, fail, paths, require};

/// The lines of the code blocks of a document that begin with the language `sh`, comments away; a
/// line that ends with a backslash goes on.
fn commands(document: &str) -> Try<Vec<String>> {
    let text = fs::read_to_string(paths::sources().join("../../docs").join(document))?;
    let mut found: Vec<String> = Vec::new();
    let (mut inside, mut goes_on) = (false, false);
    for line in text.lines().map(str::trim) {
        if let Some(language) = line.strip_prefix("```") {
            inside = language == "sh";
        } else if inside && !line.is_empty() {
            match found.last_mut().filter(|_| goes_on) {
                Some(last) => last.push_str(line),
                None => found.push(line.to_owned()),
            }
            goes_on = line.ends_with('\\');
            if let (true, Some(last)) = (goes_on, found.last_mut()) {
                last.pop();
            }
        }
    }
    require!(!found.is_empty(), "no commands in {document}");
    Ok(found)
}

/// A line in a shell that knows the program and the queue manager of this site, and nothing else.
fn typed(site: &Site, line: &str) -> Try<Output> {
    let towline = paths::towline()?;
    let Some(folder) = towline.parent() else { fail!("a program in no folder") };
    let path = std::env::var("PATH").unwrap_or_default();
    let mut shell = Command::new("sh");
    shell.args(["-c", line]).env("PATH", format!("{}:{path}", folder.display()));
    shell.env_remove("TOWLINE_URL").env("TOWLINE_DATA", &site.data).current_dir(site.scratch());
    Ok(shell.output()?)
}

fn works(site: &Site, line: &str) -> Try<String> {
    let output = typed(site, line)?;
    require!(output.status.success(), "{line}\n{}", said(&output));
    Ok(String::from_utf8(output.stdout)?)
}

/// What the comment behind a command of the tutorial promises.
fn promised(line: &str) -> &str {
    line.split_once("# ").map_or("", |(_, comment)| comment.trim())
}

fn restarted(site: &Site, daemon: Daemon) -> Try<Daemon> {
    daemon.kill()?;
    site.start()
}

#[test]
fn the_commands_of_the_tutorial_give_what_it_says() -> Try {
    let site = Site::closed()?;
    let mut daemon = site.start()?;
    let skipped = ["git clone", "make run", "export PATH", "cd ", "java ", "towline mqsc"];
    let definitions = "DEFINE QLOCAL(ORDERS) DEFPSIST(YES) BOTHRESH(3) BOQNAME(ORDERS.BACKOUT)";
    site.mqsc(definitions)?;
    site.mqsc("ALTER QLOCAL(ORDERS) MAXDEPTH(2)")?;
    let mut checked = 0;
    for line in commands("tutorial.md")? {
        if line == "towline log verify" {
            daemon.stop()?;
            works(&site, &line)?;
            daemon = site.start()?;
            continue;
        }
        if line.starts_with("towline mqsc -c") {
            works(&site, &line)?;
            continue;
        }
        if skipped.iter().any(|start| line.starts_with(start)) {
            continue;
        }
        if line.starts_with("for i in 1 2 3") {
            let refused = typed(&site, &line)?;
            require!(said(&refused).contains("holds MAXDEPTH(2)"), "{}", said(&refused));
            continue;
        }
        if line.starts_with("towline get") && !line.contains("echo") {
            if line.contains("I stay") {
                daemon = restarted(&site, daemon)?;
            }
            let got = works(&site, &line)?;
            let expected = promised(&line);
            require!(expected.is_empty() || got.trim() == expected, "{line}: {got:?}");
            checked += 1;
            continue;
        }
        works(&site, &line)?;
    }
    require!(checked == 4, "{checked} gets in the tutorial");
    daemon.stop()
}

#[test]
fn the_commands_for_dead_letters_find_and_move_them() -> Try {
    let site = Site::closed()?;
    let daemon = site.start()?;
    site.mqsc("DEFINE QLOCAL(ORDERS)")?;
    site.mqsc("DEFINE QLOCAL(ORDERS.BACKOUT)")?;
    site.mqsc("ALTER QLOCAL(ORDERS) BOTHRESH(3) BOQNAME(ORDERS.BACKOUT)")?;
    works(&site, "towline put ORDERS invalid")?;
    program::run(program::proton("blocking.py", "reject_one", &daemon.url(), &["ORDERS"])?)?;
    works(&site, "towline put ORDERS poison")?;
    program::run(program::proton("blocking.py", "back_out", &daemon.url(), &["ORDERS", "3"])?)?;
    for line in commands("guides/dead-letters-and-backout.md")? {
        let printed = works(&site, &line)?;
        if line.starts_with("towline move") {
            require!(printed.starts_with("1 message moved"), "{line}: {printed:?}");
        } else {
            require!(printed.contains("\"DeadLetterReason\":\"rejected\""), "{line}: {printed:?}");
        }
    }
    require!(site.queue_number("ORDERS", "depth")? == 2, "both are back");
    daemon.stop()
}

/// The block of the guide and its file, started as they stand, but for folders and a free port.
#[test]
fn the_configuration_of_the_guide_starts_where_its_file_says() -> Try {
    let mut site = Site::closed()?;
    let text = fs::read_to_string(paths::sources().join("../../docs/guides/configuration.md"))?;
    let Some((_, rest)) = text.split_once("```toml\n") else { fail!("no file in the guide") };
    let Some((file, _)) = rest.split_once("```") else { fail!("no end of the file") };
    let file = file.replace("127.0.0.1:5672", "127.0.0.1:0");
    fs::write(site.scratch().join("orders.toml"), &file)?;
    let Some(line) = commands("guides/configuration.md")?.into_iter().next() else {
        fail!("no command in the guide")
    };
    let line = line
        .replace("/var/lib/towline", &site.scratch().to_string_lossy())
        .replace("/etc/towline", &site.scratch().to_string_lossy());
    let checked = works(&site, &format!("{line} --check"))?;
    require!(checked.contains("listener 127.0.0.1:0: without TLS"), "{checked}");
    // A second address would be forgotten.
    let both = typed(&site, &format!("{line} --listen 127.0.0.1:0 --check"))?;
    require!(!both.status.success(), "{}", said(&both));
    require!(said(&both).contains("--listen is for a configuration without"), "{}", said(&both));
    site.config = file;
    site.start()?.stop()
}
