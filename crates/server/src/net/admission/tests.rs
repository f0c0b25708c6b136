//! Which connections are admitted, wait and give way, with the clock standing still.

use std::task::Waker;

use super::*;

fn admission(connections: usize, per_address: usize, pending: usize) -> Arc<Admission> {
    let limits = LimitsConfig {
        connections_max: connections,
        connections_per_address_max: per_address,
        logins_pending_max: pending,
        ..LimitsConfig::default()
    };
    Admission::new(limits, usize::MAX)
}

fn now(admission: &Arc<Admission>, address: Option<IpAddr>) -> Place {
    match admission.admit(address) {
        Ok(Admitted::Now(place)) => place,
        other => panic!("{other:?}"),
    }
}

fn later(admission: &Arc<Admission>, address: Option<IpAddr>) -> Waiting {
    match admission.admit(address) {
        Ok(Admitted::Later(waiting)) => waiting,
        other => panic!("{other:?}"),
    }
}

fn gives_way(place: &mut Place) -> bool {
    place.poll_gives_way(&mut Context::from_waker(Waker::noop()))
}

const LOOPBACK: Option<IpAddr> = Some(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST));

fn far(last: u8) -> Option<IpAddr> {
    Some(IpAddr::from([192, 0, 2, last]))
}

/// Runs `test` on one thread; the clock stands still until every task waits.
fn run(test: impl Future<Output = ()>) {
    let builder = &mut tokio::runtime::Builder::new_current_thread();
    builder.enable_all().start_paused(true).build().unwrap().block_on(test);
}

fn is_empty(admission: &Admission) -> bool {
    let state = admission.state.lock();
    let counts = state.connections + state.local + state.pending_count + state.waiting_count;
    let maps = state.by_address.len() + state.pending.len() + state.waiting.len();
    counts + maps + state.turns.len() == 0
}

#[test]
fn logins_pending_are_bounded_and_the_next_one_comes_when_one_has_logged_in() {
    run(async {
        let admission = admission(10, 10, 1);
        let mut first = now(&admission, LOOPBACK);
        let second = later(&admission, LOOPBACK);
        first.logged_in();
        let second = second.place().await.unwrap();
        assert_eq!(admission.connections(), 2);
        drop((first, second));
        assert!(is_empty(&admission));
    });
}

#[test]
fn an_administrator_gets_in_when_clients_have_every_place() {
    let admission = admission(1, 1, 1);
    let client = now(&admission, LOOPBACK);
    assert_eq!(admission.admit(LOOPBACK).unwrap_err(), "connections_max");
    let local: Vec<_> = (0..LOCAL_CONNECTIONS_MAX).map(|_| now(&admission, None)).collect();
    assert!(admission.admit(None).is_err(), "the local socket has a bound too");
    drop(client);
    drop(now(&admission, LOOPBACK));
    drop(local);
    assert!(is_empty(&admission));
}

#[test]
fn an_administrator_gets_in_when_clients_have_the_descriptors_that_they_may_have() {
    let admission = Admission::new(LimitsConfig::default(), 1);
    let client = now(&admission, LOOPBACK);
    assert!(admission.admit(LOOPBACK).unwrap_err().contains("file descriptors"));
    drop((now(&admission, None), client));
    assert!(is_empty(&admission));
}

#[test]
fn silent_connections_give_way_the_oldest_first_and_all_that_come_get_in() {
    run(async {
        let admission = admission(1_000, 1_000, 512);
        let mut silent: Vec<_> = (0..64).map(|_| now(&admission, far(1))).collect();
        assert!(matches!(admission.admit(far(2)), Ok(Admitted::Now(_))), "another address");
        let waiting: Vec<_> = (0..300).map(|_| later(&admission, far(1))).collect();
        assert!(!silent.iter_mut().any(gives_way), "they have just come");
        sleep(SILENCE_MAX).await;
        let clients: Vec<_> = waiting.into_iter().map(|one| tokio::spawn(one.place())).collect();
        sleep(2 * PRESS_INTERVAL).await;
        assert!(silent.iter_mut().all(gives_way), "300 wait for 64");
        silent.clear();
        let mut places = Vec::new();
        for client in clients {
            let mut place = client.await.unwrap().unwrap();
            place.logged_in();
            places.push(place);
        }
        assert_eq!(admission.connections(), 300);
        places.clear();
        assert!(is_empty(&admission));
    });
}

