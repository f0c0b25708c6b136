//! Clients of instances that are not active: the active one hangs, or there is none.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{TryRecvError, channel};
use std::time::{Duration, Instant};

use serde_json::Value;
use towline_e2e::group::{Design, Group, Instance, NAMES, SAYS, THREE, WHOLE_MAX};
use towline_e2e::peer::Peer;
use towline_e2e::{Try, fail, papers, paths, require, tls, wait};

/// How long the active one hangs.
const HANGS: Duration = Duration::from_secs(20);
/// Until it counts as gone in these groups, and what its clients may wait beyond the new one.
const MISSED: Duration = Duration::from_millis(1_500);
const BEYOND: Duration = Duration::from_secs(1);
/// A busy machine may need so much longer; far less than `HANGS`.
const BUSY: Duration = Duration::from_secs(5);
/// Until an instance without a leader must have answered.
const ANSWER: Duration = Duration::from_secs(1);

/// The other instances.
fn others(instance: Instance) -> [Instance; 2] {
    [(instance + 1) % 3, (instance + 2) % 3]
}

#[test]
fn clients_of_an_active_that_hangs_are_let_go_wherever_they_came_in() -> Try {
    let end = ["amqp:connection:forced"];
    let_go(Group::formed()?, &end, |group, at| Peer::begun(group.address(at)))
}

#[test]
fn tls_clients_of_an_active_that_hangs_are_let_go_wherever_they_came_in() -> Try {
    let folder = tempfile::tempdir()?;
    let papers = papers::issue(folder.path(), "client")?;
    let mut group = Group::plan(&Design::default())?;
    for at in THREE {
        let address = group.address(at).to_owned();
        let config = &mut group.site_mut(at).config;
        *config = format!(
            "[[listener]]\naddress = {address:?}\ncertificate = {:?}\nprivate_key = {:?}\n{config}",
            papers.server, papers.server_key
        );
    }
    for at in THREE {
        group.start(at)?;
    }
    // TLS ends at the active one: what relays can say no reason in it, and closes.
    let_go(group, &["the daemon hung up", "reset by peer"], |group, at| {
        let stream = tls::connect(group.address(at), &papers.authority)?;
        let mut peer = Peer::over(stream)?.opened()?;
        peer.begin(0)?;
        Ok(peer)
    })
}

/// The active instance hangs; clients that `connect` at the two others go on with the new one.
fn let_go(mut group: Group, ends: &[&str], connect: impl Fn(&Group, Instance) -> Try<Peer>) -> Try {
    let hung = group.until_whole()?;
    let mut clients = Vec::new();
    for at in others(hung) {
        let mut peer = connect(&group, at)?;
        peer.attach_sender(0, "Q")?;
        peer.put(0, 0, b"before")?;
        clients.push((at, peer));
    }
    let began = Instant::now();
    group.pause(hung)?;
    let mut served = Vec::new();
    for (at, mut peer) in clients {
        // Its put has no answer: the connection ends instead.
        peer.put_unanswered(0, 1, b"lost")?;
        let end = peer.await_accepted(1).err().ok_or("a hung instance answered")?.to_string();
        require!(ends.iter().any(|words| end.contains(words)), "{at}: {end}");
        let mut again = connect(&group, at)?;
        again.attach_sender(0, "Q")?;
        again.put(0, 0, b"after")?;
        served.push(began.elapsed());
    }
    let most = MISSED + BEYOND + BUSY;
    require!(served.iter().all(|took| *took < most), "served again after {served:?}");
    println!("served again after {served:?}; the instance hung for {HANGS:?} at most");
    require!(began.elapsed() < HANGS, "the test took longer than the hang");
    group.resume(hung)?;
    let whole = group.until_whole();
    if let Some(how) = group.ended(hung) {
        fail!("{} ended, {how}\nthe others: {whole:?}", NAMES[hung]);
    }
    whole.map(drop)
}

/// All that an instance says to these bytes, until it closes.
fn answer(mut socket: impl Read + Write, said: &[u8]) -> Try<String> {
    socket.write_all(said)?;
    let mut heard = Vec::new();
    socket.read_to_end(&mut heard)?;
    Ok(String::from_utf8_lossy(&heard).into_owned())
}

/// Header, an open frame with container id "x", and what many libraries send in the same breath.
fn greeting() -> Vec<u8> {
    let open = [0, 0x53, 0x10, 0xc0, 4, 1, 0xa1, 1, b'x'];
    let begin = [0, 0x53, 0x11, 0xc0, 7, 4, 0x40, 0x43, 0x52, 8, 0x52, 8];
    let mut bytes = b"AMQP\x00\x01\x00\x00".to_vec();
    for body in [&open[..], &begin[..]] {
        let size = u32::try_from(body.len() + 8).unwrap_or_default();
        bytes.extend_from_slice(&size.to_be_bytes());
        bytes.extend_from_slice(&[2, 0, 0, 0]);
        bytes.extend_from_slice(body);
    }
    bytes
}

