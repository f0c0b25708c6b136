//! Options of the commands for two regions. No logic.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use towline_types::limits::TRANSFER_BYTES_MAX;

use super::group::Here;
use super::{BATCH_MAX, LogPlace, Mechanism, Reach, queue_name, seconds};
use crate::quantity::{bits_per_s, bytes, time};

const PLAN_EXIT_CODES: &str = "Exit codes: 0 it fits, 2 wrong usage, 3 the line is too thin, or \
                               there is too little space in the log.";

const DIVERGENCE_EXIT_CODES: &str = "Exit codes: 0 listed, 1 failed, or not all of the log can be \
                                     read, 2 wrong usage.";

const AGAIN_EXIT_CODES: &str = "Exit codes: 0 all were put, 1 failed, 2 wrong usage, 4 cannot \
                                connect.";

const CHANGE_EXIT_CODES: &str = "Exit codes: 0 done, 1 refused, taken back or in doubt, 2 wrong \
                                 usage, 3 --dry-run found something in the way, 4 cannot connect.";

const DRILL_EXIT_CODES: &str = "Exit codes: 0 there and back, 1 refused, taken back, or not back, 2 \
                                wrong usage, 3 an objective was missed, or --dry-run found \
                                something in the way, 4 cannot connect.";
const REHEARSE_EXIT_CODES: &str = "Exit codes: 0 it served, and the check ended with 0, 1 refused, \
                                   failed or ended by the instance, 2 wrong usage, 3 the check \
                                   did not end with 0, 4 cannot connect.\n\
                                   The check finds it by TOWLINE_URL and TOWLINE_PASSWORD, or \
                                   TOWLINE_HOST, TOWLINE_PORT and TOWLINE_USER, or TOWLINE_DATA.";

const CHECK_EXIT_CODES: &str = "Exit codes: 0 nothing stands in the way, 1 it cannot be told, 2 \
                                wrong usage, 3 something stands in the way, 4 no queue manager \
                                answers.";

#[derive(Debug, Subcommand)]
pub(crate) enum Region {
    /// Have the other region become live, without loss: ordered at the active instance of the live
    /// group
    #[command(after_help = CHANGE_EXIT_CODES)]
    Switch(RegionChange),
    /// Switch to the other region and back, under load, and report how long clients waited: ordered
    /// at the active instance of the live group
    #[command(after_help = DRILL_EXIT_CODES)]
    Drill(RegionDrill),
    /// Promote this recovery group because the live one is lost: what it has not received is given
    /// up. Ordered at any instance of the recovery group
    #[command(after_help = CHANGE_EXIT_CODES)]
    Failover(RegionFailover),
    /// Say what stands in the way of a switch to the other region: link, lag, quorum, certificates,
    /// clocks, space for a rebase, versions, configuration
    #[command(after_help = CHECK_EXIT_CODES)]
    Check(RegionCheck),
    /// Have the live group answer its clients without the other region until that has caught up
    /// (sync_replication): ordered at its active instance
    #[command(after_help = CHANGE_EXIT_CODES)]
    Alone(RegionChange),
    /// List what this old live group's log added and removed since another group was promoted
    #[command(after_help = DIVERGENCE_EXIT_CODES)]
    Divergence(RegionDivergence),
    /// Put the messages that `towline region divergence --export` saved
    #[command(after_help = AGAIN_EXIT_CODES)]
    PutAgain(RegionPutAgain),
    /// Have this old live group give up what it has behind the fork, and follow the promoted one.
    /// Ordered at one instance; the others of its group do the same
    #[command(after_help = CHANGE_EXIT_CODES)]
    Rejoin(RegionRejoin),
    /// Have this live group serve no client, durably, until it is unfenced: before a fail-over, or
    /// to isolate it. Ordered at any of its instances
    #[command(after_help = CHANGE_EXIT_CODES)]
    Fence(RegionFence),
    /// Take `towline region fence` back
    #[command(after_help = CHANGE_EXIT_CODES)]
    Unfence(RegionChange),
    /// Show the report of a change of roles, or of a drill, that an instance here carried out
    Report(RegionReportShow),
    /// Start a queue manager of its own at the recovery point of this recovery instance, run a
    /// check with it, and throw it away; the instance follows the live group as ever
    #[command(after_help = REHEARSE_EXIT_CODES)]
    Rehearse(RegionRehearse),
    /// Size the link to another region and the log: what is at risk, what an outage and a rebase
    /// take
    #[command(after_help = PLAN_EXIT_CODES)]
    Plan(RegionPlan),
}

#[derive(Args, Debug)]
pub(crate) struct RegionChange {
    /// Do not ask for confirmation
    #[arg(long)]
    pub(crate) yes: bool,
    /// Change nothing: show what would be lost or dropped, and what stands in the way
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) here: Here,
}

