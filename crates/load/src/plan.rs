//! What a run does, checked: the options of [`LoadArgs`] fitted together.
//!
//! Everything behind this file trusts the plan. It opens no connection; of the outside world it
//! reads the password file and nothing else.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use std::{env, fs};

use crate::args::{Entropy, LoadArgs, Mechanism, Mode};
use crate::stamp::STAMP_BYTES;
use towline_amqp::Url;

/// Connections of one run: far above what one machine's ports allow.
const CLIENTS_MAX: u32 = 60_000;
/// Threads of one run.
const THREADS_MAX: u32 = 64;
/// Smallest body: a stamp.
const SIZE_BYTES_MIN: u32 = 32;
const _: () = assert!(SIZE_BYTES_MIN as usize == STAMP_BYTES);
/// Largest body: as the largest message of IBM MQ.
const SIZE_BYTES_MAX: u32 = 104_857_600;
/// Shortest silence for which a connection counts as lost; a busy machine is silent for less.
const IDLE_TIMEOUT_MIN: Duration = Duration::from_millis(100);
/// Longest: a day.
const IDLE_TIMEOUT_MAX: Duration = Duration::from_secs(86_400);
/// Largest window, batch.
const WINDOW_MAX: u32 = 100_000;

/// What one connection does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Pairs on a shared queue.
    Requester,
    /// Requests with a reply on a dynamic queue.
    Asker,
    /// Replies.
    Responder,
    /// Puts.
    Producer,
    /// Gets.
    Consumer,
    /// Units of work.
    Transactor,
    /// Nothing.
    Idle,
}

impl Part {
    /// Whether it begins operations by itself, so that rate and count are shared out to it.
    pub(crate) const fn drives(self) -> bool {
        match self {
            Part::Requester | Part::Asker | Part::Producer | Part::Transactor => true,
            Part::Responder | Part::Consumer | Part::Idle => false,
        }
    }
}

/// One connection to make.
#[derive(Clone, Debug)]
pub(crate) struct Seat {
    /// What it does.
    pub(crate) part: Part,
    /// Which of those that drive it is, from 0; 0 for the others.
    pub(crate) number: u32,
    /// Unique in the run: part of container and link names.
    pub(crate) index: u32,
    /// The queue it puts to and gets from.
    pub(crate) queue: Arc<str>,
    /// Operations after which it is done.
    pub(crate) quota: Option<u64>,
}

/// How to log in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Credentials {
    /// No SASL layer.
    None,
    /// SASL ANONYMOUS.
    Anonymous,
    /// SASL PLAIN.
    Plain {
        /// The name of the user.
        user: Arc<str>,
        /// The proof.
        password: Arc<str>,
    },
    /// SASL SCRAM-SHA-256.
    Scram {
        /// The name of the user.
        user: Arc<str>,
        /// The proof.
        password: Arc<str>,
    },
}

/// A checked run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) mode: Mode,
    /// Brokers in the order in which they are tried; never empty.
    pub(crate) urls: Vec<Url>,
    pub(crate) credentials: Credentials,
    /// Authorities for amqps.
    pub(crate) ca: Option<PathBuf>,
    /// Whether a lost connection is made again.
    pub(crate) reconnect: bool,
    /// Whether brokers are asked to send clients on.
    pub(crate) redirect: bool,
    /// A connection is lost after so long a silence.
    pub(crate) idle_timeout: Duration,
    /// Whether each client's events are kept.
    pub(crate) keeps_events: bool,
    /// The connections.
    pub(crate) seats: Vec<Seat>,
    pub(crate) threads: u32,
    pub(crate) queues: Vec<Arc<str>>,
    /// Body size in bytes, at least [`STAMP_BYTES`].
    pub(crate) size: usize,
    pub(crate) entropy: Entropy,
    pub(crate) persistent: bool,
    pub(crate) window: u32,
    /// Credit stands between the gets of a requester.
    pub(crate) prefetch: bool,
    pub(crate) batch: u32,
    /// Time from one operation of one driving client to its next.
    pub(crate) interval: Option<Duration>,
    pub(crate) warmup: Duration,
    pub(crate) seconds: Duration,
    pub(crate) count: Option<u64>,
    pub(crate) until_empty: Option<Duration>,
    pub(crate) verify_drain: bool,
    /// Whether messages that other processes put are checked like our own.
    pub(crate) adopts: bool,
    pub(crate) allow_duplicates: bool,
    /// Number of this run, in each stamp.
    pub(crate) run: u32,
}

