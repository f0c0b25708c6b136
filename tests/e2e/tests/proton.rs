//! python-qpid-proton against the real daemon: each test runs one scenario of tests/e2e/proton.

use towline_e2e::Try;
use towline_e2e::daemon::Site;
use towline_e2e::program;

fn passes(script: &str, scenario: &str, arguments: &[&str]) -> Try {
    let site = Site::open()?;
    let daemon = site.start()?;
    program::run(program::proton(script, scenario, &daemon.url(), arguments)?)?;
    daemon.stop()
}

fn passes_on(mqsc: &str, script: &str, scenario: &str, arguments: &[&str]) -> Try {
    let site = Site::closed()?;
    let daemon = site.start()?;
    site.mqsc(mqsc)?;
    program::run(program::proton(script, scenario, &daemon.url(), arguments)?)?;
    daemon.stop()
}

macro_rules! scenarios {
    ($script:literal: $($name:ident)*) => { $(
        #[test]
        fn $name() -> Try { passes($script, stringify!($name), &[]) }
    )* };
}

scenarios! { "blocking.py":
    same_link_name plain_example prefixed_addresses released modified_counts browse selector
    bad_selector anonymous_relay ids_of_every_type
}

scenarios! { "handlers.py":
    drain credit pre_settled transactional_send transactional_receive idle_timeout_kept_alive
    capabilities
}

#[test]
fn a_message_of_many_frames_comes_out_whole() -> Try {
    passes("blocking.py", "large", &["3000064"])
}

#[test]
fn an_unknown_queue_refuses_the_link_and_nothing_else() -> Try {
    passes_on("DEFINE QLOCAL('KNOWN')", "blocking.py", "unknown_queue", &[])
}

#[test]
fn the_anonymous_relay_rejects_a_message_to_an_unknown_queue() -> Try {
    passes_on("DEFINE QLOCAL('KNOWN')", "blocking.py", "anonymous_relay_unknown", &[])
}

#[test]
fn a_full_queue_rejects_and_the_link_goes_on() -> Try {
    let define = "DEFINE QLOCAL('FULL') MAXDEPTH(5)";
    passes_on(define, "blocking.py", "queue_full", &["FULL", "5"])
}

#[test]
fn a_rejected_message_goes_to_the_dead_letter_queue() -> Try {
    let define =
        "DEFINE QLOCAL('REJECTED')\nDEFINE QLOCAL('DEAD') REPLACE\nALTER QMGR DEADQ('DEAD')";
    passes_on(define, "blocking.py", "rejected", &["DEAD"])
}

#[test]
fn at_bothresh_the_server_moves_the_message() -> Try {
    let define = "DEFINE QLOCAL('BACKOUT')\nDEFINE QLOCAL('WORK') BOTHRESH(3) BOQNAME('BACKOUT')";
    passes_on(define, "blocking.py", "backed_out", &["WORK", "BACKOUT", "3"])
}

#[test]
fn undeliverable_here_is_for_another_link() -> Try {
    let define = "DEFINE QLOCAL('ELSEWHERE')\nDEFINE QLOCAL('DEAD')\nALTER QMGR DEADQ('DEAD')";
    passes_on(define, "handlers.py", "undeliverable_here", &[])
}

#[test]
fn a_dynamic_node_goes_with_its_connection() -> Try {
    passes_on("DISPLAY QMGR", "blocking.py", "dynamic_source", &[])
}
