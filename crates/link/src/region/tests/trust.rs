//! Which instances of another region are let in: names, dates, authorities.

use super::*;

/// Why an instance of WEST gets no connection to one of EAST, as the two say.
fn refused(
    spoil_west: impl FnOnce(&RegionBench, &mut RegionSettings),
    spoil_east: impl FnOnce(&RegionBench, &mut RegionSettings),
) -> String {
    let bench = RegionBench::new();
    let mut settings = [bench.settings(WEST, 0), bench.settings(EAST, 0)];
    spoil_west(&bench, &mut settings[WEST]);
    spoil_east(&bench, &mut settings[EAST]);
    let [west, east] = settings;
    let ((west, of_west), (_east, of_east)) = (bench.start_with(west), bench.start_with(east));
    west.dial(true);
    let why = trouble(&west);
    assert!(!of_west.let_in() && !of_east.let_in(), "an instance was let in");
    why
}

/// Papers of that common name, valid for so many days.
fn papers(bench: &RegionBench, common: &str, days: i64) -> IdentityFiles {
    bench.authority.issue_as(bench.folder.path(), "spoilt", common, days)
}

#[test]
fn another_queue_manager_or_group_is_refused_and_both_values_are_named() {
    // The instance that answers is another group's: its certificate says so before it hears a word.
    let why = refused(
        |_, _| {},
        |bench, settings| {
            settings.group = "SOUTH".into();
            settings.identity = papers(bench, "QM1.SOUTH.a", 100);
        },
    );
    assert!(why.contains("'QM1.SOUTH.a'") && why.contains("'EAST', 'QM1.EAST.*'"), "{why}");
    // It has another group for its other region.
    let why = refused(|_, _| {}, |_, settings| settings.other_group = "NORTH".into());
    assert!(why.contains("it refused: its group is 'WEST'; the other region of group 'EAST'"));
    assert!(why.contains("is group 'NORTH'"), "{why}");
    let why = refused(
        |bench, settings| {
            settings.queue_manager = "QM2".into();
            settings.identity = papers(bench, "QM2.WEST.a", 100);
        },
        |_, _| {},
    );
    assert!(why.contains("'QM1.EAST.a'") && why.contains("'QM2.EAST.*'"), "{why}");
}

#[test]
fn an_address_that_leads_back_to_the_own_group_is_refused() {
    let bench = RegionBench::new();
    let addresses = bench.addresses[WEST][..1].to_vec();
    let (west, of_west) = bench.start_with(RegionSettings { addresses, ..bench.settings(WEST, 0) });
    west.dial(true);
    let why = trouble(&west);
    assert!(why.contains("'QM1.WEST.a'") && why.contains("'QM1.EAST.*'"), "{why}");
    assert!(!of_west.let_in());
}

#[test]
fn what_an_instance_says_must_be_what_its_certificate_says() {
    let bench = RegionBench::new();
    let (_east, of_east) = bench.start(EAST, 0);
    let said = |files: &IdentityFiles, spoil: fn(&mut RegionGreeting)| {
        let mut greeting = bench.greeting(WEST, 0);
        spoil(&mut greeting);
        run(async {
            let mut stream = bench.shake_hands(files, (EAST, 0)).await.unwrap();
            hello::say(&mut stream, &greeting.encode().unwrap()).await.unwrap();
            match hello::hear(&mut stream, true).await.unwrap().matter {
                RegionMatter::Refused(why) => why,
                other => panic!("{other:?}"),
            }
        })
    };
    let (of_a, of_b, of_east_b) =
        (bench.files(WEST, 0), bench.files(WEST, 1), bench.files(EAST, 1));
    let why = said(&of_b, |_| {});
    assert!(why.contains("'QM1.WEST.b'") && why.contains("not for 'QM1.WEST.a'"), "{why}");
    let why = said(&of_east_b, |_| {});
    assert!(why.contains("'QM1.EAST.b'") && why.contains("not for 'QM1.WEST.a'"), "{why}");
    for (spoil, part) in [
        ((|hello| hello.group = "EAST".into()) as fn(&mut RegionGreeting), "its group is 'EAST'"),
        (|hello| hello.queue_manager = "QM2".into(), "its queue manager is 'QM2'"),
        (
            |hello| hello.expected = "NORTH".into(),
            "'NORTH' for its other region; this is group 'EA",
        ),
        (|hello| (hello.oldest, hello.newest) = (2, 9), "no common version of the protocol"),
        (|hello| hello.instance = "x".into(), "not for 'QM1.WEST.x'"),
    ] {
        let why = said(&of_a, spoil);
        assert!(why.contains(part), "{why}");
    }
    assert!(of_east.events.lock().is_empty(), "an instance was let in");
}

