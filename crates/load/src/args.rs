//! The command line of the load harness, as clap reads it.
//!
//! It does *not* check how the options fit together: [`crate::plan`] does, and the rest of the
//! program sees only the plan.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// What the clients do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lower")]
pub enum Mode {
    /// Put one, wait for accepted, get one, accept; one in flight per client.
    Requester,
    /// Get requests and put a reply to each one's reply-to.
    Responder,
    /// Put only.
    Put,
    /// Get only.
    Get,
    /// Producers and consumers side by side, each with a window.
    Stream,
    /// Units of work: put a batch and commit, get a batch and commit.
    Transaction,
    /// Open connections and hold them.
    Idle,
}

/// How well the bodies compress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lower")]
pub enum Entropy {
    /// Not at all.
    Random,
    /// Almost to nothing.
    Zeros,
    /// Like words.
    Text,
}

/// SASL mechanism to log in with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lower")]
pub enum Mechanism {
    /// No identity.
    Anonymous,
    /// User and password.
    Plain,
    /// SCRAM-SHA-256: user and password, which is not sent.
    Scram,
    /// No SASL layer at all.
    None,
}

/// Puts load on any AMQP 1.0 broker and measures rate, latency and completeness.
#[derive(Args, Clone, Debug)]
pub struct LoadArgs {
    /// What the clients do
    #[arg(value_enum)]
    pub mode: Mode,

    /// Broker, amqp://[USER@]HOST[:PORT] or amqps://; repeat it for a fail-over list
    #[arg(long, value_name = "URL", default_value = "amqp://127.0.0.1:5672")]
    pub url: Vec<String>,
    /// SASL mechanism [default: scram with a user, else anonymous]
    #[arg(long, value_enum)]
    pub sasl: Option<Mechanism>,
    /// User for PLAIN and SCRAM (or in the URL)
    #[arg(long)]
    pub user: Option<String>,
    /// File whose first line is the password; without it TOWLINE_PASSWORD is used
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<PathBuf>,
    /// PEM file of the authorities that amqps:// trusts
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// Connect again after a loss, also with one URL
    #[arg(long)]
    pub reconnect: bool,
    /// Ask a replica for the address of the active instance, and connect there
    #[arg(long)]
    pub redirect: bool,
    /// Seconds without a frame after which a connection is lost; brokers send heartbeats
    #[arg(long, value_name = "SECONDS", default_value_t = 120.0)]
    pub idle_timeout: f64,

    /// Clients of requester, responder, put, get, transaction and idle
    #[arg(long, default_value_t = 1)]
    pub clients: u32,
    /// Producers of stream
    #[arg(long, default_value_t = 1)]
    pub producers: u32,
    /// Consumers of stream
    #[arg(long, default_value_t = 1)]
    pub consumers: u32,
    /// Threads for the connections
    #[arg(long, default_value_t = 1)]
    pub threads: u32,
    /// Idle connections held beside the load
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub idle: u32,

    /// Queue; repeat it, or use a pattern with --queues: q%d
    #[arg(long, value_name = "NAME", default_value = "load")]
    pub queue: Vec<String>,
    /// Number of queues that the pattern makes; client i uses queue i modulo N
    #[arg(long, value_name = "N")]
    pub queues: Option<u32>,
    /// Requester: send a request and wait for the responder's reply on a dynamic queue
    #[arg(long, conflicts_with = "shared")]
    pub reply: bool,
    /// Requester: all clients put to and get from the same queues (the default)
    #[arg(long)]
    pub shared: bool,
    /// Responders run by this process beside --reply requesters
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub responders: u32,

    /// Body size in bytes, at least 32
    #[arg(long, default_value_t = 2048, value_name = "BYTES")]
    pub size: u32,
    /// Compressibility of the bodies
    #[arg(long, value_enum, default_value = "random")]
    pub entropy: Entropy,
    /// Durable messages (the default)
    #[arg(long, conflicts_with = "non_persistent")]
    pub persistent: bool,
    /// Non-durable messages
    #[arg(long)]
    pub non_persistent: bool,
    /// Unsettled messages of a producer, and credit of a consumer
    #[arg(long, default_value_t = 256, value_name = "N")]
    pub window: u32,
    /// Requester: credit kept between gets, as ordinary clients do; 0 requests each message when it
    /// is needed. Default 1, with --rate 0: an idle client would keep messages that others wait for
    #[arg(long, value_name = "0|1")]
    pub prefetch: Option<u32>,
    /// Transaction: messages in a unit of work
    #[arg(long, default_value_t = 1, value_name = "B")]
    pub batch: u32,

    /// Operations (puts, pairs, units) per second of all clients together; unrated when absent
    #[arg(long, value_name = "N")]
    pub rate: Option<f64>,
    /// Measured seconds
    #[arg(long, default_value_t = 10.0)]
    pub seconds: f64,
    /// Operations of all clients together; ends the run when done (--seconds still bounds it)
    #[arg(long)]
    pub count: Option<u64>,
    /// Seconds of the same load before measuring starts
    #[arg(long, default_value_t = 0.0)]
    pub warmup: f64,
    /// Get: end after this many seconds without a message
    #[arg(long, value_name = "SECONDS")]
    pub until_empty: Option<f64>,

    /// Get the messages left on the queues at the end, and count them as received
    #[arg(long)]
    pub verify_drain: bool,
    /// Do not fail because of duplicate messages
    #[arg(long)]
    pub allow_duplicates: bool,

    /// Server process on this machine: reports its CPU time per message and its memory; repeatable
    #[arg(long, value_name = "PID")]
    pub server_pid: Vec<u32>,
    /// Write the result as JSON; - for standard output
    #[arg(long, value_name = "FILE")]
    pub json: Option<String>,
    /// Write one line per second
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Write the times of confirmed puts, and of lost and opened connections, of each client
    #[arg(long, value_name = "FILE")]
    pub events: Option<PathBuf>,
    /// No progress and no table
    #[arg(long, short)]
    pub quiet: bool,
}
