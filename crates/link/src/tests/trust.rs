//! Which peers are let in: names, dates, authorities, and identity files that change.

use rustls::SignatureScheme;
use rustls::client::ResolvesClientCert;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::sign::CertifiedKey;
use towline_tls::in_date;

use super::*;
use crate::LinkError;

/// Why a stream from one member to another does not come about.
fn refusal(links: &Links, to: Peer) -> String {
    run(links.open_stream(to, StreamPurpose::Copy)).unwrap_err().to_string()
}

/// Identity files of member b that are not as they should be: both sides say why.
fn refused_both_ways(spoil: impl FnOnce(&Bench)) -> [String; 2] {
    let bench = Bench::new(2);
    spoil(&bench);
    let ((a, of_a), (b, of_b)) = (bench.start(0), bench.start(1));
    let texts = [refusal(&a, 1), refusal(&b, 0)];
    for recorder in [of_a, of_b] {
        assert!(recorder.observed.lock().is_empty(), "a peer was let in");
    }
    texts
}

#[test]
fn an_expired_certificate_is_refused_and_both_sides_say_so() {
    let [as_server, as_client] = refused_both_ways(|bench| {
        bench.authority.issue(bench.folder.path(), "b", -1);
    });
    assert!(as_server.contains("the certificate has expired"), "{as_server}");
    assert!(as_client.contains("says that our certificate has expired"), "{as_client}");
}

#[test]
fn a_certificate_of_another_authority_is_refused_and_both_sides_say_so() {
    let [as_server, as_client] = refused_both_ways(|bench| {
        let files = Authority::new().issue(bench.folder.path(), "b", 100);
        // It trusts the right one.
        fs::write(&files.authorities, &bench.authority.pem).unwrap();
    });
    assert!(as_server.contains("an authority that we do not trust"), "{as_server}");
    assert!(as_client.contains("does not trust the authority of our"), "{as_client}");
}

#[test]
fn an_instance_does_not_start_with_the_papers_of_another() {
    let bench = Bench::new(3);
    let settings = LinkSettings { identity: bench.files("c"), ..bench.settings(0) };
    let error = Links::start(settings, Recorder::new(1)).err().unwrap();
    assert!(matches!(error, LinkError::Identity(_)), "{error}");
    let text = error.to_string();
    assert!(text.contains("c.pem") && text.contains("not for 'QM1.G.a'"), "{text}");
    let mut settings = bench.settings(0);
    settings.identity.private_key = bench.files("b").private_key;
    assert!(Links::start(settings, Recorder::new(1)).is_err(), "a key of another certificate");
    let mut settings = bench.settings(0);
    settings.identity.authorities = bench.folder.path().join("none.pem");
    let text = Links::start(settings, Recorder::new(1)).err().unwrap().to_string();
    assert!(text.contains("none.pem"), "{text}");
    fs::write(bench.folder.path().join("none.pem"), "").unwrap();
    let mut settings = bench.settings(0);
    settings.identity.authorities = bench.folder.path().join("none.pem");
    let text = Links::start(settings, Recorder::new(1)).err().unwrap().to_string();
    assert!(text.contains("none.pem: the file is empty"), "{text}");
}

#[test]
fn who_answers_at_the_address_of_another_is_refused() {
    let mut bench = Bench::new(3);
    let (_c, of_c) = bench.start(2);
    bench.members[1].address = bench.members[2].address.clone();
    let (a, _) = bench.start(0);
    let text = refusal(&a, 1);
    assert!(text.contains("'QM1.G.c'") && text.contains("not for 'QM1.G.b'"), "{text}");
    drop(of_c);
}

#[test]
fn who_says_to_be_another_than_its_certificate_is_refused() {
    let bench = Bench::new(3);
    let (_a, of_a) = bench.start(0);
    let spoiled = |spoil: fn(&mut Hello)| {
        let mut hello = bench.hello(1, Matter::Frames);
        spoil(&mut hello);
        let of_c = TlsIdentity::read(&bench.files("c")).unwrap();
        let of_b = TlsIdentity::read(&bench.files("b")).unwrap();
        let identity = if hello == bench.hello(1, Matter::Frames) { of_c } else { of_b };
        run(async {
            let mut stream = bench.shake_hands(0, &identity.client_frames).await.unwrap();
            hello::say(&mut stream, &hello).await.unwrap();
            match hello::hear(&mut stream, true).await.unwrap().matter {
                Matter::Refused(why) => why,
                other => panic!("{other:?}"),
            }
        })
    };
    let why = spoiled(|_| {});
    assert!(why.contains("for common name 'QM1.G.c'") && why.contains("'QM1.G.b'"), "{why}");
    for (spoil, why) in [
        ((|hello| hello.instance = "x".into()) as fn(&mut Hello), "'x' is no other instance"),
        (|hello| hello.instance = "a".into(), "'a' is no other instance"),
        (|hello| hello.group = "H".into(), "not 'H' of 'QM1'"),
        (|hello| hello.queue_manager = "QM2".into(), "'QM1', not 'G' of 'QM2'"),
        (|hello| (hello.oldest, hello.newest) = (4, 9), "no common version of the link protocol"),
    ] {
        let said = spoiled(spoil);
        assert!(said.contains(why), "{said}");
    }
    assert!(of_a.observed.lock().is_empty(), "a peer was let in");
}

