use super::{crash_seed, run, run_crash, run_one, run_one_crash};

/// The seeds of a test, or the one of the environment.
fn seeds(all: impl Iterator<Item = u64>) -> Vec<u64> {
    let given = std::env::var("SIM_SEED").ok().and_then(|seed| seed.parse().ok());
    given.map_or_else(|| all.collect(), |seed| vec![seed])
}

#[test]
fn a_queue_manager_that_is_no_group_breaks_no_rule() {
    for seed in seeds(0..6) {
        println!("SIM_SEED={seed}");
        let report = run(seed);
        assert_eq!(report.failure, None, "seed {seed}");
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    assert_eq!(run(4), run(4));
}

#[test]
fn a_crash_at_an_operation_of_a_file_loses_nothing() {
    for load in 0..2 {
        let operations = run_crash(crash_seed(load, 0, 0)).images;
        let crashes = (1..=operations).step_by(331);
        let all = crashes.map(|operation| crash_seed(load, operation, operation));
        for seed in seeds(all) {
            println!("SIM_SEED={seed}");
            assert_eq!(run_crash(seed).failure, None, "seed {seed}");
        }
    }
}

/// The second time made it larger, so that a start was refused without cause.
#[test]
fn a_disk_that_is_filled_twice_stays_full() {
    assert_eq!(run(9_032_515).failure, None);
}

#[test]
fn a_group_of_one_instance_breaks_no_rule() {
    for seed in seeds(0..6) {
        println!("SIM_SEED={seed}");
        let report = run_one(seed);
        assert_eq!(report.failure, None, "seed {seed}");
        assert!(report.activations > 0 && report.acknowledged > 0, "seed {seed}: {report:?}");
    }
}

#[test]
fn a_crash_at_an_operation_of_a_file_loses_nothing_of_a_group_of_one_instance() {
    let operations = run_one_crash(crash_seed(0, 0, 0)).images;
    let crashes = (1..=operations).step_by(211);
    let all = crashes.map(|operation| crash_seed(0, operation, operation));
    for seed in seeds(all) {
        println!("SIM_SEED={seed}");
        assert_eq!(run_one_crash(seed).failure, None, "seed {seed}");
    }
}
