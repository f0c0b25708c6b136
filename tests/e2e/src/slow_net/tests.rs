//! The proxy on loopback.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::SlowNet;
use super::command::{Command, Ways};
use super::shaper::{HELD_BYTES_MAX, PIECE_BYTES};
use crate::Try;

const LONG: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(50);

/// Both ends of a connection through the proxy.
fn pair(net: &SlowNet, target: &TcpListener) -> Try<[TcpStream; 2]> {
    let client = TcpStream::connect(net.address())?;
    let (server, _) = target.accept()?;
    for socket in [&client, &server] {
        socket.set_read_timeout(Some(LONG))?;
        socket.set_nodelay(true)?;
    }
    Ok([client, server])
}

fn start() -> Try<(SlowNet, TcpListener)> {
    let target = TcpListener::bind("127.0.0.1:0")?;
    let net = SlowNet::start("127.0.0.1:0".parse()?, &target.local_addr()?.to_string())?;
    Ok((net, target))
}

fn order(net: &SlowNet, line: &str) -> Try<String> {
    Ok(net.order(Command::parse(line)?))
}

fn passes(from: &mut TcpStream, to: &mut TcpStream) -> Try<Duration> {
    let began = Instant::now();
    from.write_all(b"x")?;
    to.read_exact(&mut [0])?;
    Ok(began.elapsed())
}

#[test]
fn bytes_and_ends_pass_both_ways() -> Try {
    let (net, target) = start()?;
    let [mut client, mut server] = pair(&net, &target)?;
    client.write_all(&[7; 1_000_000])?;
    client.shutdown(std::net::Shutdown::Write)?;
    let mut read = Vec::new();
    server.read_to_end(&mut read)?;
    assert!(read == [7; 1_000_000]);
    server.write_all(b"back")?;
    drop(server);
    read.clear();
    client.read_to_end(&mut read)?;
    assert_eq!(read, b"back");
    let counts: serde_json::Value = serde_json::from_str(&order(&net, "show")?)?;
    assert_eq!((&counts["bytes_there"], &counts["bytes_back"]), (&1_000_000.into(), &4.into()));
    Ok(())
}

#[test]
fn each_way_is_late_by_its_delay_and_a_narrow_one_by_its_bytes() -> Try {
    let (net, target) = start()?;
    let [mut client, mut server] = pair(&net, &target)?;
    order(&net, "delay there 30000")?;
    assert!(passes(&mut client, &mut server)? >= Duration::from_millis(30));
    order(&net, "delay back 20000")?;
    assert!(passes(&mut server, &mut client)? >= Duration::from_millis(20));
    order(&net, "delay 0")?;
    order(&net, "bandwidth there 8M")?;
    let began = Instant::now();
    client.write_all(&[1; 100_000])?;
    server.read_exact(&mut vec![0; 100_000])?;
    assert!(began.elapsed() >= Duration::from_millis(90), "{:?}", began.elapsed());
    Ok(())
}

#[test]
fn nothing_passes_a_cut_and_nothing_is_lost() -> Try {
    let (net, target) = start()?;
    let [mut client, mut server] = pair(&net, &target)?;
    order(&net, "cut there")?;
    client.write_all(b"x")?;
    server.set_read_timeout(Some(SHORT))?;
    let nothing = server.read(&mut [0]).map_err(|error| error.kind());
    assert!(matches!(nothing, Err(ErrorKind::WouldBlock | ErrorKind::TimedOut)), "{nothing:?}");
    let counts: serde_json::Value = serde_json::from_str(&order(&net, "show")?)?;
    assert_eq!(counts["there"]["held_bytes"], 0, "it waits at its sender");
    passes(&mut server, &mut client)?;
    // The end of a process does not pass either.
    drop(client);
    let nothing = server.read(&mut [0]).map_err(|error| error.kind());
    assert!(matches!(nothing, Err(ErrorKind::WouldBlock | ErrorKind::TimedOut)), "{nothing:?}");
    order(&net, "heal")?;
    server.set_read_timeout(Some(LONG))?;
    let mut read = Vec::new();
    server.read_to_end(&mut read)?;
    assert_eq!(read, b"x");
    Ok(())
}

#[test]
fn a_stalled_line_passes_nothing_but_reaches_the_target() -> Try {
    let (net, target) = start()?;
    order(&net, "cut there")?;
    let waiting = TcpStream::connect(net.address())?;
    target.set_nonblocking(true)?;
    assert!(target.accept().is_err(), "nothing reaches the target of a line that is cut");
    order(&net, "heal")?;
    target.set_nonblocking(false)?;
    target.accept()?;
    drop(waiting);
    order(&net, "stall")?;
    let [mut client, mut server] = pair(&net, &target)?;
    for [from, to] in [[0, 1], [1, 0]] {
        let mut ends = [&client, &server];
        ends[from].write_all(b"x")?;
        ends[to].set_read_timeout(Some(SHORT))?;
        let nothing = ends[to].read(&mut [0]).map_err(|error| error.kind());
        assert!(matches!(nothing, Err(ErrorKind::WouldBlock | ErrorKind::TimedOut)), "{nothing:?}");
        ends[to].set_read_timeout(Some(LONG))?;
    }
    order(&net, "heal there")?;
    server.read_exact(&mut [0])?;
    order(&net, "heal back")?;
    client.read_exact(&mut [0])?;
    Ok(())
}