#[test]
fn an_instance_without_a_leader_answers_within_a_second_and_serves_when_there_is_one() -> Try {
    let mut group = Group::formed()?;
    let alone = group.until_whole()?;
    for other in others(alone) {
        group.kill(other)?;
    }
    wait::until_true("no leader", WHOLE_MAX, || {
        group.status(alone).is_ok_and(|group| group["active"] == "")
    })?;
    let local = group.site(alone).data.join("towline.sock");
    let mut fastest = HANGS;
    for round in 0..3 {
        let began = Instant::now();
        let heard = match round {
            0 | 1 => answer(TcpStream::connect(group.address(alone))?, &greeting())?,
            _ => answer(UnixStream::connect(&local)?, &greeting())?,
        };
        let took = began.elapsed();
        require!(took < ANSWER + BUSY, "an answer after {took:?}");
        fastest = fastest.min(took);
        println!("an answer after {took:?}");
        for part in ["amqp:connection:forced", "no quorum", "2 of 3 not connected"] {
            require!(heard.contains(part), "{heard:?}");
        }
    }
    // A busy machine delays one of them, and not each.
    require!(fastest < 2 * ANSWER, "the fastest answer after {fastest:?}");
    let site = group.site(alone);
    let said = site.runs(&["put", "Q", "lost", "--timeout", "5"], 0);
    let said = said.err().ok_or("a put was taken")?.to_string();
    require!(said.contains("the group has no quorum"), "{said}");
    wait::until_true("a word about it", WHOLE_MAX, || {
        let log = group.site(alone).log();
        log.contains("TWL4121W") && log.contains("2 of 3 not connected with this one")
    })?;
    require!(site.log().matches("TWL4110W").count() <= 4, "{SAYS}{}", site.log());
    group.start(others(alone)[0])?;
    wait::until_true("a client is served", WHOLE_MAX, || {
        Peer::begun(group.address(alone)).is_ok()
    })?;
    wait::until_true("the end of it is told", WHOLE_MAX, || {
        group.site(alone).log().contains("TWL4122I")
    })?;
    Ok(())
}

#[test]
fn clients_that_come_while_one_active_follows_another_are_served_without_a_refusal() -> Try {
    let mut group = Group::formed_as(&Design::default())?;
    let killed = group.until_whole()?;
    group.kill(killed)?;
    // No instance knows yet that it is gone, or which one follows.
    for at in others(killed) {
        let mut peer = Peer::begun(group.address(at))?;
        peer.attach_sender(0, "Q")?;
        peer.put(0, 0, b"x")?;
    }
    require!(THREE.into_iter().filter(|at| group.runs(*at)).count() == 2, "another one ended");
    Ok(())
}

/// What `towline status` says of a folder: the instance that it is about, if anything answered.
fn status_of(data: &Path) -> Try<Option<String>> {
    let mut command = Command::new(paths::towline()?);
    command.args(["status", "--json", "--timeout", "2", "--data"]).arg(data);
    let output = command.output()?;
    if !output.status.success() {
        return Ok(None);
    }
    let told: Value = serde_json::from_slice(&output.stdout)?;
    Ok(Some(told["group"]["instance"].as_str().unwrap_or_default().to_owned()))
}

#[test]
fn the_status_of_a_folder_is_never_that_of_another_instance() -> Try {
    let mut group = Group::formed()?;
    let active = group.until_whole()?;
    let replica = others(active)[0];
    group.kill(replica)?;
    let data = group.site(replica).data.clone();
    let (stop, stopped) = channel::<()>();
    let asking = std::thread::spawn(move || {
        let mut answered = Vec::new();
        while let Err(TryRecvError::Empty) = stopped.try_recv() {
            if let Ok(Some(instance)) = status_of(&data) {
                answered.push(instance);
            }
        }
        answered
    });
    group.start(replica)?;
    group.until_whole()?;
    drop(stop);
    let answered = asking.join().map_err(|_| "the thread that asks")?;
    require!(!answered.is_empty(), "nothing answered");
    require!(answered.iter().all(|name| *name == NAMES[replica]), "answers of {answered:?}");
    // Nor when its control socket does not answer at all.
    std::fs::remove_file(group.site(replica).data.join("towline-control.sock"))?;
    require!(status_of(&group.site(replica).data)?.is_none(), "another instance answered");
    Ok(())
}
