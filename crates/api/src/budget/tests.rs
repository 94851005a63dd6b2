use proptest::prelude::*;

use super::*;

const STEP: usize = MEMORY_STEP_BYTES as usize;

fn budget(steps: u64, key_steps: u64) -> Budget {
    Budget::new(steps * MEMORY_STEP_BYTES, key_steps * MEMORY_STEP_BYTES)
}

fn of(budget: &Budget, key: &str) -> Share {
    budget.of(key, budget.0.key_bytes_max)
}

fn taken(budget: &Budget) -> usize {
    budget.taken_bytes() as usize
}

#[test]
fn a_small_call_takes_nothing_from_the_others() {
    let budget = budget(0, 0);
    let share = of(&budget, "a");
    assert!(share.try_grow(STEP - 1));
    assert!(share.try_grow(1));
    assert!(share.is_free());
    assert!(!share.try_grow(1));
    assert!(share.refusal().is_none(), "what can be left out refuses nothing");
    assert_eq!(share.grow(1).unwrap_err().code, Code::LimitReached);
    assert!(share.refusal().is_some());
}

#[test]
fn what_is_taken_comes_back_with_the_last_who_holds_it() {
    let budget = budget(2, 2);
    let (first, second) = (of(&budget, "a"), of(&budget, "a"));
    assert!(first.try_grow(2 * STEP + 1));
    assert_eq!(taken(&budget), 2 * STEP);
    assert!(!second.try_grow(STEP + 1), "there is nothing left");
    assert!(second.try_grow(STEP), "what is refused takes nothing");
    let copy = first.clone();
    drop(first);
    assert!(!second.try_grow(1));
    drop(copy);
    assert!(second.try_grow(1));
    drop(second);
    assert_eq!(taken(&budget), 0);
}

#[test]
fn what_is_released_is_there_for_others() {
    let budget = budget(1, 1);
    let (share, other) = (of(&budget, "a"), of(&budget, "b"));
    for _ in 0..10 {
        let portion = share.portion(2 * STEP).unwrap();
        assert!(!other.try_grow(2 * STEP));
        drop(portion);
        assert!(other.try_grow(2 * STEP));
        other.shrink(2 * STEP);
    }
    assert_eq!(taken(&budget), 0);
    assert!(!share.try_grow(usize::MAX));
}

#[test]
fn a_key_leaves_room_for_others_and_learns_whose_was_used_up() {
    let budget = budget(3, 2);
    let (greedy, neighbour) = (of(&budget, "a"), of(&budget, "b"));
    assert!(greedy.try_grow(3 * STEP));
    assert_eq!(greedy.take(1), Err(Exceeded::Key { limit: 2 * MEMORY_STEP_BYTES }));
    assert_eq!(of(&budget, "a").take(STEP + 1), greedy.take(1), "of all its calls together");
    assert!(neighbour.try_grow(2 * STEP));
    assert_eq!(neighbour.take(1), Err(Exceeded::Bridge { limit: 3 * MEMORY_STEP_BYTES }));
}

#[test]
fn one_call_of_a_key_has_half_of_its_room_to_itself() {
    let budget = budget(100, 8);
    let calls: Vec<_> = (0..9).map(|_| of(&budget, "a")).collect();
    let mut refused = 0;
    // Each of them by turns: together they want nine times as much as there is.
    for _ in 0..4 {
        refused += calls.iter().filter(|call| !call.try_grow(STEP + 1)).count();
    }
    assert!(refused > 0);
    assert!(calls[0].try_grow(STEP - 4), "the first one was never refused");
    assert_eq!(calls[0].0.account.lock().unwrap().taken_bytes, 4 * MEMORY_STEP_BYTES);
    // When it has ended, another one has that.
    drop(calls);
    let (small, large) = (of(&budget, "a"), of(&budget, "a"));
    assert!(small.try_grow(STEP + 1) && large.try_grow(5 * STEP) && !large.try_grow(STEP));
    drop(small);
    assert!(large.try_grow(4 * STEP) && !large.try_grow(1));
}