#[test]
fn what_does_not_pass_is_not_taken_without_bound() -> Try {
    // A line of 50 Mbit/s and 20 ms has no use for more than twice 25 ms of it.
    let narrow: &[&str] = &["delay 20000", "bandwidth 50M"];
    let wide: &[&str] = &[];
    for (orders, held_max) in [(wide, HELD_BYTES_MAX + PIECE_BYTES), (narrow, 312_500 + 6_250)] {
        let (net, target) = start()?;
        for line in orders {
            order(&net, line)?;
        }
        // The far end does not read.
        let [mut client, _server] = pair(&net, &target)?;
        client.set_write_timeout(Some(Duration::from_millis(300)))?;
        let (mut taken, piece) = (0, [0; 64 * 1024]);
        while let Ok(bytes) = client.write(&piece) {
            taken += bytes;
            assert!(taken < 64 << 20, "64 MiB do not fit on the way");
        }
        let counts: serde_json::Value = serde_json::from_str(&order(&net, "show")?)?;
        let held = counts["there"]["held_bytes"].as_u64().ok_or("no held_bytes")?;
        let held_max = held_max as u64 + 128;
        assert!(held > 0 && held <= held_max, "{held} of {held_max}, {taken} taken");
    }
    Ok(())
}

#[test]
fn a_backlog_of_a_cut_passes_at_the_speed_of_the_line() -> Try {
    let (net, target) = start()?;
    let [mut client, mut server] = pair(&net, &target)?;
    order(&net, "bandwidth 8M")?;
    order(&net, "cut there")?;
    client.write_all(&[1; 300_000])?;
    order(&net, "heal")?;
    let began = Instant::now();
    server.read_exact(&mut vec![0; 300_000])?;
    // A megabyte a second; what was read before the cut and 5 ms of the line are ahead of it.
    assert!(began.elapsed() >= Duration::from_millis(280), "{:?}", began.elapsed());
    Ok(())
}

#[test]
fn connections_share_the_bandwidth() -> Try {
    let (net, target) = start()?;
    order(&net, "bandwidth 8M")?;
    let pairs = [pair(&net, &target)?, pair(&net, &target)?];
    let began = Instant::now();
    for [client, _] in &pairs {
        let mut client = client;
        client.write_all(&[1; 100_000])?;
    }
    for [_, server] in &pairs {
        let mut server = server;
        server.read_exact(&mut vec![0; 100_000])?;
    }
    assert!(began.elapsed() >= Duration::from_millis(190), "{:?}", began.elapsed());
    Ok(())
}

#[test]
fn a_connection_that_was_reset_is_reset_as_late_as_the_line_is() -> Try {
    let (net, target) = start()?;
    let [mut client, mut server] = pair(&net, &target)?;
    // What was not read when the client goes makes its system send a reset.
    passes(&mut server, &mut client)?;
    order(&net, "cut there")?;
    server.write_all(b"unread")?;
    assert_eq!(client.peek(&mut [0; 16])?, 6);
    drop(client);
    server.set_read_timeout(Some(SHORT))?;
    let nothing = server.read(&mut [0]).map_err(|error| error.kind());
    assert!(matches!(nothing, Err(ErrorKind::WouldBlock | ErrorKind::TimedOut)), "{nothing:?}");
    server.set_read_timeout(Some(LONG))?;
    order(&net, "heal")?;
    let end = server.read(&mut [0]).map_err(|error| error.kind());
    assert_eq!(end, Err(ErrorKind::ConnectionReset));
    Ok(())
}

#[test]
fn a_reset_ends_what_is_there_and_refuse_what_comes_too() -> Try {
    let (net, target) = start()?;
    let [mut client, mut server] = pair(&net, &target)?;
    // Until something passed, the proxy may not know yet that its connection to the target stands.
    passes(&mut client, &mut server)?;
    order(&net, "reset")?;
    for socket in [&mut client, &mut server] {
        let end = socket.read(&mut [0]).map_err(|error| error.kind());
        assert_eq!(end, Err(ErrorKind::ConnectionReset));
    }
    order(&net, "refuse")?;
    let mut refused = TcpStream::connect(net.address())?;
    let end = refused.read(&mut [0]).map_err(|error| error.kind());
    assert_eq!(end, Err(ErrorKind::ConnectionReset));
    order(&net, "heal")?;
    let [mut client, mut server] = pair(&net, &target)?;
    passes(&mut client, &mut server)?;
    Ok(())
}

#[test]
fn orders_are_read_or_refused() {
    let delay = Command::Delay(Ways::Back, Duration::from_micros(500));
    assert_eq!(Command::parse("delay back 500"), Ok(delay));
    assert_eq!(Command::parse(" cut  there "), Ok(Command::Cut(Ways::There)));
    assert_eq!(Command::parse("stall"), Ok(Command::Stall(Ways::Both)));
    for (bits, wanted) in [("0", 0), ("64000", 64_000), ("50M", 50_000_000), ("1G", 1_000_000_000)]
    {
        let line = format!("bandwidth back {bits}");
        assert_eq!(Command::parse(&line), Ok(Command::Bandwidth(Ways::Back, wanted)));
    }
    for wrong in [
        "bandwidth 7",
        "bandwidth 1kM",
        "bandwidth M",
        "bandwidth 99999999999G",
        "",
        "delay",
        "delay x",
        "delay 1 2",
        "reset there",
        "stop",
        "cut both",
    ] {
        assert!(Command::parse(wrong).is_err(), "{wrong}");
    }
}
