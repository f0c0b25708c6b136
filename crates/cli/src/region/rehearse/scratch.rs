//! The queue manager of a rehearsal: its folder, its configuration, its process.
//!
//! It listens on the loopback address alone, for one user with a password that only this command
//! and its check know; it has another name than the queue manager of the log, is in no
//! group, and knows no other region. Not here: when it is started and ended.
//!
//! Invariants: the folder is of this rehearsal alone, and for its owner only; the process ends when
//! this one does, also by kill -9; it is killed before the folder is removed.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::Sender;
use std::time::Duration;

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use serde_json::Value;
use towline_admin::status::ProcessReport;
use towline_client::user_line;
use towline_config::Config;
use towline_server::{REHEARSAL_FOLDER, RunArgs, SHARED_LOG_NAME};

use super::RehearsalEvent;
use super::report::QueueDepth;
use crate::arguments::{RegionRehearse, RehearsalPart};
use crate::control::ControlClient;
use crate::failure::Failure;
use crate::process::Process;

/// The user that may log in, and administer.
pub(super) const USER: &str = "rehearsal";
/// What this command, its queue manager and its check add to their niceness.
pub(super) const NICE: i32 = 10;
/// Of the name of a queue manager (as IBM MQ has it).
const NAME_CHARS_MAX: usize = 48;
const NAME_END: &str = ".REHEARSAL";
/// The password is random and lives as long as the rehearsal: more would only cost time.
const ITERATIONS: u32 = 4_096;
/// Memory for bodies, and for indexes.
const CACHE_BYTES: u64 = 32 * 1024 * 1024;
/// Clients at a time.
const CONNECTIONS_MAX: u32 = 200;
/// How often it is tried again to make the folder.
const MAKE_TRIES: usize = 10;
/// Lines of its messages that are shown when it fails.
const LAST_LINES: usize = 5;

/// What is made before the process starts.
pub(super) struct ScratchPlan {
    /// Name of the queue manager.
    pub(super) name: String,
    pub(super) password: String,
    folder: PathBuf,
    config: String,
    shared: String,
}

/// The process. It is killed, and its folder removed, when this is dropped.
pub(super) struct Scratch {
    pub(super) plan: ScratchPlan,
    process: Process,
}

impl ScratchPlan {
    /// `process`: the instance; `shared`: what it shares.
    pub(super) fn of(
        arguments: &RegionRehearse,
        process: &ProcessReport,
        shared: &Value,
    ) -> Result<ScratchPlan, Failure> {
        let room = NAME_CHARS_MAX - NAME_END.len();
        let name: String =
            process.queue_manager.chars().take(room).chain(NAME_END.chars()).collect();
        // What others read of the process must not be relative to its working folder.
        let data = fs::canonicalize(&arguments.data)
            .map_err(|error| Failure::about(arguments.data.display(), error))?;
        let mut random = [0; 19];
        File::open("/dev/urandom")?.read_exact(&mut random)?;
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        // The path of a socket in it is bounded, so its name is short.
        let (name_bytes, password) = random.split_at(3);
        let folder = data.join(REHEARSAL_FOLDER).join(hex(name_bytes));
        let of_instance = config_of(process)?;
        let config = config_text(&of_instance, arguments.port, &folder.join("users"));
        let password = hex(password);
        Ok(ScratchPlan { name, password, folder, config, shared: shared.to_string() })
    }

    /// Its data folder.
    pub(super) fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    fn write(&self) -> Result<(), Failure> {
        let folder = &self.folder;
        let failed = |error| Failure::about(folder.display(), error);
        self.make_folder().map_err(failed)?;
        DirBuilder::new().mode(0o700).create(self.data()).map_err(failed)?;
        let user = user_line(USER, &self.password, Some(ITERATIONS)).map_err(Failure::Failed)?;
        self.file("users", &user).map_err(failed)?;
        self.file("towline.toml", &self.config).map_err(failed)?;
        self.file(&format!("data/{SHARED_LOG_NAME}"), &self.shared).map_err(failed)
    }

    /// Makes the folder, and removes those of rehearsals that are over: one is under way at a time.
    fn make_folder(&self) -> std::io::Result<()> {
        let mut folder = DirBuilder::new();
        let mut made = Ok(());
        for _ in 0..MAKE_TRIES {
            made = folder.recursive(true).mode(0o700).create(&self.folder);
            // The command of the one before removed the folder above while it was empty.
            if !made.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound) {
                break;
            }
        }
        made?;
        for other in self.folder.parent().into_iter().flat_map(fs::read_dir).flatten().flatten() {
            if other.path() != self.folder {
                // What another user left cannot be.
                fs::remove_dir_all(other.path()).ok();
            }
        }
        Ok(())
    }

    fn file(&self, name: &str, text: &str) -> std::io::Result<()> {
        let path = self.folder.join(name);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        writeln!(file, "{text}")
    }

    fn messages(&self) -> PathBuf {
        self.folder.join("messages")
    }
}