#[test]
fn any_instance_of_the_other_group_is_let_in() {
    let bench = RegionBench::new();
    let (_east, of_east) = bench.start(EAST, 1);
    run(async {
        for instance in 0..3 {
            let _stream = bench.by_hand((WEST, instance), (EAST, 1)).await;
            of_east.link(instance + 1);
        }
    });
}

#[test]
fn an_expired_certificate_is_refused_whichever_side_shows_it() {
    let expired = |bench: &RegionBench, settings: &mut RegionSettings| {
        settings.identity = papers(bench, &format!("QM1.{}.a", settings.group), -1);
    };
    let why = refused(expired, |_, _| {});
    assert!(why.contains("says that our certificate has expired, or is not valid yet"), "{why}");
    let why = refused(|_, _| {}, expired);
    assert!(why.contains("the certificate has expired"), "{why}");
}

#[test]
fn a_certificate_of_another_authority_is_refused_whichever_side_shows_it() {
    let foreign = |bench: &RegionBench, settings: &mut RegionSettings| {
        let common = format!("QM1.{}.a", settings.group);
        let files = Authority::new().issue_as(bench.folder.path(), "spoilt", &common, 100);
        // It trusts the right one.
        std::fs::write(&files.authorities, &bench.authority.pem).unwrap();
        settings.identity = files;
    };
    let why = refused(foreign, |_, _| {});
    assert!(why.contains("does not trust the authority of our"), "{why}");
    let why = refused(|_, _| {}, foreign);
    assert!(why.contains("an authority that we do not trust"), "{why}");
}

#[test]
fn links_do_not_start_with_the_papers_of_another_instance() {
    let bench = RegionBench::new();
    let settings = RegionSettings { identity: bench.files(WEST, 1), ..bench.settings(WEST, 0) };
    let inbox = Arc::new(crate::testing::region::RegionRecorder::default());
    let text = RegionLinks::start(settings, inbox).err().unwrap().to_string();
    assert!(text.contains("QM1.WEST.b.pem") && text.contains("not for 'QM1.WEST.a'"), "{text}");
}

#[test]
fn new_papers_count_for_the_connections_that_come() {
    let (bench, [(west, of_west), (east, _)]) = RegionBench::pair();
    assert_eq!(west.reload(), Ok(None));
    let before = [&west, &east].map(|links| links.shared.identity.in_force());
    let authority = Authority::new();
    for group in ["WEST", "EAST"] {
        let name = format!("QM1.{group}.a");
        authority.issue_as(bench.folder.path(), &name, &name, 50);
    }
    // The look of every few milliseconds may find them first.
    for (links, before) in [(&west, before[0].clone()), (&east, before[1].clone())] {
        until("new papers", || {
            links.reload().unwrap();
            (!Arc::ptr_eq(&before, &links.shared.identity.in_force())).then_some(())
        });
    }
    of_west.link(1).close("once more");
    of_west.link(2);
}

#[test]
fn streams_for_a_copy_go_to_the_connected_instance_and_can_be_refused() {
    let (_bench, [(west, _of_west), (east, of_east)]) = RegionBench::pair();
    let (hello, mut ours) = run(west.open_stream()).unwrap();
    assert_eq!((&*hello.instance, hello.section(1)), ("a", Some(&Bytes::from("EAST.a"))));
    run(async {
        ours.settle().unwrap();
        ours.write_all(b"one").await.unwrap();
        ours.shutdown().await.unwrap();
    });
    of_east.count("a stream", 1, |event| matches!(event, RegionEvent::Stream(_)));
    let mut theirs = of_east.streams.lock().pop().unwrap();
    run(async {
        theirs.settle().unwrap();
        let mut text = String::new();
        theirs.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "one");
    });
    *of_east.no_stream.lock() = Some("it has space for one copy".into());
    let error = run(west.open_stream()).unwrap_err().to_string();
    assert!(error.ends_with("it refused: it has space for one copy"), "{error}");
    // The side that listens may open one as well; it knows the addresses.
    let (hello, _stream) = run(east.open_stream()).unwrap();
    assert_eq!(&*hello.instance, "a");
}
