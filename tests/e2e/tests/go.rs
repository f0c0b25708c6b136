//! go-amqp against the real daemon: each test runs one scenario of tests/e2e/go.

use towline_e2e::Try;
use towline_e2e::daemon::Site;
use towline_e2e::program::{self, Library, Program};

towline_e2e::scenarios! {
    Library::Go;
    put_get settle_modes outcomes credit drain concurrent selector large dynamic idle_connection
}

#[test]
fn message_too_big() -> Try {
    let site = Site::open()?;
    let daemon = site.start()?;
    site.mqsc("DEFINE QLOCAL('GO.BIG') MAXMSGL(4194304)")?;
    program::run(program::go("message_too_big", &daemon.url(), &[])?)?;
    daemon.stop()
}

#[test]
fn an_unknown_queue_refuses_the_link_and_nothing_else() -> Try {
    Library::Go.passes_on("DEFINE QLOCAL('KNOWN')", "unknown_queue", &[])
}

#[test]
fn a_client_works_on_after_a_restart() -> Try {
    let mut site = Site::open()?;
    let daemon = site.start()?;
    let mut program = Program::start(program::go("reconnect", &daemon.url(), &[])?)?;
    program.hear("before")?;
    site.listen = daemon.address().to_string();
    daemon.kill()?;
    let daemon = site.start()?;
    program.say("go on")?;
    program.end()?;
    daemon.stop()
}
