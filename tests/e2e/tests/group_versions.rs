//! Instances of different versions in one group: what a later or a strange one says at a link, and
//! an upgrade one after the other while clients work.
//!
//! The other version is this one with its number changed in a copy of the program: that it is
//! another is what instances say of themselves, and what it does is the same. Not here: data of
//! other versions (`upgrade.rs`).

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use towline_e2e::chance::Chance;
use towline_e2e::daemon::said;
use towline_e2e::group::{Design, Group, Instance, NAMES, THREE, WHOLE_MAX};
use towline_e2e::versions::{next_version, version};
use towline_e2e::wait;
use towline_e2e::workload::Workload;
use towline_e2e::{Try, paths, require};

/// Longer than clients need to go on elsewhere.
const GO_ON_MAX: Duration = Duration::from_secs(40);

/// A hello as crates/link/src/hello.rs draws it, said with an instance's papers; prints the
/// answer: its oldest and newest version, `welcome` or why not.
const HELLO: &str = r#"
import socket, ssl, struct, sys
host, port, papers, name, oldest, newest, build, level, term = sys.argv[1:]
context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
context.check_hostname = False
context.load_verify_locations(papers + "/authority.pem")
context.load_cert_chain(papers + "/" + name + ".pem", papers + "/" + name + "-key.pem")
context.set_alpn_protocols(["towline-frames"])
text = lambda value: bytes([len(value)]) + value.encode()
body = b"\0" + text("QM1") + text("G") + text(name) + text(build) + struct.pack("<BQQ", 1, 0, 0)
# The id of the log: FNV-1a of the name of the queue manager, in 128 bits.
log = 0x6c62272e07bb014262b821756295c58d
for byte in b"QM1":
    log = (log ^ byte) * 0x0000000001000000000000000000013b % 2**128
# Two terms, consensus in term 0, nothing known of starts, and what a later version may add.
body += (b"\2\1" if term == "the version of records" else b"\2\0") + text(term) + text(level)
body += b"\0" + text("log id") + text(f"{log:032x}")
body += struct.pack("<Q", 0) + bytes(16 + 1 + 24) + b"more of it"
with context.wrap_socket(socket.create_connection((host, int(port)), 20)) as link:
    link.sendall(b"TWLNLINK" + struct.pack("<HHH", int(oldest), int(newest), len(body)) + body)
    def read(count):
        got = b""
        while len(got) < count:
            more = link.recv(count - len(got))
            assert more, "the connection ended"
            got += more
        return got
    magic, oldest, newest, length = struct.unpack("<8sHHH", read(14))
    answer = read(length)
    assert magic == b"TWLNLINK", magic
    tag, at = answer[0], 1
    for _ in range(4):
        at += 1 + answer[at]
    at += 17
    why = answer[at + 2:].decode() if tag else "welcome"
    print(oldest, newest, why)
"#;

/// What an instance answers to a hello with the papers of `name`, of a program that reads later
/// format levels than ours too.
fn greeted(group: &Group, at: Instance, name: &str, versions: [u16; 2]) -> Try<String> {
    greeted_of(group, at, name, versions, ["9", "newest format level read"])
}

