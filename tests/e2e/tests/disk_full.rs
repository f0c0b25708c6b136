//! A full disk: puts are refused, gets go on, nothing is lost, and it comes back by itself.

use std::time::Duration;

use towline_e2e::daemon::{Daemon, Site};
use towline_e2e::lossy::mount::{Lossy, folder_on};
use towline_e2e::peer::Peer;
use towline_e2e::through::pass_through;
use towline_e2e::{Try, require, wait};

const MIB: u64 = 1 << 20;
/// Small extents and a small reserve, so that a small disk is a useful one.
const CONFIG: &str = "[log]\nextent_bytes = 4194304\nreserve_bytes = 8388608\n";
const LIMIT: Duration = Duration::from_secs(30);
const QUEUE: &str = "FULL";

struct Filled {
    lossy: Lossy,
    site: Site,
    daemon: Daemon,
    /// Messages that were accepted.
    accepted: u32,
}

impl Filled {
    /// Puts until a put is refused, on a disk of 64 MiB.
    fn new() -> Try<Self> {
        let lossy = Lossy::mount(64 * MIB)?;
        let mut site = Site::open()?.with_config(CONFIG);
        site.data = folder_on(&lossy, "full")?.join("QM1");
        let daemon = site.start()?;
        let accepted = fill(&daemon)?;
        Ok(Self { lossy, site, daemon, accepted })
    }
}

/// Puts messages of 50 kB until one is refused; gives back how many were accepted.
fn fill(daemon: &Daemon) -> Try<u32> {
    let mut peer = Peer::begun(daemon.address())?;
    peer.attach_sender(0, QUEUE)?;
    let body = vec![b'x'; 50_000];
    for number in 0..5_000 {
        if let Err(refusal) = peer.put(0, number, &body) {
            println!("put {number} was refused: {refusal}");
            let words = refusal.to_string();
            let clear = words.contains("resource-limit-exceeded") || words.contains("did not come");
            require!(clear, "not a clear refusal: {words}");
            return Ok(number);
        }
    }
    Err("5,000 messages of 50 kB fit on 64 MiB".into())
}

fn can_put(daemon: &Daemon) -> bool {
    let put = Peer::begun(daemon.address()).and_then(|mut peer| {
        peer.attach_sender(0, QUEUE)?;
        peer.put(0, 0, b"again")
    });
    put.is_ok()
}

#[test]
fn a_full_disk_refuses_puts_and_draining_makes_room_again() -> Try {
    let mut filled = Filled::new()?;
    require!(filled.accepted > 100, "only {} messages fit", filled.accepted);
    require!(filled.daemon.is_running(), "the daemon ended:\n{}", filled.site.log());
    let bound = filled.site.status()?["log"]["bytes_max"].clone();
    require!(bound.is_null(), "only the disk bounds it: {bound}");
    let texts = Peer::begun(filled.daemon.address())?.drain(QUEUE)?;
    require!(texts.len() == filled.accepted as usize, "{} of {}", texts.len(), filled.accepted);
    wait::until_true("room by draining", LIMIT, || can_put(&filled.daemon))?;
    filled.daemon.stop()
}

#[test]
fn a_full_disk_loses_nothing_over_a_kill() -> Try {
    let filled = Filled::new()?;
    filled.daemon.kill()?;
    let daemon = filled.site.start()?;
    let texts = Peer::begun(daemon.address())?.drain(QUEUE)?;
    require!(texts.len() == filled.accepted as usize, "{} of {}", texts.len(), filled.accepted);
    wait::until_true("room by draining", LIMIT, || can_put(&daemon))?;
    daemon.stop()
}

#[test]
fn a_disk_that_grows_takes_puts_again_without_a_restart() -> Try {
    let filled = Filled::new()?;
    filled.lossy.with_disk(|disk| disk.set_bytes_max(256 * MIB));
    wait::until_true("room by a larger disk", LIMIT, || can_put(&filled.daemon))?;
    filled.daemon.stop()
}

#[test]
fn log_bytes_max_is_a_full_disk_too() -> Try {
    let text = format!("{CONFIG}log_bytes_max = 67108864\n");
    let site = Site::open()?.with_config(&text);
    let daemon = site.start()?;
    let bound = site.status()?["log"]["bytes_max"].clone();
    require!(bound == 67_108_864, "{bound}");
    let accepted = fill(&daemon)?;
    require!(accepted > 100, "only {accepted} messages fit");
    let texts = Peer::begun(daemon.address())?.drain(QUEUE)?;
    require!(texts.len() == accepted as usize, "{} of {accepted}", texts.len());
    wait::until_true("room by draining", LIMIT, || can_put(&daemon))?;
    daemon.stop()
}

