use super::*;

#[test]
fn news_that_is_posted_while_the_lock_is_held_is_taken_by_the_holder() {
    let lock = DelegationLock::new(0);
    let held = lock.lock();
    lock.post();
    // As the thread that posts: the lock is held, so it goes on without the news being taken.
    lock.take_posted(|_| panic!("the lock is held"), |()| ());
    drop(held);
    lock.take_posted(|value| *value += 1, |()| ());
    assert_eq!(*lock.lock(), 1);
}

#[test]
fn nothing_is_taken_when_nothing_was_posted() {
    let lock = DelegationLock::new(0);
    lock.take_posted(|_| panic!("nothing was posted"), |()| ());
    lock.post();
    let mut runs = 0;
    lock.take_posted(|_| (), |()| runs += 1);
    assert_eq!(runs, 1, "one look takes all that was posted");
    lock.take_posted(|_| panic!("it was taken"), |()| ());
}

#[test]
fn what_is_posted_while_news_is_taken_is_taken_too() {
    let lock = DelegationLock::new(0);
    lock.post();
    lock.take_posted(
        |value| {
            *value += 1;
            if *value < 3 {
                lock.post();
            }
        },
        |()| (),
    );
    assert_eq!(*lock.lock(), 3);
}

#[test]
fn the_lock_is_free_when_the_consequences_are_carried_out() {
    let lock = DelegationLock::new(7);
    lock.post();
    let mut seen = None;
    lock.take_posted(|value| *value, |value| seen = Some((value, lock.try_lock().is_some())));
    assert_eq!(seen, Some((7, true)));
}
