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

/// A group that had been promoted reported where it parted from the live one's log, with a message
/// of its own clients counted: 64 that were lost were reported as 63.
#[test]
fn what_is_at_risk_is_no_less_by_what_the_other_group_put_since() {
    assert_eq!(run(45).failure, None);
}

/// Both groups were promoted behind one batch. The one that returned took a switch back to it for
/// past, where the mark of its own tail was the greater one: none was live.
#[test]
fn a_group_that_returned_becomes_live_again_with_the_next_switch() {
    for seed in [15, 65, 119] {
        assert_eq!(run(seed).failure, None, "seed {seed}");
    }
}

/// One that answered where it stands held what says where clients are served, and waited for what
/// another one held that was about to say so.
#[test]
fn an_instance_that_says_where_it_stands_holds_nothing_that_others_wait_for() {
    assert_eq!(run(258).failure, None);
}

/// A fail-over was ordered at an instance that had not applied the last switch. It alone was
/// marked, and took nothing of the live group any more.
#[test]
fn a_fail_over_that_no_other_member_takes_marks_none() {
    assert_eq!(run(330).failure, None);
}

/// An instance that had the last batch of a switch, and had not applied it, was ordered to return
/// by one that lacked it, and cut it off: the third one reported it, and alone had it.
#[test]
fn a_return_cuts_off_no_record_of_the_history_that_it_follows() {
    assert_eq!(run(1307).failure, None);
}

/// Of three new instances one had a copy when a fail-over was ordered. The two others are a
/// majority: they would have elected one of them, and a leader without a history serves no client.
#[test]
fn a_group_of_which_a_majority_has_no_history_is_not_promoted() {
    assert_eq!(run(1182).failure, None);
}

/// A log was cut back behind an image, and its queues were read from an older one, whose pages had
/// been reused since: the process halted at the first of them.
#[test]
fn a_log_that_is_cut_back_behind_an_image_uses_no_page_of_an_older_one() {
    assert_eq!(run(1632).failure, None);
}

/// One instance had all pages of a copy when its stream broke, and another one took the same copy
/// from its beginning: pages that were held no more were read, and the live group halted.
#[test]
fn a_copy_that_was_held_for_one_instance_is_not_given_to_another_one_that_has_less() {
    assert_eq!(run(9463).failure, None);
}

/// Two instances had returned by orders of their own. The third one could carry out neither, and
/// took the one, and the other one again, for ever.
#[test]
fn an_instance_that_can_carry_out_none_of_two_orders_stays() {
    assert_eq!(run(1537).failure, None);
}

/// An instance took the order of those that had returned, and its start found that its log cannot
/// be cut back: its folder is emptied, as it says, while the others follow already.
#[test]
fn an_instance_whose_log_cannot_be_cut_back_is_emptied_alone() {
    for seed in [1185, 2391] {
        assert_eq!(run(seed).failure, None, "seed {seed}");
    }
}

/// A group that was live and had not heard yet of the one that took over served for a moment:
/// operators took its history, which they had never seen, for the newest one.
#[test]
fn operators_know_the_newest_history_whoever_serves_last() {
    assert_eq!(run(1879).failure, None);
}