impl Drop for ScratchPlan {
    fn drop(&mut self) {
        // The instance tries it again.
        fs::remove_dir_all(&self.folder).ok();
        // Of all rehearsals: it goes when it is empty.
        self.folder.parent().map(fs::remove_dir).transpose().ok();
    }
}

/// The configuration of the instance, for what its queues are to find.
fn config_of(process: &ProcessReport) -> Result<Config, Failure> {
    if process.config.is_empty() {
        return Ok(Config::default());
    }
    let file = Path::new(&process.folder).join(&process.config);
    Config::read(&file).map_err(|error| Failure::about(file.display(), error))
}

/// The same limits of messages, and the same names, as the instance has; and less of the machine.
fn config_text(of: &Config, port: u16, users: &Path) -> String {
    let manager = &of.queue_manager;
    let quoted = |text: &str| Value::from(text).to_string();
    let mut text = format!(
        "[queue_manager]\ndeadq = {}\nmaxmsgl = {}\nmaxumsgs = {}\nunit_bytes_max = {}\n\
         unit_age_max_s = {}\nmemory_bytes_max = {}\nindex_bytes_max = {}\nimglogln = 0\n\
         imgintvl = 0\nexpired_to_deadq = {}\nexpiry_interval_s = {}\n\n\
         [log]\nreserve_bytes = {}\ncache_bytes = {}\n\n\
         [limits]\nio_threads = 1\nconnections_max = {CONNECTIONS_MAX}\n\n\
         [users]\nfile = {}\nadministrators = [{}]\n\n[[listener]]\naddress = \"127.0.0.1:{port}\"\n",
        quoted(&manager.deadq),
        manager.maxmsgl,
        manager.maxumsgs,
        manager.unit_bytes_max,
        manager.unit_age_max_s,
        manager.memory_bytes_max.min(4 * CACHE_BYTES),
        manager.index_bytes_max.min(4 * CACHE_BYTES),
        manager.expired_to_deadq,
        manager.expiry_interval_s,
        of.log.reserve_bytes,
        of.log.cache_bytes.min(CACHE_BYTES),
        quoted(&users.display().to_string()),
        quoted(USER),
    );
    for rule in &of.auto_define {
        let (pattern, model) = (quoted(&rule.pattern), quoted(&rule.model));
        text += &format!("\n[[auto_define]]\npattern = {pattern}\nmodel = {model}\n");
    }
    text
}

impl Scratch {
    /// Starts it; its address and its end become events. It has `lease` open, so that the instance
    /// sees by that when it has ended, also when this command was killed.
    pub(super) fn start(
        plan: ScratchPlan,
        lease: &UnixStream,
        tell: &Sender<RehearsalEvent>,
    ) -> Result<Scratch, Failure> {
        plan.write()?;
        let messages = File::create(plan.messages())?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("rehearsal-part").arg("--name").arg(&plan.name);
        command.arg("--parent").arg(std::process::id().to_string());
        command.arg("--data").arg(plan.data());
        command.arg("--config").arg(plan.folder.join("towline.toml"));
        let lease = OwnedFd::from(lease.try_clone()?);
        command.env_remove("TOWLINE_LOG").process_group(0).stdin(Stdio::from(lease));
        let mut child = command.stdout(Stdio::piped()).stderr(messages).spawn()?;
        // Before any thread waits for it: until then the number is its own.
        let process = Process::open(Pid::from_child(&child))?;
        watch(child.stdout.take(), child, tell)?;
        Ok(Scratch { plan, process })
    }

    /// What a check needs to find it.
    pub(super) fn environment(&self, url: &str) -> Vec<(&'static str, String)> {
        let address = url.strip_prefix("amqp://").unwrap_or(url);
        let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
        vec![
            ("TOWLINE_URL", format!("amqp://{USER}@{address}")),
            ("TOWLINE_DATA", self.plan.data().display().to_string()),
            ("TOWLINE_HOST", host.to_owned()),
            ("TOWLINE_PORT", port.to_owned()),
            ("TOWLINE_USER", USER.to_owned()),
            ("TOWLINE_PASSWORD", self.plan.password.clone()),
            ("TOWLINE_QUEUE_MANAGER", self.plan.name.clone()),
        ]
    }

    /// Its queues, as its status has them.
    pub(super) fn queues(&self, longest: Duration) -> Result<Vec<QueueDepth>, Failure> {
        let mut asking = ControlClient::reach(&self.plan.data(), longest)?;
        let mut status = asking.status()?.status;
        let queues = status.get_mut("queues").map(Value::take).unwrap_or_default();
        serde_json::from_value(queues).map_err(Failure::failed)
    }

