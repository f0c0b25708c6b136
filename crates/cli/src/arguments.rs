//! All options of all commands. No logic: what they mean together is checked where they are used.

mod group;
mod region;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use towline_disktest::{DiskArgs, DiskPart};
use towline_load::LoadArgs;

pub(crate) use group::{
    Demo, ForceVote, Group, GroupCertificates, Here, Instance, Replace, RollingRestart, Stop,
    Switch,
};
pub(crate) use region::{
    PerhapsAdded, Region, RegionChange, RegionDivergence, RegionDrill, RegionFailover, RegionFence,
    RegionPlan, RegionPutAgain, RegionRehearse, RegionRejoin, RegionReportShow, RehearsalPart,
};

/// Messages of a unit of work of `towline move` at most: they are held in memory, and the server
/// bounds a unit.
pub(crate) const BATCH_MAX: u64 = 1_000;

const EXIT_CODES: &str =
    "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 no message, 4 cannot connect.";

const DISKTEST_EXIT_CODES: &str = "Exit codes: 0 fit, 1 cannot run, 2 wrong usage, 3 the disk is \
                                   not fit: it lies about fsync, or its locks fail.";

/// A transactional queue manager: AMQP 1.0 in, a recovery log under it.
#[derive(Debug, Parser)]
#[command(name = "towline", version, about, after_help = EXIT_CODES, max_term_width = 100)]
pub(crate) struct Towline {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start a queue manager and serve clients until it is stopped
    Run(Run),
    /// Run MQSC commands: from a file, from standard input, or interactively
    Mqsc(Mqsc),
    /// Put messages
    Put(Put),
    /// Get messages and remove them from the queue
    Get(Get),
    /// Show messages and leave them in the queue
    Browse(Browse),
    /// Move complete messages from one queue to another, in units of work
    Move(Move),
    /// Show the status of a queue manager
    Status(Status),
    /// Make another instance of a group active
    Switch(Switch),
    /// Stop a queue manager, or an instance of a group, and wait for its end
    Stop(Stop),
    /// Restart the instances of a group one after the other while clients are served; to upgrade,
    /// install the new program first
    RollingRestart(RollingRestart),
    /// Repair one instance of a group
    Instance {
        #[command(subcommand)]
        command: Instance,
    },
    /// Take a checkpoint image of a running queue manager: a restart reads the log from there
    Image(Image),
    /// Reload users, certificates and log level of a running queue manager, as SIGHUP does
    Reload(Reload),
    /// Back up a queue manager, running or stopped; or check a backup
    Backup(Backup),
    /// Restore a queue manager from a backup into an empty data folder
    Restore(Restore),
    /// Inspect or repair the recovery log of a stopped queue manager
    Log {
        #[command(subcommand)]
        command: Log,
    },
    /// Put load on any AMQP 1.0 broker, and measure
    Load(LoadArgs),
    /// Measure a disk as the recovery log uses it, and check whether it can be trusted
    #[command(after_help = DISKTEST_EXIT_CODES)]
    Disktest(DiskArgs),
    /// Another process of the disk tester
    #[command(hide = true)]
    DisktestPart {
        #[command(subcommand)]
        part: DiskPart,
    },
    /// The queue manager of a rehearsal
    #[command(hide = true)]
    RehearsalPart(RehearsalPart),
    /// Prepare a group of instances, or run one on this machine to try it
    Group {
        #[command(subcommand)]
        command: Group,
    },
    /// Change the roles of two regions, and plan the replication of the log to a second one
    Region {
        #[command(subcommand)]
        command: Region,
    },
    /// Explain a message and what to do about it
    Explain(Explain),
    /// Create or replace a user with a password in a users file
    User(User),
    /// Print the completion script of a shell
    Completions {
        /// Which shell
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or write those of all commands into a folder
    Man {
        /// Folder for the pages, created if missing
        folder: Option<PathBuf>,
    },
}

/// How to find a queue manager and how to answer.
#[derive(Args, Clone, Debug)]
pub(crate) struct Reach {
    /// Data folder of a queue manager on this machine [default: without --url TOWLINE_URL, else
    /// TOWLINE_DATA, else ./data/QM1]
    #[arg(long, value_name = "DIR", conflicts_with = "url")]
    pub(crate) data: Option<PathBuf>,
    /// Address of a queue manager: amqp://[user@]host[:port] or amqps://...
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// File whose first line is the password (else TOWLINE_PASSWORD, else a prompt)
    #[arg(long, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,
    /// SASL mechanism [default: scram with a user, else external with --cert, else anonymous]
    #[arg(long, value_enum, ignore_case = true)]
    pub(crate) sasl: Option<Mechanism>,
    /// Trusted certificates for amqps://, a PEM file
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// Client certificate chain, a PEM file
    #[arg(long, value_name = "FILE", requires = "key")]
    pub(crate) cert: Option<PathBuf>,
    /// Key of the client certificate, a PEM file
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(crate) key: Option<PathBuf>,
    /// Time-out for an answer
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0,
          value_parser = seconds, allow_negative_numbers = true)]
    pub(crate) timeout: f64,
    /// Answer in JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Reload {
    /// Data folder of the queue manager, or of one instance of a group
    #[arg(long, value_name = "DIR", default_value = "./data/QM1", env = "TOWLINE_DATA")]
    pub(crate) data: PathBuf,
    /// The process with this id, if several processes of this machine share the data folder
    /// [default: the one that does not stand by]
    #[arg(long, value_name = "PID")]
    pub(crate) pid: Option<u32>,
    /// Time-out in seconds
    #[arg(long, value_name = "SECONDS", default_value = "30",
          value_parser = seconds, allow_negative_numbers = true)]
    pub(crate) timeout: f64,
    /// Answer in JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Image {
    #[command(flatten)]
    pub(crate) reach: Reach,
}

