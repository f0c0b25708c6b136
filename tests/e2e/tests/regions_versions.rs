//! Regions with programs of different versions: recovery is upgraded first, then live, while
//! messages are put; and a recovery group with a program that does not read what a log of two
//! regions gets.
//!
//! The other version is this one with its number changed in a copy of the program, as in
//! `group_versions.rs`. The program that reads less is ours behind a peer in the middle, with the
//! papers of both groups, that changes the one byte in which it says what it reads.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::Value;
use towline_e2e::regions::{EAST, LONG, Regions, RegionsDesign, WEST};
use towline_e2e::versions::next_version;
use towline_e2e::{Try, one_log, require, wait};

/// Answers what the target answers, with another format level, until a line comes on its standard
/// input. The field is drawn in crates/replication/src/region_agreement.rs: tag 5, two bytes of
/// length, the level in force and the one that is read; the next field is the size of extents.
const MIDDLE: &str = r#"
import re, socket, ssl, sys, threading
target, theirs, ours = sys.argv[1:]
host, port = target.rsplit(":", 1)
is_old = True
def settings(kind, papers):
    context = ssl.SSLContext(kind)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.load_cert_chain(papers + ".pem", papers + "-key.pem")
    return context
server = settings(ssl.PROTOCOL_TLS_SERVER, ours)
server.set_alpn_protocols(["towline-frames", "towline-stream"])
# The certificate of the one that dials is asked for, of any authority.
server.verify_mode = ssl.CERT_NONE
def aged(data):
    return re.sub(rb"\x05\x02\x00(.)(.)\x06\x10\x00", b"\x05\x02\x00\x02\x02\x06\x10\x00", data, flags=re.S)
def pump(source, sink, changes):
    try:
        while True:
            data = source.recv(65536)
            if not data:
                break
            sink.sendall(aged(data) if changes and is_old else data)
    except OSError:
        pass
    for one in (source, sink):
        try:
            one.close()
        except OSError:
            pass
def serve(raw):
    try:
        inner = server.wrap_socket(raw, server_side=True)
        client = settings(ssl.PROTOCOL_TLS_CLIENT, theirs)
        client.set_alpn_protocols([inner.selected_alpn_protocol() or "towline-frames"])
        outer = client.wrap_socket(socket.create_connection((host, int(port)), 20), server_hostname="towline.invalid")
    except OSError:
        raw.close()
        return
    threading.Thread(target=pump, args=(outer, inner, True), daemon=True).start()
    pump(inner, outer, False)
listener = socket.create_server(("127.0.0.1", 0))
print("%s:%d" % listener.getsockname()[:2], flush=True)
def accept():
    while True:
        threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
threading.Thread(target=accept, daemon=True).start()
sys.stdin.readline()
is_old = False
print("upgraded", flush=True)
sys.stdin.read()
"#;

fn design() -> RegionsDesign {
    let config = "[log]\nextent_bytes = 4194304\n".into();
    RegionsDesign { size: 1, config, ..RegionsDesign::default() }
}

/// The peer in the middle; killed when it is dropped.
struct Middle {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
    address: String,
}

impl Middle {
    /// In front of east, which has the address `front` in west's configuration.
    fn start(regions: &Regions, front: &str) -> Try<Middle> {
        let papers = [WEST, EAST].map(|of| regions.site(of, 0).scratch().join("papers").join("a"));
        let mut command = Command::new("python3");
        command.args(["-c", MIDDLE, front]).args(&papers);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let out = child.stdout.take().ok_or("no standard output")?;
        let mut middle =
            Middle { child, lines: BufReader::new(out).lines(), address: String::new() };
        middle.address = middle.next()?;
        Ok(middle)
    }

    fn next(&mut self) -> Try<String> {
        Ok(self.lines.next().ok_or("the peer in the middle has ended")??)
    }

    /// From now on it changes nothing.
    fn upgrade(&mut self) -> Try {
        self.child.stdin.as_mut().ok_or("no standard input")?.write_all(b"\n")?;
        let said = self.next()?;
        require!(said == "upgraded", "{said}");
        Ok(())
    }
}

