//! Which clients get in when there is little space, which users administer, and what is read again
//! without a restart.
//!
//! Not here: logins by themselves (`login`).

use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use tokio::net::TcpSocket;
use towline_e2e::daemon::{Daemon, Site, said};
use towline_e2e::group::{Design, Group, THREE};
use towline_e2e::lan::Lan;
use towline_e2e::papers;
use towline_e2e::peer::Peer;
use towline_e2e::program::Program;
use towline_e2e::{Try, fail, paths, require, wait};

const LIMIT: Duration = Duration::from_secs(30);
/// The user `nobody` of all Linux systems.
const NOBODY: u32 = 65_534;

fn says(site: &Site, id: &str) -> Try {
    wait::until_true(id, LIMIT, || site.log().contains(id))
}

#[test]
fn silent_connections_do_not_keep_a_burst_of_clients_out() -> Try {
    let site = Site::open()?.with_config("[limits]\nlogins_pending_max = 80\n");
    let daemon = site.start()?;
    let silent: Vec<Peer> = (0..80).map(|_| Peer::connect(daemon.address())).collect::<Try<_>>()?;
    let address = daemon.address();
    let clients: Vec<Try<Peer>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..300)
            .map(|_| scope.spawn(|| Peer::begun(address).map_err(|error| error.to_string())))
            .collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined.map(|one| Ok(one.map_err(|_| "a client panicked")??)).collect()
    });
    let refused = clients.iter().filter(|client| client.is_err()).count();
    require!(refused == 0, "{refused} of 300 were refused:\n{}", site.log());
    require!(site.log().contains("TWL3025W"), "no silent one gave way");
    let warnings = site.log().matches("TWL3025W").count();
    require!(warnings <= 20, "{warnings} lines for 80 connections");
    drop((silent, clients));
    daemon.stop()
}

/// A connection from this address of the machine.
fn from(source: [u8; 4], to: &str) -> Try<Peer> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let stream = runtime.block_on(async {
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::from((source, 0)))?;
        let to: SocketAddr = to.parse().map_err(std::io::Error::other)?;
        socket.connect(to).await?.into_std()
    })?;
    stream.set_nonblocking(false)?;
    Peer::over(stream)
}

#[test]
fn silent_connections_of_one_address_keep_out_no_client_of_another_one_or_of_their_own() -> Try {
    // The time for a login would end the silent ones by itself: long after a client gave up.
    let limits = "[limits]\nlogins_pending_max = 64\nlogin_timeout_s = 60\n";
    let site = Site::open()?.with_config(limits);
    let daemon = site.start()?;
    let address = daemon.address();
    // All that may be about to log in, and as many again that wait.
    let mut silent: Vec<Peer> =
        (0..128).map(|_| from([127, 0, 0, 2], address)).collect::<Try<_>>()?;
    for source in [[127, 0, 0, 1], [127, 0, 0, 2], [127, 0, 0, 3]] {
        for number in 0..10 {
            let client = from(source, address)?.opened().and_then(|mut peer| peer.begin(0));
            client.map_err(|error| format!("{source:?}, {number}: {error}\n{}", site.log()))?;
            silent.push(from([127, 0, 0, 2], address)?);
        }
    }
    require!(site.log().contains("TWL3025W"), "no silent one gave way");
    drop(silent);
    daemon.stop()
}

#[test]
fn an_administrator_gets_in_when_clients_have_all_descriptors() -> Try {
    let mut site = Site::open()?;
    let few = site.scratch().join("few");
    let towline = paths::towline()?;
    let script = format!("#!/bin/sh\nulimit -n 128 || exit 1\nexec {} \"$@\"\n", towline.display());
    fs::write(&few, script)?;
    fs::set_permissions(&few, fs::Permissions::from_mode(0o755))?;
    site.program = Some(few);
    let daemon = site.start()?;
    let words = "128 file descriptors allow at most 96 connections, not 20000";
    require!(site.log().contains(words), "no warning at the start:\n{}", site.log());
    let mut clients = Vec::new();
    for _ in 0..200 {
        match Peer::begun(daemon.address()) {
            Ok(peer) => clients.push(peer),
            Err(_) => break,
        }
    }
    let served = clients.len();
    require!((64..=96).contains(&served), "{served} clients were served");
    for _ in 0..500 {
        drop(Peer::connect(daemon.address()));
    }
    for _ in 0..10 {
        site.status()?;
    }
    site.mqsc("DEFINE QLOCAL(STILL.HERE)")?;
    let warnings = site.log().matches("TWL3005W").count() + site.log().matches("TWL3009W").count();
    require!(warnings <= 40, "{warnings} lines for refusals");
    drop(clients);
    daemon.stop()
}

