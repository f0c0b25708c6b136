//! SASL mechanisms and TLS, with Qpid JMS and go-amqp as clients.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use towline_e2e::daemon::{Daemon, Site, said};
use towline_e2e::papers::{self, Papers};
use towline_e2e::peer::Peer;
use towline_e2e::program;
use towline_e2e::wire::{AMQP_HEADER, SASL_HEADER, Value, amqp, code, described, frame, symbol};
use towline_e2e::{Try, fail, require};

const USER: &str = "alice";
const PASSWORD: &str = "correct horse, battery";

/// A daemon on loopback without TLS that knows alice.
fn with_users() -> Try<(Site, Daemon)> {
    let mut site = Site::open()?;
    let users = papers::users(site.scratch(), &[(USER, PASSWORD), ("bob", "b")])?;
    site.config = format!("[users]\nfile = {users:?}\n");
    let daemon = site.start()?;
    Ok((site, daemon))
}

/// A daemon with TLS; `users` says whether it knows alice, `clients` whether it takes certificates.
fn with_tls(users: bool, clients: bool) -> Try<(Site, Daemon, Papers)> {
    let mut site = Site::open()?;
    let papers = papers::issue(site.scratch(), USER)?;
    let mut text = format!(
        "[[listener]]\naddress = \"127.0.0.1:0\"\ncertificate = {:?}\nprivate_key = {:?}\n",
        papers.server, papers.server_key
    );
    if clients {
        text.push_str(&format!("client_authorities = {:?}\n", papers.authority));
    }
    if users {
        let users = papers::users(site.scratch(), &[(USER, PASSWORD)])?;
        text.push_str(&format!("[users]\nfile = {users:?}\n"));
    }
    site.config = text;
    let daemon = site.start()?;
    Ok((site, daemon, papers))
}

/// The listener's URL by the name that its certificate has.
fn by_name(daemon: &Daemon) -> String {
    daemon.url().replace("127.0.0.1", "localhost")
}

#[test]
fn scram_and_plain_log_in_with_the_right_password_only() -> Try {
    let (_site, daemon) = with_users()?;
    let url = daemon.url();
    for mechanism in ["SCRAM-SHA-256", "PLAIN"] {
        program::run(program::jms("login", &url, &[mechanism, USER, PASSWORD])?)?;
        for (user, password) in [(USER, "wrong"), ("nobody", PASSWORD), (USER, "b")] {
            program::run(program::jms("login_refused", &url, &[mechanism, user, password])?)?;
        }
    }
    daemon.stop()
}

#[test]
fn with_users_nobody_comes_in_without_a_name() -> Try {
    let (_site, daemon) = with_users()?;
    require!(Peer::open(daemon.address()).is_err(), "ANONYMOUS is taken although there are users");
    let mut peer = Peer::connect(daemon.address())?;
    peer.send(&AMQP_HEADER)?;
    let open = described(code::OPEN, vec![Value::Text("e2e".into())]);
    peer.send(&amqp(0, &open, &[]))?;
    let answer = peer.read_bytes(8)?;
    require!(answer == SASL_HEADER, "no demand for SASL, but {answer:?}");
    daemon.stop()
}

#[test]
fn an_unknown_user_and_a_wrong_password_get_the_same_answer() -> Try {
    let (_site, daemon) = with_users()?;
    let mut answers = Vec::new();
    for login in ["\0alice\0wrong", "\0nobody\0wrong"] {
        let mut peer = guess(&daemon, login)?;
        answers.push(peer.expect(code::SASL_OUTCOME)?.performative);
    }
    let [one, other] = answers.as_slice() else { fail!("not two answers") };
    require!(one.field(0).as_number() == Some(1), "not an auth failure: {one:?}");
    require!(one == other, "told apart: {one:?} and {other:?}");
    daemon.stop()
}

/// Tries a PLAIN login and does not wait for the answer.
fn guess(daemon: &Daemon, login: &str) -> Try<Peer> {
    let mut peer = Peer::connect(daemon.address())?;
    peer.send(&SASL_HEADER)?;
    peer.read_bytes(8)?;
    let fields = vec![symbol("PLAIN"), Value::Binary(login.into())];
    peer.send(&frame(1, 0, &described(code::SASL_INIT, fields).bytes()))?;
    Ok(peer)
}

#[test]
fn many_guessers_get_their_answers_and_who_is_logged_in_is_served_meanwhile() -> Try {
    let mut site = Site::open()?;
    let users = papers::users(site.scratch(), &[(USER, PASSWORD)])?;
    site.config = format!(
        "[[listener]]\naddress = \"127.0.0.1:0\"\nallow_anonymous = true\n\
         [users]\nfile = {users:?}\n[limits]\nlogin_timeout_s = 60\n"
    );
    let daemon = site.start()?;
    let mut plain = Peer::begun(daemon.address())?;
    plain.attach_sender(0, "BYSTANDER")?;
    plain.attach_receiver(1, "BYSTANDER", 1_000)?;
    let mut guessers = Vec::new();
    for number in 0..200 {
        guessers.push(guess(&daemon, &format!("\0alice\0{number}"))?);
        plain.put(0, number, b"still here")?;
        plain.get()?;
    }
    for peer in &mut guessers {
        let outcome = peer.expect(code::SASL_OUTCOME)?.performative;
        require!(outcome.field(0).as_number() == Some(1), "not an auth failure: {outcome:?}");
        require!(peer.is_hung_up(towline_e2e::peer::PATIENCE), "the connection stays open");
    }
    daemon.stop()
}