impl Plan {
    /// Checks the options. `run` is a random number for this run.
    ///
    /// # Errors
    /// A sentence that says which option is wrong.
    pub(crate) fn new(args: &LoadArgs, run: u32) -> Result<Plan, String> {
        let urls: Vec<Url> =
            args.url.iter().map(|url| Url::parse(url)).collect::<Result<_, _>>()?;
        let first = urls.first().ok_or("no --url")?;
        let queues = queue_names(&args.queue, args.queues)?;
        let seats = seats(args, &queues)?;
        within("--threads", args.threads, 1, THREADS_MAX)?;
        within("--size", args.size, SIZE_BYTES_MIN, SIZE_BYTES_MAX)?;
        within("--window", args.window, 1, WINDOW_MAX)?;
        within("--batch", args.batch, 1, WINDOW_MAX)?;
        let prefetch = args.prefetch.unwrap_or(u32::from(args.rate.is_none()));
        within("--prefetch", prefetch, 0, 1)?;
        let drivers = seats.iter().filter(|seat| seat.part.drives()).count();
        Ok(Plan {
            mode: args.mode,
            credentials: credentials(args, first)?,
            ca: args.ca.clone(),
            reconnect: args.reconnect || urls.len() > 1,
            redirect: args.redirect,
            idle_timeout: idle_timeout(args.idle_timeout)?,
            keeps_events: args.events.is_some(),
            urls,
            threads: args.threads,
            queues,
            size: args.size as usize,
            entropy: args.entropy,
            persistent: !args.non_persistent,
            window: args.window,
            prefetch: prefetch == 1,
            batch: args.batch,
            interval: args.rate.map(|rate| interval(rate, drivers)).transpose()?,
            warmup: seconds("--warmup", args.warmup)?,
            seconds: seconds("--seconds", args.seconds)?,
            count: args.count,
            until_empty: args
                .until_empty
                .map(|given| seconds("--until-empty", given))
                .transpose()?,
            verify_drain: args.verify_drain,
            // A process that only gets, or only answers, sees what others put.
            adopts: matches!(args.mode, Mode::Get | Mode::Responder),
            allow_duplicates: args.allow_duplicates,
            run,
            seats,
        })
    }

    /// The run that gets what this one left: one consumer for each queue, until nothing comes.
    pub(crate) fn drain(&self) -> Plan {
        let seats = self.queues.iter().zip(0..).map(|(queue, index)| Seat {
            part: Part::Consumer,
            number: 0,
            index,
            queue: queue.clone(),
            quota: None,
        });
        Plan {
            mode: Mode::Get,
            seats: seats.collect(),
            threads: 1,
            interval: None,
            warmup: Duration::ZERO,
            seconds: Duration::from_secs(600),
            count: None,
            until_empty: Some(Duration::from_secs(2)),
            verify_drain: false,
            keeps_events: false,
            adopts: false,
            ..self.clone()
        }
    }
}

fn within(option: &str, value: u32, min: u32, max: u32) -> Result<(), String> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    Err(format!("{option} {value} is not between {min} and {max}"))
}

fn seconds(option: &str, value: f64) -> Result<Duration, String> {
    Duration::try_from_secs_f64(value).map_err(|error| format!("{option} {value}: {error}"))
}

/// What `open` can say, in milliseconds of 32 bits; 0 would mean that silence is never too long.
fn idle_timeout(value: f64) -> Result<Duration, String> {
    let given = seconds("--idle-timeout", value)?;
    if (IDLE_TIMEOUT_MIN..=IDLE_TIMEOUT_MAX).contains(&given) {
        return Ok(given);
    }
    Err(format!("--idle-timeout {value} is not between 0.1 and 86400"))
}

fn interval(rate: f64, drivers: usize) -> Result<Duration, String> {
    if drivers == 0 {
        return Err("--rate: clients of this mode only respond".into());
    }
    #[expect(clippy::cast_precision_loss, reason = "at most 60,000 clients")]
    let interval = Duration::try_from_secs_f64(drivers as f64 / rate);
    match interval {
        Ok(interval) if rate > 0.0 && !interval.is_zero() => Ok(interval),
        _ => Err(format!("--rate {rate}: expected a number above 0")),
    }
}

/// The queues: those named, or what the pattern makes.
fn queue_names(named: &[String], number: Option<u32>) -> Result<Vec<Arc<str>>, String> {
    let Some(number) = number else {
        return Ok(named.iter().map(|name| Arc::from(name.as_str())).collect());
    };
    let [pattern] = named else { return Err("--queues needs one --queue pattern".into()) };
    within("--queues", number, 1, CLIENTS_MAX)?;
    if !pattern.contains("%d") {
        return Err(format!("--queue {pattern}: --queues needs %d in the name"));
    }
    Ok((0..number).map(|i| Arc::from(pattern.replace("%d", &i.to_string()))).collect())
}

fn credentials(args: &LoadArgs, first: &Url) -> Result<Credentials, String> {
    let has_user = args.user.is_some() || first.user.is_some();
    let by_default = if has_user { Mechanism::Scram } else { Mechanism::Anonymous };
    Ok(match args.sasl.unwrap_or(by_default) {
        Mechanism::None => Credentials::None,
        Mechanism::Anonymous => Credentials::Anonymous,
        Mechanism::Plain => {
            let (user, password) = user_and_password(args, first)?;
            Credentials::Plain { user, password }
        }
        Mechanism::Scram => {
            let (user, password) = user_and_password(args, first)?;
            Credentials::Scram { user, password }
        }
    })
}

