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

/// The copy had no batch of its leader's term: the taker lost its vote, the third one had lost its
/// disk, and the power of the leader was cut.
#[test]
fn one_that_is_given_a_copy_by_a_leader_that_was_just_elected_keeps_its_vote() {
    assert_eq!(run(9_283_544).failure, None);
}

/// The bit was of a header, and the batch passed for another one.
#[test]
fn a_replica_that_reads_a_damaged_batch_back_does_not_take_it_for_another_one() {
    assert_eq!(run(9_013_235).failure, None);
}