#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Backup {
    #[command(subcommand)]
    pub(crate) command: Option<BackupCommand>,
    /// Data folder of the queue manager
    #[arg(long, value_name = "DIR", default_value = "./data/QM1", env = "TOWLINE_DATA")]
    pub(crate) data: PathBuf,
    /// Folder of the backup: missing or empty for a full one, or with a backup, to which only new
    /// data is added
    #[arg(long, value_name = "FOLDER", required = true)]
    pub(crate) to: Option<PathBuf>,
    /// Copy everything again
    #[arg(long)]
    pub(crate) full: bool,
    /// Number of checkpoint images to keep, with the log from the oldest on: how many backups back
    /// a restore can go
    #[arg(long, value_name = "N", default_value_t = 2,
          value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) keep_images: u16,
    /// Answer in JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BackupCommand {
    /// Check every byte of a backup; exit code 0 if it can be restored
    Verify {
        /// Folder of the backup
        folder: PathBuf,
    },
}

#[derive(Args, Debug)]
pub(crate) struct Restore {
    /// Folder of the backup
    #[arg(long, value_name = "FOLDER")]
    pub(crate) from: PathBuf,
    /// Data folder to create: missing, empty, or left by an interrupted restore
    #[arg(long, value_name = "DIR")]
    pub(crate) data: PathBuf,
    /// Restore up to the last commit at or before this position: <a:b:c:d>, 0x... or a number
    #[arg(long, value_name = "LSN", conflicts_with = "to_time")]
    pub(crate) to_lsn: Option<String>,
    /// Restore what was committed at or before this time, to about a second: 2026-11-22T01:00:00Z
    #[arg(long, value_name = "TIME")]
    pub(crate) to_time: Option<String>,
    /// Answer in JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Mechanism {
    Anonymous,
    Plain,
    Scram,
    External,
}

#[derive(Args, Debug)]
pub(crate) struct Run {
    /// Name of the queue manager
    #[arg(default_value = "QM1")]
    pub(crate) name: String,
    /// Data folder, created if missing [default: TOWLINE_DATA, else ./data/NAME]
    #[arg(long, value_name = "DIR", env = "TOWLINE_DATA", hide_env = true)]
    pub(crate) data: Option<PathBuf>,
    /// Address and port for clients; port 0 picks a free one. Not with [[listener]] in the
    /// configuration [default: 127.0.0.1:5672]
    #[arg(long, value_name = "ADDR:PORT", value_parser = towline_config::listen_address)]
    pub(crate) listen: Option<SocketAddr>,
    /// Accept clients of other machines at the --listen address without TLS: their messages can be
    /// read and forged on the way. Users are still needed
    #[arg(long)]
    pub(crate) allow_plaintext: bool,
    /// Configuration, a TOML file
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Define queues with such names on first use; * at the end matches anything
    #[arg(long, value_name = "PATTERN")]
    pub(crate) auto_define: Option<String>,
    /// Share the data folder with other processes (strmqm -x): one is active, the others are
    /// standbys that take over. All need this option and the same configuration; see 'towline
    /// disktest --locks'
    #[arg(long)]
    pub(crate) standby: bool,
    /// Start although log extents with live messages are missing (TWL2060E): these messages are set
    /// aside as damaged when a consumer reaches them
    #[arg(long)]
    pub(crate) without_missing_extents: bool,
    /// Only check whether it would start: configuration, users, certificates, names, data folder;
    /// writes nothing
    #[arg(long)]
    pub(crate) check: bool,
    /// Answer in JSON
    #[arg(long, requires = "check")]
    pub(crate) json: bool,
    /// Microseconds added to each fsync of the log, for experiments
    #[arg(long, value_name = "N", default_value_t = 0, hide = true)]
    pub(crate) log_sync_delay_us: u64,
}

