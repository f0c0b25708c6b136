//! The options of `towline run`, and the configuration that they add to.
//!
//! Not here: how options are written (the command), what the configuration means (`config`).

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use towline_config::{AutoDefineConfig, Config, ConfigError, ListenerConfig};
use towline_engine::{StartError, StartOptions};

use crate::refused::RunError;

/// Where clients come in when neither the command line nor the configuration says: the port of
/// AMQP.
const LISTEN_DEFAULT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 5672);

/// The options of `towline run`.
#[derive(Clone, Debug)]
pub struct RunArgs {
    /// The queue manager's name.
    pub name: String,
    /// Its data folder, made when it is not there.
    pub data: PathBuf,
    /// Where clients come in, when the configuration names no listener; else the default address.
    pub listen: Option<SocketAddr>,
    /// The configuration file.
    pub config: Option<PathBuf>,
    /// Accept clients of other machines without TLS at `listen`.
    pub allow_plaintext: bool,
    /// Names of queues that are defined on first use in this run.
    pub auto_define: Option<String>,
    /// Stand by when another instance is active on the same data folder, and take over when it
    /// ends.
    pub standby: bool,
    /// Added to each sync of the log, for experiments.
    pub log_sync_delay: Duration,
    /// Start although extents with live messages are gone: they are set aside when their turn
    /// comes.
    pub without_missing_extents: bool,
    /// How this program was called, for the commands to try that are printed after `ready`.
    pub program: String,
}

impl RunArgs {
    /// No option but the name, which is missing.
    pub(crate) fn of_nothing() -> RunArgs {
        RunArgs {
            name: String::new(),
            data: PathBuf::new(),
            listen: None,
            config: None,
            allow_plaintext: false,
            auto_define: None,
            standby: false,
            log_sync_delay: Duration::ZERO,
            without_missing_extents: false,
            program: String::new(),
        }
    }

    /// A start in this data folder that `error` prevents.
    pub(crate) fn refused(&self, error: StartError) -> RunError {
        let name = self.name.as_str().into();
        RunError::Start { name, data: self.data.as_path().into(), error }
    }

    pub(crate) fn wishes(&self) -> StartOptions {
        StartOptions {
            sync_delay: self.log_sync_delay,
            without_missing: self.without_missing_extents,
        }
    }
}

/// The configuration as its file says it.
pub(crate) fn of_file(args: &RunArgs) -> Result<Config, RunError> {
    let Some(file) = &args.config else { return Ok(Config::default()) };
    Config::read(file).map_err(|error| RunError::Config { file: Some(file.clone()), error })
}

/// The same with what the command line adds to it.
pub(crate) fn with_command_line(args: &RunArgs, mut config: Config) -> Result<Config, RunError> {
    if let Some(pattern) = &args.auto_define {
        let model = towline_config::DEFAULT_LOCAL_MODEL.to_owned();
        config.auto_define.push(AutoDefineConfig { pattern: pattern.clone(), model });
    }
    if config.listener.is_empty() {
        let allow_plaintext = args.allow_plaintext;
        let address = args.listen.unwrap_or(LISTEN_DEFAULT);
        config.listener.push(ListenerConfig { allow_plaintext, ..ListenerConfig::plain(address) });
    } else if args.listen.is_some() || args.allow_plaintext {
        // It would have no effect, and the operator would not know.
        let option = if args.listen.is_some() { "--listen" } else { "--allow-plaintext" };
        let why = format!(
            "it has [[listener]], and {option} is for a configuration without: leave the option out, \
             or change the [[listener]]"
        );
        return Err(RunError::Config { file: args.config.clone(), error: ConfigError::from(why) });
    }
    // The file was checked; what is wrong now is of the command line.
    config.check().map_err(|why| RunError::Config { file: None, error: ConfigError::from(why) })?;
    if config.group.is_some() && args.standby {
        let why = "--standby is for several processes on one folder, and [group] for instances \
                   with a folder each: choose one";
        let error = ConfigError::from(why.to_owned());
        return Err(RunError::Config { file: args.config.clone(), error });
    }
    Ok(config)
}