#[test]
fn who_may_do_everything_may_use_all() {
    let budget = budget(4, 1);
    assert!(budget.share(&Caller::Local).try_grow(5 * STEP));
    assert!(!budget.share(&Caller::Anybody).try_grow(5 * STEP));
}

#[test]
fn a_key_without_calls_is_forgotten() {
    let budget = budget(1, 1);
    let (first, second) = (of(&budget, "a"), of(&budget, "a"));
    drop(first);
    assert_eq!(budget.0.keys.lock().unwrap().len(), 1);
    drop(second);
    assert!(budget.0.keys.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_call_reports_what_had_no_room() {
    let share = Share::within(0);
    assert!(!share.try_keep(&vec![0; STEP]));
    let problem = share.exceeded().await;
    assert_eq!(problem.code, Code::LimitReached);
    assert!(problem.retry_after.is_some());
}

proptest! {
    #[test]
    fn a_text_is_counted_as_it_is_written(text in any::<String>()) {
        let written = serde_json::to_string(&text).unwrap();
        prop_assert_eq!(json_bytes(text.as_bytes()) + 2, written.len());
    }

    #[test]
    fn what_is_no_text_is_counted_for_no_less_than_it_takes(bytes in any::<Vec<u8>>()) {
        let lossy = String::from_utf8_lossy(&bytes);
        let base64 = bytes.len().div_ceil(3) * 4;
        let here = bytes.len() + lossy.len() + base64;
        let there = serde_json::to_string(&lossy).unwrap().len() + base64;
        let counted = bytes.len() + json_bytes(&bytes) + unreadable_bytes(&bytes);
        prop_assert!(counted + 2 >= here + there, "{counted} for {here} and {there}");
    }

    /// Calls of three keys that grow, shrink, lend out portions and end in any order.
    #[test]
    fn whatever_calls_do_the_sums_hold_and_all_comes_back(
        acts in prop::collection::vec((0usize..6, 0usize..5, 0usize..4 * STEP), 0..200),
    ) {
        let budget = budget(20, 8);
        let label = |call: usize| ["a", "b", "c"][call % 3];
        let mut calls: Vec<_> = (0..6).map(|call| Some(of(&budget, label(call)))).collect();
        let mut portions = Vec::new();
        for (call, act, bytes) in acts {
            let share = calls[call].get_or_insert_with(|| of(&budget, label(call))).clone();
            match act {
                0 => drop(share.try_grow(bytes)),
                1 => drop(share.grow(bytes)),
                2 => {
                    let used = share.0.account.lock().unwrap().used_bytes;
                    share.shrink(bytes.min(used as usize));
                }
                3 => portions.extend(share.portion(bytes).ok()),
                _ => {
                    calls[call] = None;
                    if bytes % 2 == 0 {
                        portions.pop();
                    }
                }
            }
            drop(share);
            let keys = budget.0.keys.lock().unwrap();
            let of_keys = keys.values().filter_map(Weak::upgrade).collect::<Vec<_>>();
            drop(keys);
            let sum: u64 = of_keys.iter().map(|key| key.taken().bytes).sum();
            prop_assert_eq!(sum, budget.taken_bytes());
            prop_assert!(sum <= budget.bytes_max());
            for key in of_keys {
                let taken = key.taken();
                prop_assert!(taken.bytes <= key.bytes_max);
                prop_assert!(taken.first.as_ref().is_none_or(|first| first.bytes <= taken.bytes));
            }
        }
        drop((calls, portions));
        prop_assert_eq!(budget.taken_bytes(), 0);
        prop_assert!(budget.0.keys.lock().unwrap().is_empty());
    }
}

#[test]
fn each_byte_is_counted_wherever_it_stands_among_others() {
    for byte in 0..=u8::MAX {
        for at in 0..19 {
            let mut bytes = [b'a'; 19];
            bytes[at] = byte;
            let counted = 18 + usize::from(ESCAPED_BYTES[usize::from(byte)]);
            assert_eq!(json_bytes(&bytes), counted, "{byte} at {at}");
        }
    }
}