/// Shows no certificate.
#[derive(Debug)]
struct NoCertificate;

impl ResolvesClientCert for NoCertificate {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        None
    }

    fn has_certs(&self) -> bool {
        false
    }
}

#[test]
fn who_shows_no_certificate_is_refused() {
    let bench = Bench::new(2);
    let (_a, of_a) = bench.start(0);
    let identity = TlsIdentity::read(&bench.files("b")).unwrap();
    let mut config = ClientConfig::clone(&identity.client_frames);
    config.client_auth_cert_resolver = Arc::new(NoCertificate);
    let result = run(async {
        let mut stream = bench.shake_hands(0, &Arc::new(config)).await?;
        hello::say(&mut stream, &bench.hello(1, Matter::Frames)).await?;
        hello::hear(&mut stream, true).await
    });
    let why = towline_tls::reason(&result.unwrap_err());
    assert!(why.contains("CertificateRequired"), "{why}");
    assert!(of_a.observed.lock().is_empty(), "a peer was let in");
}

#[test]
fn new_papers_count_without_a_restart_and_broken_ones_do_not() {
    let (bench, [(a, of_a), (b, of_b)]) = Bench::pair();
    let folder = bench.folder.path();
    // Broken files change nothing.
    fs::write(&bench.files("a").certificate, "no certificate").unwrap();
    run(a.open_stream(1, StreamPurpose::Copy)).unwrap();
    run(b.open_stream(0, StreamPurpose::Copy)).unwrap();
    // Another authority for both: an instance that does not look again can no longer talk to one
    // that did.
    let authority = Authority::new();
    for name in ["a", "b"] {
        authority.issue(folder, name, 100);
    }
    let other = authority.issue(folder, "c", 100);
    let identity = TlsIdentity::read(&other).unwrap();
    for (links, peer) in [(&a, 1), (&b, 0)] {
        until(|| {
            let new = &links.shared.identity().server;
            let shaken = run(bench.shake_hands(1 - peer, &identity.client_stream));
            shaken.is_ok() && Arc::strong_count(new) > 0
        });
        until(|| run(links.open_stream(peer, StreamPurpose::Copy)).is_ok());
    }
    // What stood goes on standing.
    for recorder in [of_a, of_b] {
        assert!(
            !recorder
                .observed
                .lock()
                .iter()
                .any(|observed| matches!(observed, Observation::Closed(..)))
        );
    }
}

#[test]
fn a_reload_takes_new_papers_and_says_why_it_leaves_those_in_use() {
    let bench = Bench::new(1);
    let (links, _recorder) = bench.start(0);
    let (folder, files) = (bench.folder.path(), bench.files("a"));
    assert_eq!(links.reload(), Ok(None), "nothing has changed");
    let right = [&files.certificate, &files.private_key, &files.authorities]
        .map(|file| (file, fs::read(file).unwrap()));
    let before = links.shared.identity();
    // A certificate without its key, another instance's, an expired one, and none at all.
    let spoilt: [(&dyn Fn(), &str, &str); 4] = [
        (
            &|| {
                drop(fs::rename(
                    bench.authority.issue(folder, "x", 9).private_key,
                    &files.private_key,
                ))
            },
            "a-key.pem",
            "does not belong to certificate",
        ),
        (
            &|| {
                let other = bench.authority.issue(folder, "b", 100);
                fs::rename(other.certificate, &files.certificate).unwrap();
                fs::rename(other.private_key, &files.private_key).unwrap();
            },
            "a.pem",
            "not for 'QM1.G.a'",
        ),
        (&|| drop(bench.authority.issue(folder, "a", -1)), "a.pem", "the certificate has expired"),
        (&|| fs::remove_file(&files.certificate).unwrap(), "a.pem", "there is no such file"),
    ];
    for (spoil, file, why) in spoilt {
        spoil();
        let said = links.reload().unwrap_err();
        assert!(said.contains(file) && said.contains(why), "{why}: {said}");
        for (file, bytes) in &right {
            fs::write(file, bytes).unwrap();
        }
    }
    assert!(Arc::ptr_eq(&before, &links.shared.identity()), "what was in use stays in use");
    bench.authority.issue(folder, "a", 50);
    // The look of every few milliseconds may have found them first.
    until(|| links.reload() == Ok(None) && !Arc::ptr_eq(&before, &links.shared.identity()));
}