/// The same with this format level, and what the hello calls it.
fn greeted_of(
    group: &Group,
    at: Instance,
    name: &str,
    versions: [u16; 2],
    [level, term]: [&str; 2],
) -> Try<String> {
    let (host, _) = group.address(at).split_once(':').ok_or("no host")?;
    let [oldest, newest] = versions.map(|version| version.to_string());
    let port = towline_e2e::group::LINKS_PORT.to_string();
    let mut command = Command::new("python3");
    command.args(["-c", HELLO, host, &port]).arg(group.papers());
    let output = command.args([name, &oldest, &newest, "9.8.7", level, term]).output()?;
    require!(output.status.success(), "{}", group.explained(&said(&output)));
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// A group in which no instance misses another one because the machine is busy: none is stopped or
/// cut off here.
fn design() -> Design {
    Design { missed_after: Some(Duration::from_secs(30)), ..Design::default() }
}

/// How often an instance logged a line with all these words.
fn told(group: &Group, at: Instance, words: &[&str]) -> usize {
    let log = group.site(at).log();
    log.lines().filter(|line| words.iter().all(|word| line.contains(word))).count()
}

fn until_committed(group: &Group, load: &Workload, more: usize) -> Try {
    let wanted = load.units_committed() + more;
    let waited = wait::until_true("commits", GO_ON_MAX, || load.units_committed() >= wanted);
    waited.map_err(|error| group.explained(&error.to_string()).into())
}

#[test]
fn a_later_version_that_speaks_ours_is_greeted_and_one_that_does_not_is_refused_with_the_reason()
-> Try {
    let mut group = Group::formed_as(&design())?;
    let active = group.until_whole()?;
    let (away, at) = ((active + 1) % 3, active);
    group.kill(away)?;
    group.until_in_sync(2)?;
    // It knows versions that we do not, and can do with ours.
    let answer = greeted(&group, at, NAMES[away], [1, 9])?;
    require!(answer == "2 3 welcome", "{answer:?}");
    // An earlier version that says nothing of starts.
    let answer = greeted(&group, at, NAMES[away], [2, 2])?;
    require!(answer == "2 3 welcome", "{answer:?}");
    let shown = || {
        let status = group.status(at).ok()?;
        let mut rows = status["instances"].as_array()?.iter();
        Some(rows.find(|row| row["instance"] == NAMES[away])?["version"].clone())
    };
    wait::until_true("its version", WHOLE_MAX, || shown().is_some_and(|shown| shown == "9.8.7"))
        .map_err(|error| group.explained(&error.to_string()))?;
    // It cannot do with ours.
    let answer = greeted(&group, at, NAMES[away], [7, 9])?;
    let why = "no common version of the link protocol: 9.8.7 has 7 to 9, we have 2 to 3";
    require!(answer.starts_with("2 3 ") && answer.contains(why), "{answer:?}");
    wait::until_true("a refusal", WHOLE_MAX, || told(&group, at, &["TWL4104W", why]) > 0)
        .map_err(|error| group.explained(&error.to_string()))?;
    // The group serves on, and takes the right one back.
    require!(group.until_in_sync(2)? == active, "another one is active");
    group.start(away)?;
    group.until_whole()?;
    Ok(())
}

/// Whether an instance executes this file.
fn executes(group: &Group, at: Instance, program: &Path) -> Try<bool> {
    let running = fs::metadata(format!("/proc/{}/exe", group.daemon(at)?.pid()))?;
    let file = fs::metadata(program)?;
    Ok((running.dev(), running.ino()) == (file.dev(), file.ino()))
}

#[test]
fn an_upgrade_one_after_the_other_works_with_mixed_versions_on_the_way_and_loses_nothing() -> Try {
    let mut chance = Chance::announced("rolling upgrade");
    let mut group = Group::plan(&design())?;
    let folder = group.site(0).scratch().to_path_buf();
    let (next, new) = next_version(&folder)?;
    let old = version(&paths::towline()?)?;
    let installed = folder.join("towline");
    fs::copy(paths::towline()?, &installed)?;
    for at in THREE {
        group.site_mut(at).program = Some(installed.clone());
        group.start(at)?;
    }
    let active = group.until_whole()?;
    let load = Workload::start_returning(group.urls(), 0, &mut chance);
    until_committed(&group, &load, 5)?;
    // As a package would: the file is replaced, and a running process still has the old one.
    fs::rename(&next, &installed)?;
    let first = (active + 1) % 3;
    let rolled = group.site(first).runs(&["rolling-restart", "--this-one", "--json"], 0)?;
    let rolled: Value = serde_json::from_str(&rolled)?;
    let row = &rolled["restarted"][0];
    require!(row["version_before"] == *old && row["version_after"] == *new, "{rolled}");
    require!(executes(&group, first, &installed)?, "not the new program");
    for at in THREE.into_iter().filter(|at| *at != first) {
        require!(!executes(&group, at, &installed)?, "{} began again", NAMES[at]);
    }
    // Mixed: each of both kinds is the active one for a while.
    until_committed(&group, &load, 10)?;
    group.until_whole()?;
    group.make_active(first)?;
    until_committed(&group, &load, 10)?;
    group.until_whole()?;
    // The instance that handed over re-executed, with the program on the disk: the new one.
    let last = (active + 2) % 3;
    group.make_active(last)?;
    until_committed(&group, &load, 10)?;
    group.until_whole()?;
    // The rest.
    let mut command = Command::new(&installed);
    command.args(["rolling-restart", "--json", "--data"]);
    let output = command.args(THREE.map(|at| group.site(at).data.clone())).output()?;
    require!(output.status.success(), "{}", group.explained(&said(&output)));
    for at in THREE {
        require!(executes(&group, at, &installed)?, "{} is as it was", NAMES[at]);
    }
    until_committed(&group, &load, 5)?;
    let at = group.until_whole()?;
    group.judge(at, &load.finish()?)?;
    Ok(())
}

#[test]
fn a_group_whose_instances_all_read_a_format_level_raises_its_log_to_it_and_refuses_older_ones()
-> Try {
    let mut group = Group::formed_as(&design())?;
    let active = group.until_whole()?;
    let away = (active + 1) % 3;
    let shown = |group: &Group| {
        let status = group.status(active).ok()?;
        Some((status["format_level"].clone(), status["format_level_waits_for"].clone()))
    };
    let raised = Some((Value::from(2), Value::from(Vec::<&str>::new())));
    wait::until_true("level 2", WHOLE_MAX, || shown(&group) == raised)
        .map_err(|error| group.explained(&error.to_string()))?;
    group.kill(away)?;
    group.until_in_sync(2)?;
    // Each of them, and not the one that raised it alone.
    for at in THREE.into_iter().filter(|at| *at != away) {
        // A program that knows of no format levels.
        let says = ["1", "the version of records"];
        let answer = greeted_of(&group, at, NAMES[away], [2, 3], says)?;
        let level = format!("'2' at '{}'", NAMES[at]);
        let is_named = answer.contains("the version of records is") && answer.contains(&level);
        require!(is_named, "{answer:?}");
    }
    // It reads the log again, and leads from it.
    group.start(away)?;
    group.until_whole()?;
    group.make_active(away)?;
    group.until_whole()?;
    Ok(())
}