fn user_and_password(args: &LoadArgs, first: &Url) -> Result<(Arc<str>, Arc<str>), String> {
    let user = args.user.clone().or_else(|| first.user.clone());
    let user = user.ok_or("this --sasl needs a --user")?;
    let password = match &args.password_file {
        Some(path) => fs::read_to_string(path)
            .map_err(|error| format!("{}: {error}", path.display()))?
            .lines()
            .next()
            .unwrap_or_default()
            .to_owned(),
        None => env::var("TOWLINE_PASSWORD")
            .map_err(|_| "this --sasl needs --password-file or TOWLINE_PASSWORD")?,
    };
    Ok((user.into(), password.into()))
}

/// Which clients take part in which mode.
fn cast(args: &LoadArgs) -> Vec<(Part, u32)> {
    let mut parts = match args.mode {
        Mode::Requester if args.reply => {
            vec![(Part::Responder, args.responders), (Part::Asker, args.clients)]
        }
        Mode::Requester => vec![(Part::Requester, args.clients)],
        Mode::Responder => vec![(Part::Responder, args.clients)],
        Mode::Put => vec![(Part::Producer, args.clients)],
        Mode::Get => vec![(Part::Consumer, args.clients)],
        Mode::Stream => vec![(Part::Producer, args.producers), (Part::Consumer, args.consumers)],
        Mode::Transaction => vec![(Part::Transactor, args.clients)],
        Mode::Idle => vec![(Part::Idle, args.clients)],
    };
    parts.push((Part::Idle, args.idle));
    parts
}

fn seats(args: &LoadArgs, queues: &[Arc<str>]) -> Result<Vec<Seat>, String> {
    let cast = cast(args);
    let total: u32 = cast.iter().map(|(_, count)| count).fold(0, |sum, n| sum.saturating_add(*n));
    within("the number of clients", total, 1, CLIENTS_MAX)?;
    let drivers: u32 = cast.iter().filter(|(part, _)| part.drives()).map(|(_, n)| n).sum();
    let mut seats = Vec::new();
    for (part, count) in cast {
        for i in 0..count {
            let number = if part.drives() { i } else { 0 };
            let quota = args.count.filter(|_| part.drives()).map(|all| {
                let drivers = u64::from(drivers);
                all / drivers + u64::from(u64::from(number) < all % drivers)
            });
            let index = u32::try_from(seats.len()).unwrap_or(u32::MAX);
            let queue = queues.get(i as usize % queues.len()).ok_or("no queue")?.clone();
            seats.push(Seat { part, number, index, queue, quota });
        }
    }
    Ok(seats)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        load: LoadArgs,
    }

    fn plan(line: &str) -> Result<Plan, String> {
        let words = std::iter::once("load").chain(line.split_whitespace());
        Plan::new(&Command::try_parse_from(words).unwrap().load, 1)
    }

    #[test]
    fn a_count_is_shared_out_without_a_rest() {
        let plan = plan("put --clients 3 --count 10 --idle 2").unwrap();
        let quotas: Vec<_> = plan.seats.iter().map(|seat| seat.quota).collect();
        assert_eq!(quotas, [Some(4), Some(3), Some(3), None, None]);
    }

    #[test]
    fn producers_and_consumers_meet_on_the_same_queues() {
        let plan = plan("stream --producers 3 --consumers 2 --queue q%d --queues 2").unwrap();
        let queues: Vec<&str> = plan.seats.iter().map(|seat| &*seat.queue).collect();
        assert_eq!(queues, ["q0", "q1", "q0", "q0", "q1"]);
    }

    #[test]
    fn a_rate_is_of_all_clients_together() {
        let plan = plan("requester --clients 10 --rate 1000").unwrap();
        assert_eq!(plan.interval, Some(Duration::from_millis(10)));
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        for line in [
            "put --size 31",
            "put --clients 0",
            "get --rate 5",
            "put --rate 0",
            "put --rate=-1",
            "put --queues 3",
            "put --queue a%d --queue b --queues 3",
            "put --seconds=-1",
            "put --window 0",
            "put --idle-timeout 0",
            "put --sasl plain",
            "put --url http://x",
            "put --url amqp://x:0",
            "put --url amqp://x/queue",
        ] {
            assert!(plan(line).is_err(), "{line}");
        }
    }

    #[test]
    fn two_addresses_are_a_fail_over_list() {
        assert!(!plan("put").unwrap().reconnect);
        assert!(plan("put --url amqp://a --url amqp://b").unwrap().reconnect);
    }

    #[test]
    fn a_user_logs_in_with_scram_and_is_decoded() {
        let folder = tempfile::tempdir().unwrap();
        let password = folder.path().join("password");
        fs::write(&password, "secret\n").unwrap();
        let line = format!("put --password-file {} --url amqp://a%40b@h", password.display());
        let Credentials::Scram { user, password } = plan(&line).unwrap().credentials else {
            panic!("a user is given");
        };
        assert_eq!((&*user, &*password), ("a@b", "secret"));
        assert!(matches!(plan("put").unwrap().credentials, Credentials::Anonymous));
        let asked = plan("put --sasl none --user a").unwrap().credentials;
        assert!(matches!(asked, Credentials::None));
    }
}