#[derive(Args, Debug)]
pub(crate) struct RegionDrill {
    /// How long the other group stays live: 5s to 1h
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = stay)]
    pub(crate) stay: Duration,
    /// Queue on which the probe puts its messages, and from which it takes them at the end
    /// [default: SYSTEM.REGION.DRILL, which is defined if it is not there, and closed for getting
    /// until they are counted]. Other clients should not get from one that is named: messages that
    /// they may have got are not judged
    #[arg(long, value_name = "NAME", value_parser = queue_name)]
    pub(crate) queue: Option<String>,
    /// Address at which the probe finds the other group; can be repeated [default: those that
    /// clients are given]
    #[arg(long, value_name = "URL")]
    pub(crate) other_url: Vec<String>,
    /// Do not ask for confirmation
    #[arg(long)]
    pub(crate) yes: bool,
    /// Change nothing: show what stands in the way
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) login: ProbeLogin,
    #[command(flatten)]
    pub(crate) here: Here,
}

/// How the probe of a drill logs in.
#[derive(Args, Debug)]
pub(crate) struct ProbeLogin {
    /// File with the password in its first line of the user in --other-url
    #[arg(long, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,
    /// SASL mechanism
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
}

#[derive(Args, Debug)]
pub(crate) struct RegionFailover {
    /// Promote this group although the live one is connected with it
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) change: RegionChange,
}

#[derive(Args, Debug)]
pub(crate) struct RegionDivergence {
    /// Where both logs part: <a:b:c:d>, 0x... or a number [default: as heard from the other region]
    #[arg(long, value_name = "LSN")]
    pub(crate) fork: Option<String>,
    /// Save the messages that were added, and those that perhaps were, for `towline region
    /// put-again`
    #[arg(long, value_name = "FILE")]
    pub(crate) export: Option<PathBuf>,
    /// Counts only
    #[arg(long)]
    pub(crate) summary: bool,
    #[command(flatten)]
    pub(crate) place: LogPlace,
}

/// What `put-again` does with messages of which it is not known that the tail added them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PerhapsAdded {
    /// Put them with the others
    Put,
    /// Leave them in the file
    Leave,
    /// Put them, and no other ones
    Only,
}

#[derive(Args, Debug)]
pub(crate) struct RegionPutAgain {
    /// The file
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Pass over so many messages: those that were put before it was interrupted
    #[arg(long, value_name = "N")]
    pub(crate) skip: Option<u64>,
    /// What to do with messages that were perhaps added: the other group may have them, or have had
    /// them, too
    #[arg(long, value_enum)]
    pub(crate) perhaps: Option<PerhapsAdded>,
    /// Put them although an earlier command did
    #[arg(long)]
    pub(crate) again: bool,
    /// Put those of this queue only
    #[arg(long, value_name = "NAME")]
    pub(crate) queue: Option<String>,
    /// Commit each N messages as a unit of work
    #[arg(long, value_name = "N", default_value_t = 100,
          value_parser = clap::value_parser!(u64).range(1..=BATCH_MAX))]
    pub(crate) transaction: u64,
    #[command(flatten)]
    pub(crate) reach: Reach,
}

#[derive(Args, Debug)]
pub(crate) struct RegionCheck {
    #[command(flatten)]
    pub(crate) reach: Reach,
}

#[derive(Args, Debug)]
pub(crate) struct RegionRejoin {
    /// Give up what is behind the fork although it was not exported
    #[arg(long)]
    pub(crate) discard_divergence: bool,
    #[command(flatten)]
    pub(crate) change: RegionChange,
}

#[derive(Args, Debug)]
pub(crate) struct RegionFence {
    /// Why, for clients and for the status: at most 100 characters
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true,
        value_parser = reason)]
    pub(crate) reason: String,
    #[command(flatten)]
    pub(crate) change: RegionChange,
}

#[derive(Args, Debug)]
pub(crate) struct RegionReportShow {
    /// Name of the report; LAST: the newest
    #[arg(value_name = "NAME", default_value = "LAST")]
    pub(crate) name: String,
    /// List all that are kept, the newest first
    #[arg(long, conflicts_with_all = ["name", "html"])]
    pub(crate) list: bool,
    /// Write it as a page of HTML, for its owner only (mode 0600)
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) place: LogPlace,
}

