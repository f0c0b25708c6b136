use super::run;

#[test]
fn a_few_seeds_break_no_rule() {
    for seed in 0..4 {
        let report = run(seed);
        assert_eq!(report.failure, None, "seed {seed}");
    }
}