impl Drop for Middle {
    fn drop(&mut self) {
        // It may have ended.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn put(regions: &Regions, count: usize, text: &str) -> Try {
    let active = regions.until_active(WEST)?;
    let lines: String = (0..count).map(|number| format!("{text} {number}\n")).collect();
    let arguments = ["put", "Q", "--lines", "--transaction", "20"];
    regions.site(WEST, active).runs_with(&arguments, lines.as_bytes(), 0).map(drop)
}

#[test]
fn live_does_not_raise_its_log_before_recovery_reads_it_and_says_what_to_upgrade_first() -> Try {
    let mut regions = Regions::plan(&design())?;
    let config = regions.site(WEST, 0).config.clone();
    let (_, rest) = config.rsplit_once("addresses = [\"").ok_or("no address")?;
    let front = rest.split('"').next().ok_or("no address")?.to_owned();
    let mut middle = Middle::start(&regions, &front)?;
    regions.site_mut(WEST, 0).config = config.replace(&front, &middle.address);
    regions.start(EAST, 0)?;
    regions.start(WEST, 0)?;
    put(&regions, 100, "one")?;

    let mut last = Value::Null;
    let is_refused = || {
        last = regions.east_as_seen().unwrap_or_default();
        last["reason"].as_str().is_some_and(|why| why.contains("upgrade the recovery group first"))
    };
    let refused = wait::until_true("a refusal", LONG, is_refused);
    refused.map_err(|error| regions.explained(&format!("{error}: {last}")))?;
    require!(last["connected"] == false, "{last}");
    let status = regions.group_status(WEST, 0)?;
    require!(status["format_level"] == 2, "{status}");
    let histories = &regions.site(WEST, 0).status()?["region"]["histories"];
    require!(histories.as_u64().unwrap_or(0) == 0, "a history has begun: {histories}");
    // Live serves meanwhile, and what it gets then is shipped later.
    put(&regions, 100, "two")?;

    middle.upgrade()?;
    regions.until_towed()?;
    let status = regions.group_status(WEST, 0)?;
    require!(status["format_level"] == 3, "{status}");
    require!(regions.site(WEST, 0).queue_number("Q", "depth")? == 200, "messages are missing");
    regions.stop_all()?;
    one_log::follows(&regions, WEST, 1)
}

/// What differs between both groups, as an instance says it.
fn differs(regions: &Regions, words: &str) -> Try {
    let mut last = Value::Null;
    let says = || {
        last = regions.east_as_seen().map_or(Value::Null, |seen| seen["differences"].clone());
        let all = last.as_array().map(Vec::as_slice).unwrap_or_default();
        match words {
            "" => !all.iter().any(|it| it.as_str().is_some_and(|it| it.contains("version"))),
            _ => all.iter().any(|it| it.as_str().is_some_and(|it| it.contains(words))),
        }
    };
    wait::until_true("the difference", LONG, says)
        .map_err(|error| regions.explained(&format!("{error}: {words:?} is not in {last}")))
}

#[test]
fn recovery_is_upgraded_first_then_live_and_nothing_is_lost_on_the_way() -> Try {
    let mut regions = Regions::towed(&design())?;
    let folder = regions.site(WEST, 0).scratch().to_path_buf();
    let (next, _) = next_version(&folder)?;
    put(&regions, 100, "one")?;
    let ends = AtomicBool::new(false);
    let site = regions.site(WEST, 0);
    // While recovery is upgraded, live goes on.
    let url = format!("amqp://{}", site.listen);
    let put_on = || -> usize {
        let mut count = 0;
        while !ends.load(Ordering::SeqCst) {
            let done = Command::new(towline_e2e::paths::towline().unwrap_or_default())
                .args(["put", "Q", "more", "--url", &url])
                .stdout(Stdio::null())
                .status();
            count += usize::from(done.is_ok_and(|status| status.success()));
        }
        count
    };
    let more = thread::scope(|scope| -> Try<usize> {
        let client = scope.spawn(put_on);
        let upgraded = (|| {
            regions.stop(EAST, 0)?;
            regions.site_mut(EAST, 0).program = Some(next.clone());
            regions.start(EAST, 0)?;
            regions.until_towed()?;
            differs(&regions, "recovery is the newer one, as it must be")
        })();
        ends.store(true, Ordering::SeqCst);
        let count = client.join().map_err(|_| "a client panicked")?;
        upgraded.map(|()| count)
    })?;
    require!(more > 0, "nothing was put meanwhile");
    regions.stop(WEST, 0)?;
    regions.site_mut(WEST, 0).program = Some(next);
    regions.start(WEST, 0)?;
    regions.until_towed()?;
    differs(&regions, "")?;
    let depth = regions.site(WEST, 0).queue_number("Q", "depth")?;
    require!(depth == 100 + more as u64, "{depth}, not 100 and {more}");
    // The other order, which is the wrong one: it is said, and the log is the same all the same.
    regions.stop(EAST, 0)?;
    regions.site_mut(EAST, 0).program = None;
    regions.start(EAST, 0)?;
    put(&regions, 10, "two")?;
    regions.until_towed()?;
    differs(&regions, "recovery must not be older than live")?;
    regions.stop_all()?;
    one_log::follows(&regions, WEST, 1)
}
