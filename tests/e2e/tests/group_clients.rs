//! When and where clients of a group are served: `ready` comes no sooner, what a client hears that
//! asks to be redirected, and that none is refused while an instance re-executes.

use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use towline_e2e::group::{Group, NAMES, THREE, WHOLE_MAX};
use towline_e2e::peer::{Peer, open_frame};
use towline_e2e::wire::{Value, amqp, code, described, symbol, text};
use towline_e2e::{Try, fail, require, wait};

/// An open frame with another value in field `at` (AMQP 2.7.1).
fn asking(at: usize, field: Value) -> Vec<u8> {
    let mut fields: Vec<Value> = (0..10).map(|at| open_frame().field(at).clone()).collect();
    fields[at] = field;
    amqp(0, &described(code::OPEN, fields), &[])
}

#[test]
fn a_relayed_client_that_asks_is_told_where_the_active_is_and_no_other_one() -> Try {
    let group = Group::formed()?;
    let active = group.until_whole()?;
    let replica = (active + 1) % 3;
    let (host, port) = group.address(active).rsplit_once(':').ok_or("no port")?;
    let by_property = asking(9, Value::Map(vec![(symbol("towline:redirect"), Value::Bool(true))]));
    let by_capability = asking(8, symbol("amqp:connection:redirect"));
    for open in [&by_property, &by_capability] {
        let mut peer = Peer::connect(group.address(replica))?;
        peer.authenticate()?;
        peer.send(open)?;
        let opened = peer.expect(code::OPEN)?.performative;
        let denied = (symbol("amqp:connection-establishment-failed"), Value::Bool(true));
        let properties = opened.field(9);
        let Value::Map(said) = properties else { return Err(format!("{opened:?}").into()) };
        require!(said.contains(&denied), "{opened:?}");
        let error = peer.expect(code::CLOSE)?.performative.field(0).clone();
        require!(error.condition() == Some("amqp:connection:redirect"), "{error:?}");
        let told = Value::Map(vec![
            (symbol("hostname"), text(host)),
            (symbol("network-host"), text(host)),
            (symbol("port"), Value::Uint(port.parse()?)),
            (symbol("scheme"), text("amqp")),
        ]);
        require!(*error.field(2) == told, "{error:?}");
        // It followed.
        let mut peer = Peer::connect(group.address(active))?;
        peer.authenticate()?;
        peer.send(open)?;
        peer.expect(code::OPEN)?;
        peer.begin(0)?;
    }
    Peer::begun(group.address(replica))?;
    Ok(())
}

/// The close says this of the instance, and not that the queue manager ends.
fn reads(mut peer: Peer, why: &str) -> Try {
    let error = peer.expect(code::CLOSE)?.performative.field(0).clone();
    require!(error.condition() == Some("amqp:connection:forced"), "{error:?}");
    let Value::Text(said) = error.field(1) else { fail!("no description: {error:?}") };
    require!(said.contains(why), "{said}");
    Ok(())
}

#[test]
fn a_client_of_an_instance_that_leads_no_more_reads_that_and_not_that_the_queue_manager_ends() -> Try
{
    let mut group = Group::formed()?;
    let active = group.until_whole()?;
    let of_handed_over = Peer::begun(group.address(active))?;
    group.switch(active, None)?;
    // It may fail yet: then the instance stays active.
    reads(of_handed_over, "hands over to another one: connect again")?;
    let active = group.until_whole()?;
    let of_stopped = Peer::begun(group.address(active))?;
    group.pause(active)?;
    group.until_active(Some(active))?;
    group.resume(active)?;
    reads(of_stopped, "not the active one any more: connect again")
}