#[derive(Args, Debug)]
pub(crate) struct RegionRehearse {
    /// Port on the loopback address [default: any that is free]
    #[arg(long, value_name = "PORT", default_value_t = 0, hide_default_value = true)]
    pub(crate) port: u16,
    /// Keep it, behind the check if there is one, until Enter is pressed or standard input ends
    #[arg(long)]
    pub(crate) keep: bool,
    /// Bytes that it may write on the disk of the instance
    #[arg(long, value_name = "BYTES", default_value = "1GiB", value_parser = bytes)]
    pub(crate) room: u64,
    /// Data folder of an instance of the recovery group, on this machine
    #[arg(long, value_name = "DIR", default_value = "./data/QM1", env = "TOWLINE_DATA")]
    pub(crate) data: PathBuf,
    /// Longest time of the whole rehearsal in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 600.0, value_parser = seconds)]
    pub(crate) timeout: f64,
    /// Answer in JSON; what the check prints goes to standard error
    #[arg(long)]
    pub(crate) json: bool,
    /// A command that checks it
    #[arg(last = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Args, Debug)]
pub(crate) struct RehearsalPart {
    #[arg(long)]
    pub(crate) name: String,
    #[arg(long)]
    pub(crate) parent: i32,
    #[arg(long)]
    pub(crate) data: PathBuf,
    #[arg(long)]
    pub(crate) config: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct RegionPlan {
    /// Persistent messages put per second
    #[arg(long, value_name = "N", value_parser = rate)]
    pub(crate) rate: f64,
    /// Size of a message, with its header and properties, such as 2KiB
    #[arg(long, value_name = "BYTES", value_parser = message_bytes)]
    pub(crate) size: u64,
    /// Round trip between the regions, such as 40ms
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) rtt: Duration,
    /// Bandwidth from live to recovery, in bits per second, such as 50M
    #[arg(long, value_name = "BITS", value_parser = bits_per_s)]
    pub(crate) bandwidth: f64,
    /// Longest outage of the link to ride out without a rebase, such as 10min
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) outage: Duration,
    /// Share of the messages that are removed as fast as they are put; the others stay on the queue
    #[arg(long, value_name = "0..1", default_value_t = 1.0, value_parser = share)]
    pub(crate) removed: f64,
    /// How well the log compresses: bytes before LZ4 for each byte after it. 1 does not compress
    #[arg(long, value_name = "RATIO", default_value_t = 1.0, value_parser = ratio)]
    pub(crate) compress: f64,
    /// Time of one synced write of the log, as `towline disktest` measures it; in a group, with the
    /// round trip between its instances
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = time)]
    pub(crate) write: Duration,
    /// Log that may be on its way: window_bytes of [group.recovery]
    #[arg(long, value_name = "BYTES", default_value = "16MiB", value_parser = bytes)]
    pub(crate) window: u64,
    /// Log that live retains for recovery: log_bytes_behind_max of [group.recovery] [default: not
    /// compared]
    #[arg(long, alias = "log-room", value_name = "BYTES", value_parser = bytes)]
    pub(crate) log_space: Option<u64>,
    /// Bytes that a rebase copies: messages on the queues, the newest image and its pages [default:
    /// no rebase is planned]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub(crate) data: Option<u64>,
    /// Answer in JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// How long a drill stays.
fn stay(text: &str) -> Result<Duration, String> {
    let stay = time(text)?;
    match (5..=3_600).contains(&stay.as_secs()) {
        true => Ok(stay),
        false => Err(format!("{text}: 5s to 1h was expected")),
    }
}

impl Region {
    pub(crate) fn is_json(&self) -> bool {
        match self {
            Region::Switch(arguments) => arguments.here.json,
            Region::Drill(arguments) => arguments.here.json,
            Region::Failover(arguments) => arguments.change.here.json,
            Region::Alone(arguments) => arguments.here.json,
            Region::Check(arguments) => arguments.reach.json,
            Region::Divergence(arguments) => arguments.place.json,
            Region::PutAgain(arguments) => arguments.reach.json,
            Region::Rejoin(arguments) => arguments.change.here.json,
            Region::Fence(arguments) => arguments.change.here.json,
            Region::Unfence(arguments) => arguments.here.json,
            Region::Report(arguments) => arguments.place.json,
            Region::Rehearse(arguments) => arguments.json,
            Region::Plan(arguments) => arguments.json,
        }
    }
}

/// Characters of a reason, as instances keep it.
const REASON_CHARACTERS_MAX: usize = 100;

fn reason(text: &str) -> Result<String, String> {
    match text.chars().count() {
        0..=REASON_CHARACTERS_MAX => Ok(text.to_owned()),
        many => Err(format!("expected at most {REASON_CHARACTERS_MAX} characters, not {many}")),
    }
}

fn rate(text: &str) -> Result<f64, String> {
    number(text, 0.001..=1e9, "messages per second from 0.001 to 1000000000")
}

fn message_bytes(text: &str) -> Result<u64, String> {
    match bytes(text)? {
        size @ 1..=TRANSFER_BYTES_MAX => Ok(size),
        _ => Err(format!("expected 1 to {TRANSFER_BYTES_MAX} bytes, the longest message")),
    }
}

fn share(text: &str) -> Result<f64, String> {
    number(text, 0.0..=1.0, "a share from 0 to 1")
}

fn ratio(text: &str) -> Result<f64, String> {
    number(text, 1.0..=255.0, "a ratio from 1 to 255, the most that LZ4 reaches")
}

fn number(text: &str, range: std::ops::RangeInclusive<f64>, expected: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if range.contains(&number) => Ok(number),
        Ok(_) | Err(_) => Err(format!("expected {expected}")),
    }
}