/// A `towline` command as another user of this machine. Needs root.
fn as_nobody(site: &Site, program: &Path, arguments: &[&str]) -> Try<(bool, String)> {
    let mut command = Command::new(program);
    command.args(arguments).arg("--data").arg(&site.data).stdin(Stdio::null());
    command.env_remove("TOWLINE_DATA").env_remove("TOWLINE_URL");
    let output = command.uid(NOBODY).gid(NOBODY).output()?;
    Ok((output.status.success(), said(&output)))
}

/// A folder that all users can pass through, with the program in it.
fn shared_program() -> Try<(tempfile::TempDir, std::path::PathBuf)> {
    let folder = tempfile::Builder::new().prefix("towline-rights-").tempdir()?;
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
    let program = folder.path().join("towline");
    fs::copy(paths::towline()?, &program)?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    Ok((folder, program))
}

#[test]
fn another_user_of_the_machine_does_not_administer_unless_the_group_says_so() -> Try {
    require!(rustix::process::geteuid().is_root(), "this test needs root, to be another user");
    let (folder, program) = shared_program()?;
    for (config, mode, administers) in [
        ("", None, false),
        // By accident.
        ("", Some(0o666), false),
        ("[users]\nlocal_group = \"nogroup\"\n", None, true),
    ] {
        let mut site = Site::open()?.with_config(config);
        site.data = folder.path().join(format!("data-{administers}-{}", mode.is_some()));
        let daemon = site.start()?;
        if let Some(mode) = mode {
            fs::set_permissions(&site.data, fs::Permissions::from_mode(0o755))?;
            for socket in ["towline.sock", "towline-control.sock"] {
                fs::set_permissions(site.data.join(socket), fs::Permissions::from_mode(mode))?;
            }
        }
        // Members of the group administer objects, not processes.
        for command in ["stop", "reload", "switch"] {
            let (done, words) = as_nobody(&site, &program, &[command])?;
            let explained = words.contains("only the user that runs the queue manager, and root");
            require!(!done && explained, "{config}, {mode:?}: {command}: {words}");
        }
        let (done, words) = as_nobody(&site, &program, &["mqsc", "-c", "DEFINE QLOCAL(THEIRS)"])?;
        require!(done == administers, "{config}: {words}");
        if mode.is_some() {
            says(&site, "TWL3024W")?;
        }
        let (done, words) = as_nobody(&site, &program, &["status"])?;
        require!(done == administers, "{config}: {words}");
        let explained =
            words.contains("only the user that runs the queue manager, root, and the members");
        require!(explained == (!administers && mode.is_none()), "{config}, {mode:?}: {words}");
        let to = folder.path().join("planted");
        let to = to.to_string_lossy();
        let (done, words) = as_nobody(&site, &program, &["backup", "--to", &to])?;
        require!(!done && !Path::new(&*to).exists(), "a backup where nobody likes: {words}");
        daemon.stop()?;
    }
    Ok(())
}

/// Any user of the machine can cause it as often as it likes: the log must not grow with it.
#[test]
fn refusals_on_the_control_socket_are_logged_ten_times_a_minute_at_most() -> Try {
    require!(rustix::process::geteuid().is_root(), "this test needs root, to be another user");
    let (folder, program) = shared_program()?;
    let mut site = Site::open()?;
    site.data = folder.path().join("data");
    let daemon = site.start()?;
    fs::set_permissions(&site.data, fs::Permissions::from_mode(0o755))?;
    let socket = site.data.join("towline-control.sock");
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o666))?;
    for _ in 0..25 {
        let (done, words) = as_nobody(&site, &program, &["reload"])?;
        require!(!done && words.contains("only the user that runs"), "{words}");
    }
    let lines = site.log().matches("TWL3024W").count();
    // Where a minute ends meanwhile, another ten.
    require!((1..=20).contains(&lines), "{lines} lines for 25 refusals");
    daemon.stop()
}