/// Those that come through a replica too. Each answers, as clients do.
#[test]
fn each_of_many_clients_reads_why_it_is_let_go_at_a_planned_switch() -> Try {
    const DIRECT: usize = 400;
    const RELAYED: usize = 20;
    let group = Group::formed()?;
    let active = group.until_whole()?;
    let replica = (active + 1) % 3;
    let ways = [(active, DIRECT), (replica, RELAYED)];
    let addresses = ways.iter().flat_map(|(at, count)| vec![group.address(*at); *count]);
    let clients = addresses.map(Peer::begun).collect::<Try<Vec<Peer>>>()?;
    let answer = amqp(0, &described(code::CLOSE, Vec::new()), &[]);
    let reading = std::thread::spawn(move || {
        let mut without_a_word = 0;
        for mut client in clients {
            let why = client.expect(code::CLOSE).map(|close| close.performative.field(0).clone());
            let is_told = why.is_ok_and(|why| why.condition() == Some("amqp:connection:forced"));
            without_a_word += usize::from(!is_told);
            drop(client.send(&answer));
        }
        without_a_word
    });
    group.switch(replica, None)?;
    let without_a_word = reading.join().map_err(|_| "the reader panicked")?;
    require!(without_a_word == 0, "{without_a_word} clients read a bare end");
    Ok(())
}

/// Connects again and again until it is stopped; how often, or the first refusal.
fn connecting(address: &str, stop: &AtomicBool) -> Result<u64, String> {
    let mut count = 0;
    while !stop.load(Ordering::Relaxed) {
        let connected = TcpStream::connect(address);
        connected.map_err(|error| format!("{address}, connection {count}: {error}"))?;
        count += 1;
        wait::pause(Duration::from_micros(500));
    }
    Ok(count)
}

#[test]
fn nobody_is_refused_while_an_instance_that_handed_over_begins_again() -> Try {
    let group = Group::formed()?;
    let mut active = group.until_whole()?;
    // Twice: what was handed over once can be handed over again.
    for _ in 0..2 {
        let stop = AtomicBool::new(false);
        let links = group.links_address(active);
        let [of_clients, of_links] = std::thread::scope(|scope| {
            let loops = [group.address(active), &links].map(|address| {
                let stop = &stop;
                scope.spawn(move || connecting(address, stop))
            });
            let switched = group.switch((active + 1) % 3, None).and_then(|_| group.until_whole());
            stop.store(true, Ordering::Relaxed);
            let counts = loops.map(|looping| match looping.join() {
                Ok(count) => count,
                Err(_) => Err("it panicked".into()),
            });
            active = switched.map_err(|error| error.to_string())?;
            Ok::<_, String>(counts)
        })?;
        for count in [of_clients, of_links] {
            match count {
                Ok(count) => require!(count > 100, "only {count} connections"),
                Err(refused) => fail!("{}", group.explained(&refused)),
            }
        }
    }
    // It listens with all that it had, and no more.
    Peer::begun(group.address(active))?;
    Ok(())
}

/// Whether an instance has printed `ready` since the last look.
fn is_ready(group: &Group, at: usize) -> Try<bool> {
    Ok(group.daemon(at)?.printed().iter().any(|line| line.starts_with("ready ")))
}

/// How often an instance said so in its log.
fn times_ready(group: &Group, at: usize) -> usize {
    group.site(at).log().matches("TWL1002I").count()
}

#[test]
fn ready_comes_when_a_second_instance_is_there_and_one_is_active_and_not_before() -> Try {
    // A group that has been: what is new needs all of its instances once.
    let mut group = Group::formed()?;
    for at in THREE {
        group.kill(at)?;
    }
    let before = THREE.map(|at| times_ready(&group, at));
    group.start(0)?;
    // It answers clients by now: with the reason why it does not serve them.
    let refused = Peer::begun(group.address(0)).err().ok_or("one of three serves a client")?;
    require!(refused.to_string().contains("amqp:connection:forced"), "{refused}");
    require!(!is_ready(&group, 0)?, "ready without a second instance");
    require!(
        times_ready(&group, 0) == before[0],
        "{}",
        group.explained("TWL1002I without a second")
    );

    group.start(1)?;
    for at in [0, 1] {
        let ready = wait::until_true("ready", WHOLE_MAX, || {
            times_ready(&group, at) > before[at] && is_ready(&group, at).unwrap_or(true)
        });
        ready.map_err(|error| group.explained(&format!("{}: {error}", NAMES[at])))?;
        // What it promises holds at once.
        require!(group.active().is_some(), "{}", group.explained("ready without an active one"));
        let mut peer = Peer::begun(group.address(at))?;
        peer.attach_sender(0, "Q")?;
        peer.put(0, 0, b"served")?;
    }
    Ok(())
}
