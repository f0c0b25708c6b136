//! `towline run`: turns options into what the server room wants. Everything else happens there.

use std::path::PathBuf;
use std::time::Duration;

use towline_server::RunArgs;

use crate::arguments::Run;
use crate::failure::Failure;

/// Runs a queue manager until it is told to end.
pub(crate) fn run(arguments: &Run) -> Result<(), Failure> {
    let name = &arguments.name;
    let data = match &arguments.data {
        Some(data) => data.clone(),
        // A name becomes part of a path here, so it must not lead anywhere else.
        None if name.contains('/') || name == "." || name == ".." => {
            return Err(Failure::Usage(format!("{name}: such a name needs --data DIR")));
        }
        None => PathBuf::from("./data").join(name),
    };
    let told = RunArgs {
        name: name.clone(),
        data,
        listen: arguments.listen,
        config: arguments.config.clone(),
        allow_plaintext: arguments.allow_plaintext,
        auto_define: arguments.auto_define.clone(),
        log_sync_delay: Duration::from_micros(arguments.log_sync_delay_us),
        standby: arguments.standby,
        without_missing_extents: arguments.without_missing_extents,
        program: program(),
    };
    towline_server::run(&told).map_err(Failure::failed)
}

/// How we were called, as it can be typed again.
fn program() -> String {
    let called = std::env::args_os().next();
    called.map_or_else(|| "towline".to_owned(), |name| name.to_string_lossy().into_owned())
}
