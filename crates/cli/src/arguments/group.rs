//! Options of the commands for a group of instances. No logic.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::seconds;

/// An instance on this machine, and how to answer.
#[derive(Args, Debug)]
pub(crate) struct Here {
    /// Data folder of an instance on this machine
    #[arg(long, value_name = "DIR", default_value = "./data/QM1", env = "TOWLINE_DATA")]
    pub(crate) data: PathBuf,
    /// Time-out in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0,
          value_parser = seconds, allow_negative_numbers = true)]
    pub(crate) timeout: f64,
    /// Answer in JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Switch {
    /// Name of the instance to make active [default: the one best in sync]
    #[arg(long, value_name = "NAME")]
    pub(crate) to: Option<String>,
    #[command(flatten)]
    pub(crate) here: Here,
}

#[derive(Args, Debug)]
pub(crate) struct Stop {
    /// Stop an instance even if the others have no quorum without it
    #[arg(long)]
    pub(crate) force: bool,
    /// The process with this id, if several processes of this machine share the data folder
    /// [default: the one that does not stand by]
    #[arg(long, value_name = "PID")]
    pub(crate) pid: Option<u32>,
    #[command(flatten)]
    pub(crate) here: Here,
}

#[derive(Args, Debug)]
pub(crate) struct RollingRestart {
    /// Data folders of all instances; may be given more than once
    #[arg(long, value_name = "DIR", num_args = 1.., required_unless_present = "dir")]
    pub(crate) data: Vec<PathBuf>,
    /// Folder with the data folders of all instances, as `towline group demo` creates it
    #[arg(long, value_name = "DIR", conflicts_with = "data")]
    pub(crate) dir: Option<PathBuf>,
    /// Restart only the instance of --data: with one instance per machine, run it on one machine
    /// after the other
    #[arg(long, requires = "data")]
    pub(crate) this_one: bool,
    /// Start although not all instances are in sync
    #[arg(long)]
    pub(crate) force: bool,
    /// Time for each instance to be in sync again
    #[arg(long, value_name = "SECONDS", default_value_t = 300.0,
          value_parser = seconds, allow_negative_numbers = true)]
    pub(crate) timeout: f64,
    /// Answer in JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Instance {
    /// Set aside the lost or damaged log of an instance: its next start rebuilds it from the group
    Replace(Replace),
    /// Unsafe recovery: let an instance that lost log vote again, if the group elects no active
    /// instance any more; acknowledged messages may be lost
    ForceVote(ForceVote),
}

impl Instance {
    pub(crate) fn is_json(&self) -> bool {
        match self {
            Instance::Replace(arguments) => arguments.json,
            Instance::ForceVote(arguments) => arguments.json,
        }
    }
}

#[derive(Args, Debug)]
pub(crate) struct Replace {
    /// Data folder of the instance, which must be stopped
    #[arg(long, value_name = "DIR", env = "TOWLINE_DATA")]
    pub(crate) data: PathBuf,
    /// Its configuration file; [group] names the instance
    #[arg(long, value_name = "FILE")]
    pub(crate) config: PathBuf,
    /// Name of the queue manager
    #[arg(long, value_name = "NAME", default_value = "QM1")]
    pub(crate) name: String,
    /// Time for the other instances to be in sync
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0,
          value_parser = seconds, allow_negative_numbers = true)]
    pub(crate) timeout: f64,
    /// Do not ask for confirmation
    #[arg(long)]
    pub(crate) yes: bool,
    /// Replace the log although the others cannot serve without it, or cannot be asked
    #[arg(long)]
    pub(crate) force: bool,
    /// Answer in JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct ForceVote {
    /// Data folder of the instance, which must be stopped
    #[arg(long, value_name = "DIR", env = "TOWLINE_DATA")]
    pub(crate) data: PathBuf,
    /// Its configuration file; [group] names the instance
    #[arg(long, value_name = "FILE")]
    pub(crate) config: PathBuf,
    /// Name of the queue manager
    #[arg(long, value_name = "NAME", default_value = "QM1")]
    pub(crate) name: String,
    /// Do not ask for confirmation
    #[arg(long)]
    pub(crate) yes: bool,
    /// Let it vote although the group has an active instance
    #[arg(long)]
    pub(crate) force: bool,
    /// Answer in JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Group {
    /// Create an authority and a certificate for each instance; with an existing authority, renew
    /// the certificates
    Certificates(GroupCertificates),
    /// Check the [group] of a configuration and its certificates
    Check {
        /// Configuration file of one instance
        config: PathBuf,
        /// Name of the queue manager
        #[arg(long, value_name = "NAME", default_value = "QM1")]
        name: String,
        /// Which instance [default: the one that the configuration names]
        #[arg(long, value_name = "NAME")]
        instance: Option<String>,
        /// Answer in JSON
        #[arg(long)]
        json: bool,
    },
    /// Show whether this machine has the floating address of a configuration, or remove it
    Address {
        /// Configuration file of the instance on this machine
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// Remove it, for a supervisor after an instance was killed. A running active instance adds
        /// it again
        #[arg(long)]
        drop: bool,
        /// Do not ask for confirmation when an instance runs on this machine
        #[arg(long, requires = "drop")]
        yes: bool,
        /// Answer in JSON
        #[arg(long)]
        json: bool,
    },
    /// Run a group on this machine to try it: certificates, configurations, processes
    Demo(Demo),
}

#[derive(Args, Debug)]
pub(crate) struct Demo {
    /// Folder for all files, created if missing
    #[arg(long, value_name = "DIR", default_value = "./data/group")]
    pub(crate) dir: PathBuf,
    /// Name of the queue manager and of its group
    #[arg(long, default_value = "QM1")]
    pub(crate) name: String,
    /// First port on the loopback address: one for the clients of each instance, then one for the
    /// links of each
    #[arg(long, default_value_t = 5672, value_parser = clap::value_parser!(u16).range(1..=65_530))]
    pub(crate) port: u16,
    /// Instances of the group: one, or three
    #[arg(long, value_name = "N", default_value = "3", value_parser = ["1", "3"])]
    pub(crate) instances: String,
}

#[derive(Args, Debug)]
pub(crate) struct GroupCertificates {
    /// Folder for the PEM files, created if missing
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Name of the queue manager
    #[arg(long, value_name = "NAME", default_value = "QM1")]
    pub(crate) name: String,
    /// Name of the group [default: that of the queue manager]
    #[arg(long, value_name = "NAME")]
    pub(crate) group: Option<String>,
    /// Names of the instances
    #[arg(long, value_name = "A,B,C", value_delimiter = ',', required = true)]
    pub(crate) instances: Vec<String>,
    /// Days that the certificates are valid; the authority is valid for ten years
    #[arg(long, value_name = "N", default_value_t = 365,
          value_parser = clap::value_parser!(u32).range(1..=3_650))]
    pub(crate) days: u32,
    /// Answer in JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl Group {
    pub(crate) fn is_json(&self) -> bool {
        match self {
            Group::Certificates(arguments) => arguments.json,
            Group::Check { json, .. } | Group::Address { json, .. } => *json,
            Group::Demo(_) => false,
        }
    }
}
