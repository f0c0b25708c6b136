//! Queues far deeper than the memory for them: a consumer sees the same as in a shallow one.

use std::time::{Duration, Instant};

use towline_e2e::daemon::Site;
use towline_e2e::deep::{
    Filler, NO_INDEX, ReadMode, Traits, correlation_id, drains_to, fill, in_order, message_id, take,
};
use towline_e2e::{Try, require, wait};

const Q: &str = "DEEP";
/// Twelve times what stays in memory.
const DEEP: u32 = 200_000;
/// Four times what stays in memory.
const LESS_DEEP: u32 = 60_000;
/// What the daemon may occupy, however deep its queues: its code, caches and buffers.
const RESIDENT_BYTES_MAX: u64 = 192 << 20;

#[test]
fn a_deep_queue_gives_by_key_by_selector_browsed_and_in_order_in_bounded_memory() -> Try {
    let site = Site::open()?.with_config(NO_INDEX);
    let daemon = site.start()?;
    fill(daemon.address(), Q, 0..DEEP)?;
    let begun = Instant::now();
    let got = site.runs(&["get", Q, "--correlation-id", &correlation_id(100_000)], 0)?;
    require!(got.trim() == "100000", "by correlation id: {got:?}");
    println!("first get by correlation id: {:?}", begun.elapsed());
    let begun = Instant::now();
    let got = site.runs(&["get", Q, "--correlation-id", &correlation_id(100_001)], 0)?;
    require!(got.trim() == "100001", "by correlation id: {got:?}");
    println!("second get by correlation id: {:?}", begun.elapsed());
    let selector = format!("JMSMessageID = '{}'", message_id(150_001));
    let got = site.runs(&["get", Q, "--selector", &selector], 0)?;
    require!(got.trim() == "150001", "by message id: {got:?}");
    let got = site.runs(&["get", Q, "--selector", "number = 77777", "--wait", "60"], 0)?;
    require!(got.trim() == "77777", "by selector: {got:?}");
    let gone = [100_000, 100_001, 150_001, 77_777];
    let left = || (0..DEEP).filter(|number| !gone.contains(number));
    let browsed = take(daemon.address(), Q, ReadMode::Browse, u32::MAX)?;
    in_order(&browsed, left()).map_err(|error| format!("browse: {error}"))?;
    let resident = daemon.resident_bytes()?;
    println!("resident: {} MiB", resident >> 20);
    require!(resident < RESIDENT_BYTES_MAX, "{resident} bytes in memory");
    drains_to(daemon.address(), Q, left())?;
    daemon.stop()
}

#[test]
fn priorities_and_order_hold_when_most_is_away_and_after_a_kill() -> Try {
    let site = Site::open()?.with_config(NO_INDEX);
    let mut daemon = site.start()?;
    let priority = |number: u32| u8::try_from(number % 10).unwrap_or(0);
    let traits = |number| Traits { priority: Some(priority(number)), ..Traits::default() };
    let mut filler = Filler::open(daemon.address(), Q)?;
    filler.put((0..LESS_DEEP).map(|number| (number, traits(number))))?;
    site.runs(&["image"], 0)?;
    filler.put((LESS_DEEP..LESS_DEEP + 5_000).map(|number| (number, traits(number))))?;
    drop(filler);
    daemon.kill()?;
    daemon = site.start()?;
    let mut wanted: Vec<u32> = (0..LESS_DEEP + 5_000).collect();
    wanted.sort_by_key(|number| 9 - priority(*number));
    drains_to(daemon.address(), Q, wanted.into_iter())?;
    daemon.stop()
}

#[test]
fn what_expired_goes_though_it_is_away_and_the_rest_stays_in_order() -> Try {
    let site = Site::open()?.with_config(NO_INDEX);
    let daemon = site.start()?;
    // Every second one, and all of the second half: pages with some and pages with nothing else.
    let expires = |number: u32| number % 2 == 1 || number > LESS_DEEP / 2;
    let traits = |number| Traits { ttl_ms: expires(number).then_some(2_000), ..Traits::default() };
    let mut filler = Filler::open(daemon.address(), Q)?;
    filler.put((0..LESS_DEEP).map(|number| (number, traits(number))))?;
    let stays = (0..LESS_DEEP).filter(|number| !expires(*number)).count() as u64;
    wait::until_true("what expired is gone", Duration::from_secs(60), || {
        site.queue_number(Q, "depth").is_ok_and(|depth| depth == stays)
    })?;
    drains_to(daemon.address(), Q, (0..LESS_DEEP).filter(|number| !expires(*number)))?;
    daemon.stop()
}

#[test]
fn a_cleared_deep_queue_is_empty_and_can_be_filled_again() -> Try {
    let site = Site::open()?.with_config(NO_INDEX);
    let daemon = site.start()?;
    fill(daemon.address(), Q, 0..LESS_DEEP)?;
    site.runs(&["image"], 0)?;
    wait::until_true("nobody has it open", Duration::from_secs(20), || {
        site.mqsc(&format!("CLEAR QLOCAL({Q})")).is_ok()
    })?;
    require!(site.queue_number(Q, "depth")? == 0, "not empty");
    fill(daemon.address(), Q, 0..LESS_DEEP)?;
    daemon.kill()?;
    let daemon = site.start()?;
    drains_to(daemon.address(), Q, 0..LESS_DEEP)?;
    daemon.stop()
}

#[test]
fn two_consumers_share_a_deep_queue_and_a_browser_sees_it_meanwhile() -> Try {
    let site = Site::open()?.with_config(NO_INDEX);
    let daemon = site.start()?;
    fill(daemon.address(), Q, 0..LESS_DEEP)?;
    let address = daemon.address().to_owned();
    let other = std::thread::spawn(move || take(&address, Q, ReadMode::Get, u32::MAX));
    let address = daemon.address().to_owned();
    let browser = std::thread::spawn(move || take(&address, Q, ReadMode::Browse, u32::MAX));
    let mut all = take(daemon.address(), Q, ReadMode::Get, u32::MAX)?;
    let (Ok(others), Ok(browsed)) = (other.join(), browser.join()) else {
        return Err("a consumer panicked".into());
    };
    let browsed: Vec<u32> = browsed?.iter().filter_map(|text| text.parse().ok()).collect();
    require!(browsed.is_sorted(), "a browser sees messages in order");
    all.extend(others?);
    let mut numbers: Vec<u32> = all.iter().filter_map(|text| text.parse().ok()).collect();
    numbers.sort_unstable();
    require!(numbers.into_iter().eq(0..LESS_DEEP), "each message once");
    daemon.stop()
}
