use super::run;

/// Groups of 1 and 1, 3 and 1, 3 and 3, 1 and 3 instances.
#[test]
fn a_few_seeds_break_no_rule() {
    for seed in 0..4 {
        let report = run(seed);
        assert_eq!(report.failure, None, "seed {seed}");
    }
}

/// The last batch of a switch came over a link of the group that was live, and what that sent
/// behind it was refused: the group that is live now called itself partitioned, and shipped.
#[test]
fn what_is_refused_on_the_last_link_of_a_switch_is_no_partition() {
    assert_eq!(run(5).failure, None);
}
