//! Qpid JMS against the real daemon: each test runs one scenario of tests/e2e/jms.

use std::process::Command;

use towline_e2e::daemon::Site;
use towline_e2e::program::{self, Library, Program};
use towline_e2e::{Try, require};

towline_e2e::scenarios! {
    Library::Jms;
    put_get order priorities expiry listener asynchronous_send many_sessions sharing
    message_types headers_and_properties odd_texts
    client_acknowledge auto_acknowledge dups_ok_acknowledge recover close_with_unacknowledged
    commit rollback_of_puts rollback_of_gets move_between_queues units_are_independent
    unit_of_thousand close_mid_unit
    selectors selector_consumes_only_matches selector_wakes_for_later_message selector_errors
    get_by_id
    browse browse_empty browse_many browse_sees_no_locked_message
    request_reply
}

#[test]
fn temporary_queues_have_names_of_their_own() -> Try {
    Library::Jms.passes_on("DISPLAY QMGR", "temporary_queues_are_distinct", &[])
}

#[test]
fn a_temporary_queue_ends_with_its_connection() -> Try {
    Library::Jms.passes_on("DISPLAY QMGR", "temporary_queue_ends_with_connection", &[])
}

#[test]
fn a_temporary_queue_can_be_deleted_by_its_owner() -> Try {
    Library::Jms.passes_on("DISPLAY QMGR", "temporary_queue_deleted", &[])
}

#[test]
fn a_message_of_ten_megabytes_comes_out_whole() -> Try {
    Library::Jms.passes_on("DEFINE QLOCAL('LARGE')", "large_message", &["10000000", "LARGE"])
}

#[test]
fn a_message_of_hundred_megabytes_comes_out_whole() -> Try {
    // Exactly MAXMSGL, as every queue has it unless defined otherwise: the body is what counts.
    Library::Jms.passes_on("DEFINE QLOCAL('HUGE')", "large_message", &["104857600", "HUGE"])
}

#[test]
fn an_unknown_queue_is_an_invalid_destination() -> Try {
    Library::Jms.passes_on("DEFINE QLOCAL('KNOWN')", "unknown_queue", &[])
}

#[test]
fn a_full_queue_refuses_puts_until_a_get() -> Try {
    Library::Jms.passes_on("DEFINE QLOCAL('FULL') MAXDEPTH(5)", "queue_full", &["FULL", "5"])
}

#[test]
fn a_message_beyond_maxmsgl_is_refused() -> Try {
    Library::Jms.passes_on(
        "DEFINE QLOCAL('SHORT') MAXMSGL(1000)",
        "message_too_long",
        &["SHORT", "1000"],
    )
}

#[test]
fn no_way_leads_to_a_topic() -> Try {
    Library::Jms.passes("topics_are_refused", &[])
}

#[test]
fn a_client_id_is_used_by_one_connection_at_a_time() -> Try {
    Library::Jms.passes("client_id", &[])
}

#[test]
fn put_disabled_refuses_puts() -> Try {
    Library::Jms.passes_on("DEFINE QLOCAL('NOPUT') PUT(DISABLED)", "put_inhibited", &["NOPUT"])
}

#[test]
fn get_disabled_refuses_gets() -> Try {
    Library::Jms.passes_on("DEFINE QLOCAL('NOGET') GET(DISABLED)", "get_inhibited", &["NOGET"])
}

#[test]
fn fail_over_to_the_restarted_daemon_loses_nothing() -> Try {
    restarted("reconnect", "before")
}

#[test]
fn a_unit_that_was_open_at_the_restart_does_not_commit() -> Try {
    restarted("commit_after_restart", "prepared")
}

/// Kills and starts the daemon at the same address once the program has said its line.
fn restarted(scenario: &str, line: &str) -> Try {
    let mut site = Site::open()?;
    let daemon = site.start()?;
    let mut program = Program::start(program::jms(scenario, &daemon.url(), &[])?)?;
    program.hear(line)?;
    site.listen = daemon.address().to_string();
    daemon.kill()?;
    let daemon = site.start()?;
    program.say("go on")?;
    program.end()?;
    daemon.stop()
}