/// A producer that waits for no answer is faster than the log's reports about its free space.
#[test]
fn a_greedy_producer_leaves_the_reserve_to_gets() -> Try {
    const RESERVE: u64 = 4 * MIB;
    let bounds = "log_bytes_max = 25165824\nextent_bytes = 4194304\nreserve_bytes = 4194304\n";
    let lines = format!("{}\n", "f".repeat(60_000)).repeat(600);
    for round in 0..4 {
        let site = Site::open()?.with_config(&format!("[log]\n{bounds}"));
        let daemon = site.start()?;
        site.runs_with(&["put", QUEUE, "--lines", "--timeout", "10"], lines.as_bytes(), 1)?;
        let full = site.status()?;
        let used = full["log"]["bytes_in_use"].as_u64().ok_or("no bytes_in_use")?;
        println!("round {round}: {used} bytes in use, {}", full["log"]["space"]);
        require!(used <= 24 * MIB - RESERVE * 3 / 4, "the reserve is used up: {used}");
        let got = site.runs(&["get", QUEUE, "--count", "40", "--timeout", "10"], 0)?;
        require!(got.lines().count() == 40, "{} lines", got.lines().count());
        site.mqsc(&format!("DISPLAY QSTATUS({QUEUE})\nCLEAR QLOCAL({QUEUE})\n"))?;
        wait::until_true("room by a clear", LIMIT, || can_put(&daemon))?;
        daemon.stop()?;
    }
    Ok(())
}

/// Whatever bound of the log the configuration accepts: from the smallest on.
#[test]
fn one_forgotten_message_never_fills_the_log() -> Try {
    const EXTENT: u64 = 4 * MIB;
    let small = 21;
    // A message of a ninth of the log, too.
    let large = 3_900_000;
    let cases = [(MIB, 16, small), (MIB, 21, small), (16 * MIB, 16, small), (MIB, 32, large)];
    for (reserve, beside, bytes) in cases {
        let most = reserve + beside * MIB;
        let site = Site::open()?.with_config(&format!(
            "[log]\nextent_bytes = {EXTENT}\nreserve_bytes = {reserve}\nlog_bytes_max = {most}\n"
        ));
        let daemon = site.start()?;
        let text = "f".repeat(bytes);
        site.runs_with(&["put", "FORGOTTEN", "--lines"], text.as_bytes(), 0)?;
        pass_through(daemon.address(), "BUSY", 3 * most)
            .map_err(|error| format!("{most} bytes of log: {error}\n{}", site.log()))?;
        let got = site.runs(&["get", "FORGOTTEN"], 0)?;
        require!(got.trim_end() == text, "{} of {bytes} bytes", got.len());
        daemon.stop()?;
    }
    Ok(())
}

/// What cannot be logged again now may be later: it is tried again.
#[test]
fn a_forgotten_message_that_could_not_be_read_for_a_while_does_not_fill_the_log() -> Try {
    let most = 17 * MIB;
    let lossy = Lossy::mount(64 * MIB)?;
    let mut site = Site::open()?.with_config(&format!(
        "[log]\nextent_bytes = {}\nreserve_bytes = {MIB}\nlog_bytes_max = {most}\n",
        4 * MIB
    ));
    site.data = folder_on(&lossy, "unread")?.join("QM1");
    let daemon = site.start()?;
    site.runs(&["put", "FORGOTTEN", "a message of 21 bytes"], 0)?;
    site.runs(&["image"], 0)?;
    daemon.stop()?;
    // It is in no memory after a start.
    let daemon = site.start()?;
    // The first write after a start reads the header of the extent that it goes to.
    site.runs(&["put", "FIRST", "a message"], 0)?;
    let path = ["unread", "QM1", "log", "extent-0000000000000000"];
    let set = |unreadable| lossy.with_disk(|disk| disk.set_unreadable(&path, unreadable));
    require!(set(true).is_ok(), "no such file");
    pass_through(daemon.address(), "BUSY", 10 * MIB)
        .map_err(|error| format!("{error}\n{}", site.log()))?;
    wait::until_true("it cannot be read", LIMIT, || site.log().contains("TWL2050E"))?;
    require!(set(false).is_ok(), "no such file");
    pass_through(daemon.address(), "BUSY", 3 * most)
        .map_err(|error| format!("{error}\n{}", site.log()))?;
    require!(site.queue_number("DEV.DEAD.LETTER.QUEUE", "depth")? == 1, "it was set aside");
    daemon.stop()
}

/// Logging them again would free nothing: neither log nor processor are spent on it.
#[test]
fn a_log_full_of_live_messages_stays_refused_and_is_left_alone() -> Try {
    let bounds = "log_bytes_max = 17825792\nextent_bytes = 4194304\nreserve_bytes = 1048576\n";
    let site = Site::open()?.with_config(&format!("[log]\n{bounds}"));
    let daemon = site.start()?;
    let accepted = fill(&daemon)?;
    let written = || -> Try<u64> {
        let status = site.status()?;
        require!(status["log"]["space"] == "full", "{}", status["log"]);
        status["log"]["writes"].as_u64().ok_or_else(|| "no writes".into())
    };
    wait::until_true("the full log is reported", LIMIT, || written().is_ok())?;
    let (before, busy) = (written()?, daemon.cpu_time()?);
    // Several times the interval at which the log is checked.
    wait::pause(Duration::from_secs(5));
    let busy = daemon.cpu_time()? - busy;
    require!(written()? == before, "it was written to: {} writes", written()? - before);
    require!(busy < Duration::from_secs(1), "{busy:?} of 5 s");
    require!(!can_put(&daemon), "a put was accepted");
    let texts = Peer::begun(daemon.address())?.drain(QUEUE)?;
    require!(texts.len() == accepted as usize, "{} of {accepted}", texts.len());
    wait::until_true("room by draining", LIMIT, || can_put(&daemon))?;
    daemon.stop()
}
