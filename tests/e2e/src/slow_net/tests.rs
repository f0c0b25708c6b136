//! The proxy on loopback.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::SlowNet;
use super::command::{Command, Ways};
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
    order(&net, "bandwidth there 1000000")?;
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
    assert_eq!(Command::parse("bandwidth 7"), Ok(Command::Bandwidth(Ways::Both, 7)));
    for wrong in ["", "delay", "delay x", "delay 1 2", "reset there", "stop", "cut both"] {
        assert!(Command::parse(wrong).is_err(), "{wrong}");
    }
}
