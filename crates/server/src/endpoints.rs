//! The sockets of one process, as configuration and command line name them: listeners over TCP, the
//! local socket in the data folder; and the number of threads that serve them.
//!
//! Not here: what happens on a socket (`net`); the control socket (`control`).

use std::net::TcpListener;
use std::sync::Arc;

use towline_access::{Attempts, LoginPolicy};
use towline_config::{Config, ListenerConfig};

use crate::control::names;
use crate::net::{ListenerKind, Listening, LocalAccess, bind_floating, server_settings};
use crate::refused::RunError;
use crate::reload::Reload;
use crate::run_args::RunArgs;

/// Listens where the configuration says; on the socket that came from the program before, if one
/// did.
pub(crate) fn listen(
    args: &RunArgs,
    (listener, came): (&ListenerConfig, Option<TcpListener>),
    config: &Config,
    reload: &Reload,
    attempts: &Arc<Attempts>,
) -> Result<(Listening, String), RunError> {
    let tls = server_settings(listener).map_err(RunError::Tls)?;
    if let Some(tls) = &tls {
        reload.watch(tls);
    }
    let policy = LoginPolicy::new(&args.name, listener, &config.limits, &reload.users, attempts);
    let policy =
        policy.map_err(|why| RunError::Config { file: args.config.clone(), error: why.into() })?;
    let scheme = policy.scheme();
    let kind = ListenerKind { tls, policy: Arc::new(policy), elsewhere: None, addresses: None };
    let floating = config.group.as_ref().and_then(|group| group.floating.as_ref());
    let floats = floating.is_some_and(|floating| floating.address.ip == listener.address.ip());
    let bound = match came {
        Some(socket) => Ok(socket),
        None if floats => bind_floating(listener.address),
        None => TcpListener::bind(listener.address),
    };
    let (listening, address) = bound
        .and_then(|socket| Listening::tcp(socket, kind))
        .map_err(|error| RunError::Listen { address: listener.address.to_string(), error })?;
    Ok((listening, format!("{scheme}://{address}")))
}

/// How clients of the local socket are served.
pub(crate) fn local_kind(args: &RunArgs, config: &Config, reload: &Reload) -> ListenerKind {
    let policy = Arc::new(LoginPolicy::local(&args.name, &config.limits, &reload.users));
    ListenerKind { tls: None, policy, elsewhere: None, addresses: None }
}

/// Whether the local sockets in the data folder can have their paths, before anything is made
/// there.
pub(crate) fn check_socket(args: &RunArgs, config: &Config) -> Result<(), RunError> {
    /// `sun_path` of Linux (man 7 unix), without the zero at its end.
    const BYTES_MAX: usize = 107;
    // A folder that cannot be listed is refused when it is used.
    let is_shared = args.standby || matches!(towline_standby::is_shared(&args.data), Ok(true));
    let name = names::name_bytes_max(is_shared && config.group.is_none());
    let path = args.data.join("towline.sock");
    let bytes = path.as_os_str().len() - "towline.sock".len() + name.max("towline.sock".len());
    if bytes <= BYTES_MAX {
        return Ok(());
    }
    let why = format!(
        "the path of the control socket has {bytes} bytes, and {BYTES_MAX} are allowed: choose a shorter \
         name, or a shorter folder with --data"
    );
    let error = std::io::Error::new(std::io::ErrorKind::InvalidInput, why);
    Err(RunError::Listen { address: path.display().to_string(), error })
}

/// Listens on the local socket in the data folder.
pub(crate) fn listen_locally(
    args: &RunArgs,
    config: &Config,
    kind: ListenerKind,
) -> Result<Listening, RunError> {
    let access = LocalAccess::of_process(config.users.local_group.as_deref());
    let access =
        access.map_err(|why| RunError::Config { file: args.config.clone(), error: why.into() })?;
    let path = args.data.join("towline.sock");
    Listening::local(&path, kind, access)
        .map_err(|error| RunError::Listen { address: path.display().to_string(), error })
}

/// How many I/O threads serve connections.
pub(crate) fn io_threads(config: &Config) -> usize {
    match config.limits.io_threads {
        0 => std::thread::available_parallelism().map_or(1, |cores| cores.get().div_ceil(2)),
        threads => threads,
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn a_data_folder_whose_sockets_would_have_too_long_a_path_is_refused() {
        for (standby, bytes_max) in [(false, 86), (true, 69)] {
            let check = |bytes| {
                let data = PathBuf::from("x".repeat(bytes));
                let args = RunArgs { standby, data, ..RunArgs::of_nothing() };
                check_socket(&args, &Config::default()).map_err(|error| error.to_string())
            };
            assert_eq!(check(bytes_max), Ok(()));
            let why = check(bytes_max + 1).unwrap_err();
            assert!(why.contains("has 108 bytes, and 107 are allowed"), "{why}");
        }
    }
}