#[test]
fn a_client_that_crashes_mid_unit_leaves_nothing_half_done() -> Try {
    let site = Site::open()?;
    let daemon = site.start()?;
    let mut program = Program::start(program::jms("crash_mid_unit", &daemon.url(), &[])?)?;
    program.hear("prepared")?;
    program.kill()?;
    program::run(expect(&daemon.url(), &["CRASH.PUT"])?)?;
    program::run(expect(&daemon.url(), &["CRASH.GET", "g1", "g2", "g3"])?)?;
    daemon.stop()
}

#[test]
fn a_daemon_that_crashes_mid_unit_leaves_nothing_half_done() -> Try {
    let site = Site::open()?;
    let daemon = site.start()?;
    let mut program = Program::start(program::jms("crash_mid_unit", &daemon.url(), &[])?)?;
    program.hear("prepared")?;
    daemon.kill()?;
    program.kill()?;
    let daemon = site.start()?;
    program::run(expect(&daemon.url(), &["CRASH.PUT"])?)?;
    program::run(expect(&daemon.url(), &["CRASH.GET", "g1", "g2", "g3"])?)?;
    daemon.stop()
}

#[test]
fn a_lost_client_counts_as_a_backout_and_the_count_survives_restart() -> Try {
    let site = Site::open()?;
    let daemon = site.start()?;
    program::run(program::jms("put_both_modes", &daemon.url(), &["COUNTED"])?)?;
    for _ in 0..2 {
        let holding = program::jms("crash_with_unacknowledged", &daemon.url(), &["COUNTED"])?;
        let mut program = Program::start(holding)?;
        program.hear("holding")?;
        program.kill()?;
    }
    daemon.stop()?;
    let daemon = site.start()?;
    let count = program::jms("expect_delivery_count", &daemon.url(), &["COUNTED", "3"])?;
    program::run(count)?;
    daemon.stop()
}

#[test]
fn only_persistent_messages_survive_a_restart() -> Try {
    let site = Site::open()?;
    let daemon = site.start()?;
    program::run(program::jms("put_both_modes", &daemon.url(), &["MODES"])?)?;
    daemon.stop()?;
    let daemon = site.start()?;
    program::run(expect(&daemon.url(), &["MODES", "persistent"])?)?;
    daemon.stop()
}

#[test]
fn at_bothresh_a_rolled_back_message_moves_to_boqname() -> Try {
    let site = Site::closed()?;
    let daemon = site.start()?;
    site.mqsc("DEFINE QLOCAL('BACKOUT')\nDEFINE QLOCAL('WORK') BOTHRESH(3) BOQNAME('BACKOUT')")?;
    program::run(program::jms("put_both_modes", &daemon.url(), &["WORK"])?)?;
    program::run(program::jms("rollback_times", &daemon.url(), &["WORK", "3"])?)?;
    program::run(expect(&daemon.url(), &["BACKOUT", "volatile"])?)?;
    program::run(expect(&daemon.url(), &["WORK", "persistent"])?)?;
    daemon.stop()
}

#[test]
fn a_unit_beyond_maxumsgs_does_not_commit() -> Try {
    let define = "ALTER QMGR MAXUMSGS(50)\nDEFINE QLOCAL('TOO.MANY')";
    Library::Jms.passes_on(define, "unit_too_many", &["50"])
}

#[test]
fn a_unit_beyond_its_age_is_rolled_back() -> Try {
    let site = Site::open()?.with_config("[queue_manager]\nunit_age_max_s = 1\n");
    let daemon = site.start()?;
    program::run(program::jms("unit_too_old", &daemon.url(), &[])?)?;
    daemon.stop()
}

#[test]
fn an_ending_daemon_tells_its_clients() -> Try {
    let site = Site::open()?;
    let daemon = site.start()?;
    let mut program = Program::start(program::jms("hold_connection", &daemon.url(), &[])?)?;
    program.hear("connected")?;
    daemon.stop()?;
    let ending = program.hear("ended")?;
    require!(ending.contains("forced"), "no amqp:connection:forced in {ending:?}");
    program.end()?;
    Ok(())
}

fn expect(url: &str, arguments: &[&str]) -> Try<Command> {
    program::jms("expect", url, arguments)
}
