//! `towline run`: turns options into what the server crate wants. Everything else happens there,
//! the check of a configuration too; here it is shown.

use std::path::PathBuf;
use std::time::Duration;

use towline_server::{CheckResult, RunArgs, Verdict};

use crate::arguments::Run;
use crate::failure::Failure;
use crate::show;

/// Runs a queue manager until it is asked to end.
pub(crate) fn run(arguments: &Run) -> Result<(), Failure> {
    let name = &arguments.name;
    let data = match &arguments.data {
        Some(data) => data.clone(),
        // A name becomes part of a path here, so it must not lead anywhere else.
        None if name.contains('/') || name == "." || name == ".." => {
            return Err(Failure::Usage(format!("the name {name} needs --data DIR")));
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
    if arguments.check {
        return report(&towline_server::check(&told), arguments.json);
    }
    towline_server::run(&told).map_err(Failure::failed)
}

/// Says what was looked at, one a line.
fn report(seen: &[CheckResult], json: bool) -> Result<(), Failure> {
    let would_start = !seen.iter().any(|one| matches!(one.verdict, Verdict::Refused(_)));
    if json {
        let checks: Vec<_> = seen
            .iter()
            .map(|CheckResult { what, verdict }| {
                let (verdict, text) = words(verdict);
                serde_json::json!({ "what": what, "verdict": verdict, "text": text })
            })
            .collect();
        show::json(&serde_json::json!({ "would_start": would_start, "checks": checks }))?;
    } else {
        for CheckResult { what, verdict } in seen {
            let (verdict, text) = words(verdict);
            show::line(&format!("{verdict:<8} {what}: {text}"))?;
        }
        let not = if would_start { "" } else { "not " };
        show::line(&format!(
            "It would {not}start. Ports and the content of the log were not checked."
        ))?;
    }
    if would_start { Ok(()) } else { Err(Failure::Silent) }
}

fn words(verdict: &Verdict) -> (&'static str, &str) {
    match verdict {
        Verdict::Fine(text) => ("ok", text),
        Verdict::Warning(text) => ("warning", text),
        Verdict::Refused(text) => ("refused", text),
    }
}

/// How we were called, as it can be typed again.
fn program() -> String {
    let called = std::env::args_os().next();
    called.map_or_else(|| "towline".to_owned(), |name| name.to_string_lossy().into_owned())
}