#[derive(Args, Debug)]
pub(crate) struct Mqsc {
    /// Read commands from a file
    #[arg(short, long, value_name = "FILE", conflicts_with = "command")]
    pub(crate) file: Option<PathBuf>,
    /// Run a command; may be given more than once
    #[arg(short, long, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
    #[command(flatten)]
    pub(crate) reach: Reach,
}

#[derive(Args, Debug)]
pub(crate) struct Put {
    /// Queue: NAME or queue://NAME
    #[arg(value_parser = queue_name)]
    pub(crate) queue: String,
    /// The message [default: standard input]
    #[arg(conflicts_with = "file")]
    pub(crate) body: Option<String>,
    /// Put the content of a file as one message; may be given more than once
    #[arg(short, long, value_name = "FILE")]
    pub(crate) file: Vec<PathBuf>,
    /// Put each line of the files or of standard input as one message
    #[arg(long)]
    pub(crate) lines: bool,
    /// Application property; true, false and numbers keep their type, 'text' in quotes is text
    #[arg(short, long = "property", value_name = "NAME=VALUE")]
    pub(crate) properties: Vec<String>,
    /// Correlation id
    #[arg(long, value_name = "ID")]
    pub(crate) correlation_id: Option<String>,
    /// Message id
    #[arg(long, value_name = "ID")]
    pub(crate) message_id: Option<String>,
    /// Queue for the reply
    #[arg(long, value_name = "QUEUE")]
    pub(crate) reply_to: Option<String>,
    /// Subject
    #[arg(long)]
    pub(crate) subject: Option<String>,
    /// Priority, 9 is first [default: DEFPRTY of the queue]
    #[arg(long, value_parser = clap::value_parser!(u8).range(0..=9))]
    pub(crate) priority: Option<u8>,
    /// Seconds until the message expires [default: never]
    #[arg(long, value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true)]
    pub(crate) ttl: Option<f64>,
    /// The message survives a restart (this is the default)
    #[arg(long, conflicts_with = "non_persistent")]
    pub(crate) persistent: bool,
    /// The message is in memory only and is lost on restart
    #[arg(long)]
    pub(crate) non_persistent: bool,
    /// Put everything N times
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) count: u64,
    /// Commit each N messages as a unit of work
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) transaction: Option<u64>,
    #[command(flatten)]
    pub(crate) reach: Reach,
}

/// What get and browse have in common.
#[derive(Args, Debug)]
pub(crate) struct Take {
    /// Queue: NAME or queue://NAME
    #[arg(value_parser = queue_name)]
    pub(crate) queue: String,
    /// Time to wait for each message
    #[arg(long, value_name = "SECONDS", default_value_t = 0.0,
          value_parser = seconds, allow_negative_numbers = true)]
    pub(crate) wait: f64,
    /// Only messages that match a JMS selector
    #[arg(long)]
    pub(crate) selector: Option<String>,
    /// Only messages with this correlation id
    #[arg(long, value_name = "ID")]
    pub(crate) correlation_id: Option<String>,
    /// Write each body to its own file in a folder
    #[arg(short, long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// Show header and properties too
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Continue until interrupted
    #[arg(long, conflicts_with = "wait")]
    pub(crate) follow: bool,
    #[command(flatten)]
    pub(crate) reach: Reach,
}

#[derive(Args, Debug)]
pub(crate) struct Get {
    #[command(flatten)]
    pub(crate) take: Take,
    /// Get at most N messages
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with_all = ["all", "follow"])]
    pub(crate) count: u64,
    /// Get all messages
    #[arg(long)]
    pub(crate) all: bool,
    /// Commit each N messages as a unit of work
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) transaction: Option<u64>,
}

#[derive(Args, Debug)]
pub(crate) struct Browse {
    #[command(flatten)]
    pub(crate) take: Take,
    /// Show at most N messages [default: all]
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u64>,
}