#[test]
fn no_more_give_way_than_wait_and_a_login_on_its_way_has_more_time() {
    run(async {
        let admission = admission(1_000, 1_000, 2);
        let mut places = [now(&admission, LOOPBACK), now(&admission, LOOPBACK)];
        places[0].spoke();
        sleep(SILENCE_MAX).await;
        let _one = later(&admission, far(1));
        assert_eq!(places.each_mut().map(gives_way), [false, true], "of the greediest");
        let _other = later(&admission, far(1));
        assert!(!gives_way(&mut places[0]));
        sleep(LimitsConfig::default().login_timeout() / 2).await;
        admission.state.lock().press(&admission.limits, far(1).unwrap());
        assert!(gives_way(&mut places[0]));
    });
}

#[test]
fn each_login_allows_its_address_one_more_but_not_all() {
    let admission = admission(10_000, 10_000, 512);
    let mut clients: Vec<_> = (0..64).map(|_| now(&admission, far(1))).collect();
    clients[..10].iter_mut().for_each(Place::logged_in);
    clients.extend((0..20).map(|_| now(&admission, far(1))));
    let waits = later(&admission, far(1));
    drop(waits);
    for _ in 0..1_000 {
        admission.state.lock().earn(far(1).unwrap());
    }
    clients.extend((0..256 - 74).map(|_| now(&admission, far(1))));
    later(&admission, far(1));
    drop(now(&admission, far(2)));
}

#[test]
fn addresses_that_wait_take_turns() {
    run(async {
        let admission = admission(1_000, 1_000, 1);
        let mut first = now(&admission, far(9));
        let mut order = Vec::new();
        let waiting: Vec<_> = [1, 1, 1, 2, 3, 2]
            .map(|from| (from, later(&admission, far(from))))
            .into_iter()
            .collect();
        let (told, mut said) = tokio::sync::mpsc::unbounded_channel();
        for (from, waiting) in waiting {
            let told = told.clone();
            tokio::spawn(async move {
                let mut place = waiting.place().await.unwrap();
                told.send(from).unwrap();
                place.logged_in();
            });
        }
        first.logged_in();
        drop((told, first));
        while let Some(from) = said.recv().await {
            order.push(from);
        }
        assert_eq!(order, [1, 2, 3, 1, 2, 1]);
        assert!(is_empty(&admission));
    });
}

#[test]
fn the_queue_is_bounded_and_one_address_takes_half_of_it() {
    let admission = admission(1_000, 1_000, 2);
    let _places = [now(&admission, far(1)), now(&admission, far(1))];
    let waiting: Vec<_> = (0..8).map(|_| later(&admission, far(1))).collect();
    assert!(admission.admit(far(1)).is_err());
    let others: Vec<_> = (0..8).map(|from| later(&admission, far(10 + from))).collect();
    assert!(admission.admit(far(99)).is_err());
    drop((waiting, others));
    assert_eq!(admission.state.lock().waiting_count, 0);
}

#[test]
fn a_place_that_comes_when_the_client_has_gone_goes_to_the_next() {
    run(async {
        let admission = admission(1_000, 1_000, 1);
        let first = now(&admission, far(1));
        let (gone, next) = (later(&admission, far(1)), later(&admission, far(1)));
        drop(first);
        drop(gone);
        drop(next.place().await.unwrap());
        assert!(is_empty(&admission));
    });
}

#[test]
fn one_address_cannot_take_all_places_and_gives_them_back() {
    let admission = admission(10, 1, 10);
    let first = now(&admission, far(1));
    assert_eq!(admission.admit(far(1)).unwrap_err(), "connections_per_address_max");
    assert!(admission.admit(far(2)).is_ok());
    drop(first);
    assert!(admission.admit(far(1)).is_ok());
    assert!(is_empty(&admission));
}