#[test]
fn streams_are_resumed_and_new_papers_end_that() {
    let (bench, [(a, of_a), (b, _)]) = Bench::pair();
    let open = |links: &Links, to| run(links.open_stream(to, StreamPurpose::Copy));
    assert!(!open(&a, 1).unwrap().is_resumed(), "nothing to resume yet");
    for _ in 0..10 {
        assert!(open(&a, 1).unwrap().is_resumed());
    }
    assert!(!open(&b, 0).unwrap().is_resumed(), "of another direction");
    // As many as may be under way at once find tickets.
    let resumed = run(async {
        let opening = (0..16).map(|_| tokio::spawn(a.open_stream(1, StreamPurpose::Copy)));
        let opening: Vec<_> = opening.collect();
        let mut resumed = 0;
        for stream in opening {
            resumed += usize::from(stream.await.unwrap().unwrap().is_resumed());
        }
        resumed
    });
    assert!(resumed >= 11, "each of ten brought one more than it took: {resumed}");
    // The certificate of b is of another authority now, and that is the only one it trusts.
    let before = b.shared.identity();
    Authority::new().issue(bench.folder.path(), "b", 100);
    until(|| !Arc::ptr_eq(&before, &b.shared.identity()));
    assert!(refusal(&a, 1).contains("an authority that we do not trust"), "a full handshake");
    // Those of a are new, by an authority that it trusts alone: its own tickets count no more.
    let before = a.shared.identity();
    Authority::new().issue(bench.folder.path(), "a", 100);
    until(|| !Arc::ptr_eq(&before, &a.shared.identity()));
    assert!(refusal(&b, 0).contains("an authority that we do not trust"), "a full handshake");
    drop(of_a);
}

#[test]
fn who_was_let_in_with_a_certificate_that_is_no_longer_in_date_is_not_resumed() {
    let bench = Bench::new(1);
    let pem = fs::read(&bench.files("a").certificate).unwrap();
    let shown = [CertificateDer::from_pem_slice(&pem).unwrap()];
    let at = |seconds: Duration| in_date(Some(&shown), UnixTime::since_unix_epoch(seconds));
    let day = |days: u64| Duration::from_secs(86_400 * days);
    let now = Duration::from_secs(UnixTime::now().as_secs());
    assert_eq!(at(now), Ok(()));
    assert_eq!(at(now + day(99)), Ok(()));
    assert!(at(now + day(101)).unwrap_err().contains("has expired"));
    assert!(at(now - day(1_001)).unwrap_err().contains("not valid yet"));
}

/// Looks until it is so.
fn until(mut so: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !so() {
        assert!(Instant::now() < deadline, "it did not come about");
        std::thread::yield_now();
    }
}

#[test]
fn terms_that_differ_are_refused_by_both_ends_with_both_values_and_the_state_says_so() {
    let bench = Bench::new(2);
    let with = |this: Peer, extent_bytes: u64| {
        let mut settings = bench.settings(this);
        settings.terms.bind("log.extent_bytes", extent_bytes);
        bench.start_with(this, settings)
    };
    let ((a, of_a), (b, of_b)) = (with(0, 4_194_304), with(1, 8_388_608));
    let why = "log.extent_bytes is '4194304' at 'a' and '8388608' at 'b'";
    for (links, peer) in [(&a, 1), (&b, 0)] {
        let text = refusal(links, peer);
        assert!(text.contains(why), "{text}");
        let shown = run(async {
            loop {
                let trouble = links.trouble(peer);
                if !trouble.is_empty() {
                    return trouble;
                }
                tokio::task::yield_now().await;
            }
        });
        assert!(shown.contains(why), "{shown}");
    }
    for recorder in [of_a, of_b] {
        assert!(recorder.observed.lock().is_empty(), "a peer was let in");
    }
}
