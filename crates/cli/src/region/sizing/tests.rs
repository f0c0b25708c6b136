//! The formulas, and what they take for the bytes of the log.

use bytes::Bytes;
use towline_core::record::encode;
use towline_core::{Body, Fact, Header, Message, MessageSequence, QueueId};
use towline_types::Time;

use super::*;

/// 1,000 messages a second of 2 KiB over 50 Mbit/s and 40 ms.
fn sizing() -> LinkSizing {
    LinkSizing {
        rate: 1_000.0,
        size: 2_048.0,
        removed: 1.0,
        rtt_s: 0.04,
        bits_per_s: 50e6,
        outage_s: 600.0,
        compress: 1.0,
        write_s: 0.001,
        window_bytes: 16.0 * 1024.0 * 1024.0,
        log_space_bytes: None,
        data_bytes: None,
    }
}

fn near(value: f64, wanted: f64) {
    assert!((value - wanted).abs() <= 1e-6 * wanted.abs(), "{value}, not {wanted}");
}

/// Length of a record in the log with what stands before it: its own length, shifted by two, in
/// groups of seven bits (docs/internals/log-format.md).
fn record_bytes(fact: &Fact) -> f64 {
    let mut record = Vec::new();
    encode(fact, true, &mut record);
    let bits = usize::BITS - (record.len() << 2).leading_zeros();
    (record.len() + bits.div_ceil(7) as usize) as f64
}

#[test]
fn puts_and_gets_take_in_the_log_what_is_counted() {
    let now = Time(1_900_000_000_000_000);
    let (queue, sequence) = (QueueId(10_000), MessageSequence(10_000_000_000));
    let put = |header: Header, size: usize| {
        let body = Body::Incoming(Bytes::from(vec![7; size]).into());
        let message = Box::new(Message { header, body, backout_count: 0, dead_letter: None });
        // The check behind each body has seven bytes.
        record_bytes(&Fact::Put { queue, sequence, carried: false, message }) + 7.0
    };
    let plain = Header { persistent: true, put_at: now, ..Header::default() };
    let full = Header {
        expires_at: Some(Time(now.0 + 86_400_000_000)),
        correlation_hash: 1,
        message_id_hash: 1,
        ..plain
    };
    for size in [100, 2_048, 100_000] {
        let most = put(full, size) - size as f64;
        assert!((PUT_OVERHEAD_BYTES - 4.0..=PUT_OVERHEAD_BYTES).contains(&most), "{size}: {most}");
        assert!(put(plain, size) - size as f64 >= PUT_OVERHEAD_BYTES / 2.0);
    }
    let get = record_bytes(&Fact::Got { queue, sequence });
    assert!((GET_BYTES - 4.0..=GET_BYTES).contains(&get), "{get}");
}

#[test]
fn log_is_written_in_whole_blocks_and_sent_without_padding() {
    let forecast = sizing().forecast();
    // 2,000 commits, but a write each millisecond: two records of 2,100 and 12 bytes in a batch.
    near(forecast.batches_per_s, 1_000.0);
    near(forecast.log_bytes_per_s, 1_000.0 * 4_096.0);
    let on_line = (2_112.0 + 80.0) * 1_500.0 / 1_448.0 * 16_406.0 / 16_384.0;
    near(forecast.line_bits_per_s, on_line * 8_000.0);
    near(forecast.share, on_line * 8_000.0 / 50e6);
    // Faster, messages share a batch. Ten: 21,160 bytes in 6 blocks.
    let fast = LinkSizing { rate: 10_000.0, ..sizing() }.forecast();
    near(fast.log_bytes_per_s, 1_000.0 * 6.0 * 4_096.0);
    // Two that fill two blocks but for 2 bytes: batches differ, so half a block is padding.
    let full = LinkSizing { rate: 2_000.0, size: 4_011.0, ..sizing() }.forecast();
    near(full.log_bytes_per_s, 1_000.0 * (8_190.0 + 2_048.0));
    // A batch holds a megabyte.
    let long = LinkSizing { size: 4_194_304.0, rate: 100.0, ..sizing() }.forecast();
    near(long.batches_per_s, 100.0 * (4_194_304.0 + 64.0) / 1_048_576.0);
}

#[test]
fn at_risk_is_what_was_committed_during_send_way_and_write() {
    let sizing = sizing();
    let forecast = sizing.forecast();
    let [truly, known] = forecast.at_risk.unwrap();
    let (batch_s, share) = (forecast.share / 1_000.0, forecast.share);
    near(truly.age_s, batch_s + batch_s * share / (2.0 - 2.0 * share) + 0.020 + 0.001);
    near(known.age_s, truly.age_s + 0.020);
    near(truly.bytes, truly.age_s * forecast.log_bytes_per_s);
    near(known.puts, known.age_s * 1_000.0);
    near(known.removals, known.puts);
    let kept = LinkSizing { removed: 0.25, ..sizing }.forecast();
    let [_, known] = kept.at_risk.unwrap();
    near(known.removals, known.puts / 4.0);
}

