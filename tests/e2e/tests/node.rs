//! rhea against the real daemon: each test runs one scenario of tests/e2e/node.

use towline_e2e::Try;
use towline_e2e::daemon::Site;
use towline_e2e::program::{self, Library, Program};

towline_e2e::scenarios! {
    Library::Node;
    put_get bodies pre_settled settle_second credit_and_drain request_reply selector_and_browse idle
}

#[test]
fn outcomes() -> Try {
    let define = "DEFINE QLOCAL('DEAD')\nALTER QMGR DEADQ('DEAD')\nDEFINE QLOCAL('NODE.OUTCOMES')";
    Library::Node.passes_on(define, "outcomes", &["DEAD"])
}

#[test]
fn refusals_leave_the_connection_alone() -> Try {
    Library::Node.passes_on("DEFINE QLOCAL('KNOWN') MAXMSGL(4194304)", "refusals", &[])
}

#[test]
fn a_client_reconnects_by_itself_after_a_restart() -> Try {
    let mut site = Site::open()?;
    let daemon = site.start()?;
    let mut program = Program::start(program::node("reconnect", &daemon.url(), &[]))?;
    program.hear("before")?;
    site.until_got("NODE.RECONNECT", 1)?;
    site.listen = daemon.address().to_string();
    daemon.kill()?;
    let daemon = site.start()?;
    program.say("go on")?;
    program.end()?;
    daemon.stop()
}