#[test]
fn one_bad_client_behind_a_nat_does_not_slow_another_user_of_its_address() -> Try {
    // More than are free for a name, fewer than are free for an address.
    const WRONG: usize = 8;
    let (_site, daemon) = with_users()?;
    let guessed = (0..WRONG).map(|number| guess(&daemon, &format!("\0{USER}\0{number}")));
    for mut peer in guessed.collect::<Try<Vec<Peer>>>()? {
        let outcome = peer.expect(code::SASL_OUTCOME)?.performative;
        require!(outcome.field(0).as_number() == Some(1), "not an auth failure: {outcome:?}");
    }
    let answer_after = |login: &str| -> Try<Duration> {
        let began = Instant::now();
        let outcome = guess(&daemon, login)?.expect(code::SASL_OUTCOME)?.performative;
        require!(outcome.field(0).as_number() == Some(0), "not logged in: {outcome:?}");
        Ok(began.elapsed())
    };
    let other = answer_after("\0bob\0b")?;
    let guessed = answer_after(&format!("\0{USER}\0{PASSWORD}"))?;
    require!(guessed >= Duration::from_secs(4), "a guessed name has its answer after {guessed:?}");
    require!(other < guessed / 2, "another name of the address has its answer after {other:?}");
    daemon.stop()
}

#[test]
fn a_users_file_that_others_may_read_is_refused() -> Try {
    let mut site = Site::open()?;
    let users = papers::users(site.scratch(), &[(USER, PASSWORD)])?;
    fs::set_permissions(&users, Permissions::from_mode(0o644))?;
    site.config = format!("[users]\nfile = {users:?}\n");
    let refused = site.start_refused()?;
    require!(!refused.status.success(), "started with a users file that everybody may read");
    require!(said(&refused).contains("users"), "{}", said(&refused));
    Ok(())
}

#[test]
fn tls_carries_scram_and_plain() -> Try {
    let (_site, daemon, papers) = with_tls(true, false)?;
    let authority = papers.authority.to_string_lossy().into_owned();
    let url = by_name(&daemon);
    for mechanism in ["SCRAM-SHA-256", "PLAIN"] {
        let right = [mechanism, USER, PASSWORD, &authority];
        program::run(program::jms("tls", &url, &right)?)?;
        let wrong = [mechanism, USER, "wrong", &authority];
        program::run(program::jms("tls_refused", &url, &wrong)?)?;
    }
    program::run(program::go("tls", &url, &[&authority, "PLAIN", USER, PASSWORD])?)?;
    daemon.stop()
}

#[test]
fn a_client_certificate_is_a_login() -> Try {
    let (_site, daemon, papers) = with_tls(true, true)?;
    let path = |path: &std::path::Path| path.to_string_lossy().into_owned();
    let authority = path(&papers.authority);
    let (client, client_key) = (path(&papers.client), path(&papers.client_key));
    let (stranger, stranger_key) = (path(&papers.stranger), path(&papers.stranger_key));
    let url = by_name(&daemon);
    let known = ["EXTERNAL", "-", "-", &authority, &client, &client_key];
    program::run(program::jms("tls", &url, &known)?)?;
    program::run(program::go("tls", &url, &[&authority, "EXTERNAL", &client, &client_key])?)?;
    let unknown = ["EXTERNAL", "-", "-", &authority, &stranger, &stranger_key];
    program::run(program::jms("tls_refused", &url, &unknown)?)?;
    let none = ["EXTERNAL", "-", "-", &authority];
    program::run(program::jms("tls_refused", &url, &none)?)?;
    daemon.stop()
}

#[test]
fn a_client_that_does_not_know_the_authority_refuses_the_daemon() -> Try {
    let (site, daemon, _papers) = with_tls(true, false)?;
    let other = site.scratch().join("other");
    fs::create_dir(&other)?;
    let others = papers::issue(&other, USER)?;
    let authority = others.authority.to_string_lossy().into_owned();
    let wrong = ["PLAIN", USER, PASSWORD, &authority];
    program::run(program::jms("tls_refused", &by_name(&daemon), &wrong)?)?;
    daemon.stop()
}

#[test]
fn a_stalled_handshake_harms_nobody() -> Try {
    let (_site, daemon, papers) = with_tls(true, false)?;
    let authority = papers.authority.to_string_lossy().into_owned();
    let hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";
    let mut stalled = Vec::new();
    for _ in 0..100 {
        let mut peer = Peer::connect(daemon.address())?;
        peer.send(hello)?;
        stalled.push(peer);
    }
    let mut garbage = Peer::connect(daemon.address())?;
    garbage.send(b"this is no handshake, nor will it be one")?;
    require!(garbage.is_hung_up(towline_e2e::peer::PATIENCE), "garbage is listened to");
    let login = ["PLAIN", USER, PASSWORD, &authority];
    program::run(program::go("tls", &by_name(&daemon), &[&authority, login[0], USER, PASSWORD])?)?;
    daemon.stop()
}

#[test]
fn a_listener_off_loopback_without_tls_is_refused_unless_allowed() -> Try {
    let plain = "[[listener]]\naddress = \"0.0.0.0:0\"\n";
    let refused = Site::closed()?.with_config(plain).start_refused()?;
    require!(!refused.status.success(), "listens on all addresses in plain text");
    let words = said(&refused);
    require!(words.contains("allow_plaintext"), "does not tell how to allow it: {words}");
    let open = format!("{plain}allow_plaintext = true\nallow_anonymous = true\n");
    let daemon = Site::closed()?.with_config(&open).start()?;
    daemon.stop()
}