#[test]
fn users_and_certificates_are_read_again_and_what_cannot_be_used_changes_nothing() -> Try {
    let mut site = Site::open()?;
    let papers = papers::issue(site.scratch(), "alice")?;
    let users = papers::users(site.scratch(), &[("alice", "one")])?;
    site.config = format!(
        "[[listener]]\naddress = \"127.0.0.1:0\"\ncertificate = {:?}\nprivate_key = {:?}\n\
         [users]\nfile = {users:?}\n[limits]\nio_threads = 1\n",
        papers.server, papers.server_key
    );
    let mut daemon = site.start()?;
    let old = papers.authority.clone();
    require!(puts(&site, &daemon, ("alice", "one"), &old)?, "the first user");
    papers::users(site.scratch(), &[("bob", "two")])?;
    let other = site.scratch().join("other");
    fs::create_dir(&other)?;
    let new = papers::issue(&other, "alice")?;
    fs::copy(&new.server_key, &papers.server_key)?;
    fs::copy(&new.server, &papers.server)?;
    daemon.reload()?;
    says(&site, "TWL1034I")?;
    require!(
        puts(&site, &daemon, ("bob", "two"), &new.authority)?,
        "the new user, by the new papers"
    );
    require!(!puts(&site, &daemon, ("alice", "one"), &new.authority)?, "who is no user any more");
    require!(!puts(&site, &daemon, ("bob", "two"), &old)?, "the old certificate is shown");
    fs::write(&users, "bob:what\n")?;
    fs::write(&papers.server, "no certificate")?;
    let config = format!("{}idle_timeout_s = 30\n[nonsense]\n", site.config);
    fs::write(site.scratch().join("towline.toml"), config)?;
    daemon.reload()?;
    wait::until_true("three failures", LIMIT, || site.log().matches("TWL1035E").count() == 3)?;
    require!(daemon.is_running(), "it ended");
    require!(puts(&site, &daemon, ("bob", "two"), &new.authority)?, "what was read before");
    let config = format!("{}idle_timeout_s = 30\n[logging]\nlevel = \"debug\"\n", site.config);
    fs::write(site.scratch().join("towline.toml"), config)?;
    daemon.reload()?;
    says(&site, "TWL1036W")?;
    wait::until_true("the level", LIMIT, || site.log().contains("logging.level"))?;
    fs::copy(&new.server, &papers.server)?;
    daemon.stop()
}

/// As a service that renews certificates leaves them: the queue manager is not notified.
#[test]
fn a_renewed_listener_certificate_is_shown_without_a_signal_or_a_restart() -> Try {
    let mut site = Site::open()?;
    let papers = papers::issue(site.scratch(), "alice")?;
    site.config = format!(
        "[[listener]]\naddress = \"127.0.0.1:0\"\ncertificate = {:?}\nprivate_key = {:?}\n\
         [users]\nfile = {:?}\n[limits]\nio_threads = 1\n",
        papers.server,
        papers.server_key,
        papers::users(site.scratch(), &[("alice", "one")])?
    );
    let daemon = site.start()?;
    require!(puts(&site, &daemon, ("alice", "one"), &papers.authority)?, "the first certificate");
    // The key first: while both do not belong together, the old ones stay.
    let other = site.scratch().join("other");
    fs::create_dir(&other)?;
    let new = papers::issue(&other, "alice")?;
    fs::copy(&new.server_key, &papers.server_key)?;
    says(&site, "TWL3023E")?;
    require!(puts(&site, &daemon, ("alice", "one"), &papers.authority)?, "what was read before");
    fs::copy(&new.server, &papers.server)?;
    says(&site, "TWL3022I")?;
    require!(puts(&site, &daemon, ("alice", "one"), &new.authority)?, "the new certificate");
    require!(!puts(&site, &daemon, ("alice", "one"), &papers.authority)?, "the old one is shown");
    daemon.stop()
}

#[test]
fn the_command_reload_tells_what_changed_and_fails_when_part_of_it_did() -> Try {
    let mut site = Site::open()?;
    let users = papers::users(site.scratch(), &[("alice", "one")])?;
    site.config = format!(
        "[[listener]]\naddress = \"127.0.0.1:0\"\n[users]\nfile = {users:?}\n[limits]\nio_threads = 1\n"
    );
    let daemon = site.start()?;
    let same = site.runs(&["reload"], 0)?;
    require!(same.contains("nothing has changed"), "{same}");
    papers::users(site.scratch(), &[("alice", "one"), ("bob", "two")])?;
    let read = site.runs(&["reload", "--json"], 0)?;
    require!(read.contains("users (2)"), "{read}");
    fs::write(&users, "bob:what\n")?;
    let wrong = site.towline(&["reload"])?.output()?;
    require!(wrong.status.code() == Some(1), "{}", said(&wrong));
    require!(said(&wrong).contains("reload failed, old values stay"), "{}", said(&wrong));
    require!(site.log().contains("TWL1035E"), "in the log too");

    fs::write(&users, "# no users\n")?;
    let emptied = site.runs(&["reload"], 0)?;
    require!(emptied.contains("TWL1051W: No user is left in"), "{emptied}");
    require!(site.log().contains("TWL1051W"), "in the log too");
    site.mqsc("DISPLAY QMGR")?;
    daemon.stop()
}