#[derive(Args, Debug)]
pub(crate) struct Move {
    /// Queue to take from: NAME or queue://NAME
    #[arg(value_parser = queue_name)]
    pub(crate) source: String,
    /// Queue to put on: NAME or queue://NAME
    #[arg(value_parser = queue_name)]
    pub(crate) target: String,
    /// Move at most N messages [default: all]
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u64>,
    /// Only messages that match a JMS selector
    #[arg(long)]
    pub(crate) selector: Option<String>,
    /// Commit each N messages as a unit of work
    #[arg(long, value_name = "N", default_value_t = 100,
          value_parser = clap::value_parser!(u64).range(1..=BATCH_MAX))]
    pub(crate) transaction: u64,
    #[command(flatten)]
    pub(crate) reach: Reach,
}

#[derive(Args, Debug)]
pub(crate) struct Status {
    /// Refresh every SECONDS (1 if not given), until q or Ctrl-C
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1",
          value_parser = interval, allow_negative_numbers = true)]
    pub(crate) watch: Option<f64>,
    /// The process with this id, if several processes of this machine share the data folder
    /// [default: the one that does not stand by]
    #[arg(long, value_name = "PID", conflicts_with = "url")]
    pub(crate) pid: Option<u32>,
    /// Show the groups of both regions, and how far the recovery group is behind
    #[arg(long)]
    pub(crate) groups: bool,
    #[command(flatten)]
    pub(crate) reach: Reach,
}

#[derive(Args, Debug)]
pub(crate) struct Explain {
    /// Id of the message, such as TWL1012E; 1012 is enough
    pub(crate) id: String,
    /// Answer in JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct User {
    /// Name of the user
    pub(crate) name: String,
    /// Users file that gets the line, in which it replaces the user of that name [default: print
    /// it]
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// File whose first line is the password (else TOWLINE_PASSWORD, else a prompt, else the first
    /// line of standard input)
    #[arg(long, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,
    /// Hash iterations of the password
    #[arg(long, value_name = "N")]
    pub(crate) iterations: Option<u32>,
    /// Answer in JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Log {
    /// Print batches and records
    Dump {
        #[command(flatten)]
        place: LogPlace,
        /// From this position on: <a:b:c:d>, 0x... or a number
        #[arg(long, value_name = "LSN")]
        from: Option<String>,
        /// Up to this position
        #[arg(long, value_name = "LSN")]
        to: Option<String>,
    },
    /// Check every batch, the images and the pages of the newest one; exit code 0 if all are sound
    Verify {
        #[command(flatten)]
        place: LogPlace,
    },
    /// Restore what is damaged from a backup or another instance; exit code 0 if nothing is left
    Repair {
        #[command(flatten)]
        place: LogPlace,
        /// Backup folder, or data folder of another instance of the group
        #[arg(long, value_name = "FOLDER")]
        from: PathBuf,
    },
}

#[derive(Args, Debug)]
pub(crate) struct LogPlace {
    /// Data folder of the queue manager
    #[arg(long, value_name = "DIR", default_value = "./data/QM1", env = "TOWLINE_DATA")]
    pub(crate) data: PathBuf,
    /// Answer in JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl Log {
    pub(crate) fn is_json(&self) -> bool {
        match self {
            Log::Dump { place, .. } | Log::Verify { place } | Log::Repair { place, .. } => {
                place.json
            }
        }
    }
}

/// The name of a queue; whether there is such a one, the queue manager knows.
fn queue_name(text: &str) -> Result<String, String> {
    match text.strip_prefix("queue://").unwrap_or(text) {
        "" => Err("the queue name is empty".into()),
        _ => Ok(text.to_owned()),
    }
}

/// Seconds from 0 to a year.
fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=31_536_000.0).contains(&seconds) => Ok(seconds),
        Ok(_) | Err(_) => Err("expected seconds from 0 to 31536000".into()),
    }
}

/// Seconds between two looks.
fn interval(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=3_600.0).contains(&seconds) => Ok(seconds),
        Ok(_) | Err(_) => Err("expected seconds from 0.1 to 3600".into()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn options_do_not_contradict_each_other() {
        Towline::command().debug_assert();
    }

    #[test]
    fn run_needs_none_of_its_arguments() {
        let Command::Run(run) = Towline::parse_from(["towline", "run"]).command else {
            panic!("run");
        };
        assert_eq!(run.name, "QM1");
        assert_eq!(run.listen, None);
        assert_eq!(run.data, None);
    }
}
