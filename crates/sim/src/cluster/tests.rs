use super::run;

#[test]
fn a_few_seeds_break_no_rule() {
    for seed in 0..3 {
        let report = run(seed);
        assert_eq!(report.failure, None, "seed {seed}");
    }
}

/// Messages that are in memory only, and that no client gets, fill the memory: a refusal is an
/// answer.
#[test]
fn a_client_whose_puts_are_refused_because_memory_is_full_is_served() {
    assert_eq!(run(7_001_224).failure, None);
}