    /// Blocks of the disk that it wrote, 0 when that is not known: its files have no names.
    pub(super) fn written_bytes(&self) -> u64 {
        let open = format!("/proc/{}/fd", self.process.number());
        let Ok(entries) = fs::read_dir(open) else { return 0 };
        let own = self.plan.data();
        let is_own = |path: &Path| fs::read_link(path).is_ok_and(|to| to.starts_with(&own));
        let blocks = |path: &Path| {
            use std::os::unix::fs::MetadataExt;
            fs::metadata(path).map_or(0, |found| found.blocks() * 512)
        };
        let open = entries.filter_map(|entry| Some(entry.ok()?.path()));
        open.filter(|path| is_own(path)).map(|path| blocks(&path)).sum()
    }

    /// The end of what it said.
    pub(super) fn last_lines(&self) -> String {
        let said = fs::read_to_string(self.plan.messages()).unwrap_or_default();
        let mut last: Vec<&str> = said.lines().rev().take(LAST_LINES).collect();
        last.reverse();
        last.join("\n")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Nothing of it is to survive: there is nothing to end in order.
        self.process.signal(Signal::KILL).ok();
        self.process.wait(Duration::from_secs(10)).ok();
    }
}

/// Says when it serves, and when it has ended.
fn watch(
    out: Option<std::process::ChildStdout>,
    mut child: Child,
    tell: &Sender<RehearsalEvent>,
) -> Result<(), Failure> {
    let told = tell.clone();
    std::thread::Builder::new().name("rehearsal".into()).spawn(move || {
        for line in out.into_iter().flat_map(|out| BufReader::new(out).lines()) {
            let Ok(line) = line else { break };
            if let Some(url) = line.strip_prefix("ready ") {
                told.send(RehearsalEvent::Serves(url.to_owned())).ok();
            }
        }
        if let Ok(status) = child.wait() {
            told.send(RehearsalEvent::Ended(status)).ok();
        }
    })?;
    Ok(())
}

/// Runs the process of the queue manager.
pub(crate) fn part(part: &RehearsalPart) -> Result<(), Failure> {
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(Failure::failed)?;
    let parent = Pid::from_raw(part.parent);
    if parent.is_none() || getppid() != parent {
        return Err(Failure::Failed("the command that began the rehearsal has ended".to_owned()));
    }
    let told = RunArgs {
        name: part.name.clone(),
        data: part.data.clone(),
        listen: None,
        config: Some(part.config.clone()),
        allow_plaintext: false,
        auto_define: None,
        log_sync_delay: Duration::ZERO,
        standby: false,
        without_missing_extents: false,
        program: "towline".to_owned(),
    };
    towline_server::run(&told).map_err(Failure::failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rehearsal_has_the_names_of_its_instance_and_one_listener_on_loopback() {
        let text = "[queue_manager]\ndeadq = \"A \\\"B\\\"\"\nmaxmsgl = 1000\n\
                    [[auto_define]]\npattern = \"APP.*\"\n\
                    [[listener]]\naddress = \"0.0.0.0:5672\"\nallow_anonymous = true\n\
                    allow_plaintext = true\n";
        let of = Config::parse(text).unwrap();
        let made = Config::parse(&config_text(&of, 7_000, Path::new("/x/users"))).unwrap();
        assert_eq!(made.queue_manager.deadq, "A \"B\"");
        assert_eq!(made.queue_manager.maxmsgl, 1_000);
        assert_eq!(made.auto_define, of.auto_define);
        assert_eq!(made.listener.len(), 1);
        assert_eq!(made.listener[0].address.to_string(), "127.0.0.1:7000");
        assert!(made.group.is_none() && made.users.file.is_some());
    }

    #[test]
    fn a_command_that_ends_late_removes_nothing_of_the_next_one() {
        let data = tempfile::tempdir().unwrap();
        let plan = |name: &str| ScratchPlan {
            name: "Q".into(),
            password: "p".into(),
            folder: data.path().join(REHEARSAL_FOLDER).join(name),
            config: String::new(),
            shared: "{}".into(),
        };
        let (first, next) = (plan("1"), plan("2"));
        first.write().unwrap();
        assert!(first.data().is_dir());
        // The instance has ended the first one, and the next one begins before its command ends.
        next.write().unwrap();
        assert!(!first.folder.exists(), "what is left of others goes");
        drop(first);
        assert!(next.data().join(SHARED_LOG_NAME).is_file());
        drop(next);
        assert!(!data.path().join(REHEARSAL_FOLDER).exists(), "nothing is left");
    }
}