#[test]
fn an_outage_needs_space_for_all_that_is_written_in_it_and_drains_with_what_is_spare() {
    let forecast = sizing().forecast();
    let [_, known] = forecast.at_risk.unwrap();
    let backlog = (600.0 + known.age_s) * forecast.log_bytes_per_s;
    near(forecast.after_outage.bytes, backlog);
    let extent = 67_108_864.0;
    near(forecast.outage_space_bytes, ((backlog / extent).ceil() + 1.0) * extent);
    near(forecast.window_bytes, forecast.log_bytes_per_s / forecast.share * 0.041);
    let spare = forecast.log_bytes_per_s / forecast.share - forecast.log_bytes_per_s;
    near(forecast.drain_s.unwrap(), backlog / spare);
}

#[test]
fn a_log_space_that_is_given_is_compared() {
    let needed = sizing().forecast().outage_space_bytes;
    let enough = LinkSizing { log_space_bytes: Some(needed), ..sizing() }.forecast();
    assert!(enough.shortages.is_empty() && enough.outage_max_s.unwrap() >= 600.0);
    let less = LinkSizing { log_space_bytes: Some(needed - 1.0), ..sizing() }.forecast();
    assert_eq!(less.shortages, [Shortage::SpaceForOutage]);
    let half = LinkSizing { log_space_bytes: Some(needed / 2.0), ..sizing() }.forecast();
    let lasts = LinkSizing { outage_s: half.outage_max_s.unwrap(), ..sizing() }.forecast();
    assert!(lasts.outage_space_bytes <= needed / 2.0 + 2.0, "the outage that it lasts fits");
}

#[test]
fn a_rebase_takes_the_copy_and_the_log_written_meanwhile() {
    let forecast = LinkSizing { data_bytes: Some(10e9), ..sizing() }.forecast();
    let rebase = forecast.rebase.unwrap();
    let factor = 1_500.0 / 1_448.0 * 16_406.0 / 16_384.0;
    near(rebase.copy_s, 10e9 * factor * 8.0 / 50e6);
    near(rebase.time_s, rebase.copy_s / (1.0 - forecast.share));
    assert!(rebase.log_space_bytes >= rebase.copy_s * forecast.log_bytes_per_s);
    let space = Some(forecast.outage_space_bytes);
    let little =
        LinkSizing { data_bytes: Some(10e9), log_space_bytes: space, ..sizing() }.forecast();
    assert_eq!(little.shortages, [Shortage::SpaceForRebase], "it would be begun again and again");
}

#[test]
fn what_cannot_be_carried_is_said() {
    let thin = LinkSizing { bits_per_s: 18e6, ..sizing() }.forecast();
    assert_eq!((thin.shortages, thin.at_risk, thin.drain_s), (vec![Shortage::Line], None, None));
    let tight = LinkSizing { bits_per_s: 20e6, ..sizing() }.forecast();
    assert_eq!((tight.shortages, tight.warnings), (vec![], vec![LinkWarning::Tight]));
    // 41 ms of 4,096,000 bytes a second.
    let window = LinkSizing { window_bytes: 160_000.0, ..sizing() }.forecast();
    assert_eq!(window.shortages, [Shortage::Window]);
    assert_eq!(window.warnings, [LinkWarning::WindowBelowLine]);
    let small = LinkSizing { window_bytes: 300_000.0, ..sizing() }.forecast();
    assert_eq!((small.shortages, small.warnings), (vec![], vec![LinkWarning::WindowBelowLine]));
    near(small.carried_bytes_per_s, 300_000.0 / 0.041);
    let squeezed = LinkSizing { bits_per_s: 18e6, compress: 2.0, ..sizing() }.forecast();
    assert!(squeezed.shortages.is_empty(), "what compresses by half takes half of the line");
}

#[test]
fn the_guide_names_the_numbers_that_are_used() {
    let guide = include_str!("../../../../../docs/guides/size-the-link-and-the-log.md");
    let guide = guide.split_whitespace().collect::<Vec<_>>().join(" ");
    for words in [
        format!("at most {PUT_OVERHEAD_BYTES} bytes, a get at most {GET_BYTES}."),
        format!("rate x (size + {PUT_OVERHEAD_BYTES} + removed x {GET_BYTES})"),
        format!("blocks(records / batches + {BATCH_HEADER_BYTES})"),
        format!("(records / batches + {BATCH_ON_LINE_BYTES}) / compress x {LINE_FACTOR:.4} x 8"),
        format!("data / compress x {LINE_FACTOR:.4} x 8 / bandwidth"),
        format!("headers add {:.1} %", (LINE_FACTOR - 1.0) * 100.0),
        format!("Above {} % of the line", TIGHT_SHARE * 100.0),
        format!("whole extents ({} MiB)", EXTENT_BYTES / 1_048_576.0),
        format!("whole blocks of {} KiB", BLOCK_BYTES / 1_024.0),
    ] {
        assert!(guide.contains(&words), "{words}");
    }
}