#[test]
fn reload_asks_the_instance_of_the_folder_with_and_without_an_active_one() -> Try {
    let folder = tempfile::tempdir()?;
    let users = papers::users(folder.path(), &[("alice", "one")])?;
    let config = format!("[users]\nfile = {users:?}\n");
    let mut group = Group::plan(&Design { config, ..Design::default() })?;
    // One alone: neither a client's door nor an active instance, only the control socket.
    group.start(0)?;
    let same = group.site(0).runs(&["reload"], 0)?;
    require!(same.contains("nothing has changed"), "{same}");
    group.start(1)?;
    group.start(2)?;
    group.until_whole()?;
    papers::users(folder.path(), &[("alice", "one"), ("bob", "two")])?;
    // Each one reads for itself, the active one and replicas: none was notified by another one.
    for at in THREE {
        let read = group.site(at).runs(&["reload", "--json"], 0)?;
        require!(read.contains("users (2)"), "{at}: {read}");
        let same = group.site(at).runs(&["reload"], 0)?;
        require!(same.contains("nothing has changed"), "{at}: {same}");
    }
    fs::write(&users, "bob:what\n")?;
    for at in THREE {
        let wrong = group.site(at).towline(&["reload"])?.output()?;
        require!(wrong.status.code() == Some(1), "{at}: {}", said(&wrong));
        require!(said(&wrong).contains("reload failed, old values stay"), "{at}: {}", said(&wrong));
        let told = THREE.map(|other| group.site(other).log().contains("TWL1035E"));
        require!(told == THREE.map(|other| other <= at), "{at}: told by {told:?}");
    }
    group.until_whole()?;
    Ok(())
}

/// Whether a client logs in and puts.
fn puts(site: &Site, daemon: &Daemon, login: (&str, &str), authority: &Path) -> Try<bool> {
    let host = daemon.address().replace("127.0.0.1", "localhost");
    let (url, authority) = (format!("amqps://{}@{host}", login.0), authority.to_string_lossy());
    let mut put = site.towline(&["put", "Q", "x", "--url", &url, "--ca", &authority])?;
    Ok(put.env("TOWLINE_PASSWORD", login.1).output()?.status.success())
}

/// The commands of the guide as they stand there, on two machines; only addresses and folders
/// differ.
#[test]
fn the_commands_of_the_multi_instance_guide_work_as_they_stand() -> Try {
    let guide = paths::sources().join("../../docs/guides/multi-instance.md");
    let text = fs::read_to_string(guide)?;
    let block = text.split("```").nth(1).ok_or("no commands in the guide")?;
    let site = Site::closed()?;
    let scratch = site.scratch();
    let (shared, etc) = (scratch.join("shared"), scratch.join("etc"));
    fs::create_dir(&shared)?;
    fs::create_dir(&etc)?;
    let lan = Lan::of(&["one", "two"])?;
    let mut machines = ["one", "two"].into_iter();
    let mut running = Vec::new();
    for line in block.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let line = line
            .replace("10.0.0.", "10.77.0.")
            .replace("/mnt/shared", &shared.to_string_lossy())
            .replace("/etc/towline", &etc.to_string_lossy());
        if line.starts_with("towline run") {
            let machine = machines.next().ok_or("more than two machines")?;
            let mut program =
                lan.on(machine, || Program::start(shell(&format!("exec {line}"))?))?;
            program.hear(if machine == "one" { "ready " } else { "standby " })?;
            running.push(program);
            continue;
        }
        let mut child = shell(&line)?.stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
        if let Some(mut input) = child.stdin.take() {
            input.write_all(b"secret\n").ok();
        }
        require!(child.wait()?.success(), "{line}");
    }
    require!(running.len() == 2, "two machines in the guide");
    let put = "towline put DEV.QUEUE.1 hello --url amqp://app@10.77.0.1:5672";
    let output = lan.on("two", || Ok(shell(put)?.env("TOWLINE_PASSWORD", "secret").output()?))?;
    require!(output.status.success(), "{}", said(&output));
    let wrong = lan.on("two", || Ok(shell(put)?.env("TOWLINE_PASSWORD", "wrong").output()?))?;
    require!(!wrong.status.success(), "with a wrong password");
    for program in running {
        program.kill()?;
    }
    Ok(())
}

/// A line as a person types it, with our program in the path.
fn shell(line: &str) -> Try<Command> {
    let towline = paths::towline()?;
    let Some(folder) = towline.parent() else { fail!("a program in no folder") };
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new("sh");
    command.args(["-c", line]).env("PATH", format!("{}:{path}", folder.display()));
    command.env_remove("TOWLINE_DATA").env_remove("TOWLINE_URL");
    Ok(command)
}
