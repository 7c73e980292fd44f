//! The budget of memory: never exceeded, in order, fair between pulls.

use super::*;
use futures::FutureExt as _;
use proptest::prelude::*;

fn used(budget: &MemoryBudget) -> usize {
    budget.lock().used
}

#[test]
fn the_biggest_of_the_pull_that_holds_least_is_next() {
    let budget = MemoryBudget::new(400);
    let (one, two) = (budget.pull(), budget.pull());
    let first = budget.reserve(one, 5, 300).now_or_never().expect("all is free");
    let mut waiting: Vec<_> = [(one, 900), (one, 10), (two, 1), (two, 7), (one, 800)]
        .map(|(pull, size)| Box::pin(budget.reserve(pull, size, 150)))
        .into();
    assert!(waiting.iter_mut().all(|w| w.now_or_never().is_none()), "nothing is free");
    drop(first);
    // No pull holds memory: the biggest layer is served first, then the bigger layer of the other pull.
    let mut served = Vec::new();
    let mut order = Vec::new();
    while order.len() < waiting.len() {
        for (n, w) in waiting.iter_mut().enumerate() {
            if !order.contains(&n)
                && let Some(share) = w.now_or_never()
            {
                order.push(n);
                served.push(share);
            }
        }
        served.remove(0);
    }
    assert_eq!(order, [0, 3, 4, 2, 1]);
    drop(served);
    assert_eq!(used(&budget), 0);
}

#[test]
fn spare_memory_is_not_lent_while_a_reservation_waits() {
    let budget = MemoryBudget::new(400);
    let pull = budget.pull();
    let extra = budget.try_take(200).expect("spare");
    assert!(budget.try_take(101).is_none(), "a quarter is for windows");
    let mut least = Box::pin(budget.reserve(pull, 1, 200));
    assert!((&mut least).now_or_never().is_none() && budget.is_short());
    assert!(budget.try_take(1).is_none());
    drop(extra);
    let least = least.now_or_never().expect("its turn");
    assert!(!budget.is_short() && budget.try_take(100).is_some());
    drop(least);
    assert!(budget.reserve(pull, 1, usize::MAX).now_or_never().is_some(), "nobody waits for what can never be");
}

#[test]
fn windows_wait_for_each_other_and_never_for_layers() {
    let budget = MemoryBudget::new(400);
    let pull = budget.pull();
    let _least = budget.reserve(pull, 1, 300).now_or_never().expect("free");
    let small = budget.window(100).now_or_never().expect("there is a part for it");
    let mut huge = Box::pin(budget.window(1000));
    let mut second = Box::pin(budget.window(50));
    assert!((&mut huge).now_or_never().is_none() && (&mut second).now_or_never().is_none());
    drop(small);
    let huge = huge.now_or_never().expect("alone");
    assert!((&mut second).now_or_never().is_none());
    drop(huge);
    assert!(second.now_or_never().is_some());
}

#[test]
fn who_leaves_the_line_lets_the_next_in() {
    let budget = MemoryBudget::new(400);
    let pull = budget.pull();
    let _held = budget.reserve(pull, 9, 200).now_or_never().expect("free");
    let mut big = Box::pin(budget.reserve(pull, 8, 300));
    let mut small = Box::pin(budget.reserve(pull, 7, 100));
    assert!((&mut big).now_or_never().is_none() && (&mut small).now_or_never().is_none());
    drop(big);
    assert!(small.now_or_never().is_some());
    assert_eq!(used(&budget), 200);
}

#[test]
fn buffers_are_kept_while_there_is_room_and_work() {
    let budget = MemoryBudget::new(BUFFER * 8);
    let share = budget.reserve(budget.pull(), 1, BUFFER * 2).now_or_never().expect("free");
    let buffers = vec![budget.buffer(), budget.buffer()];
    assert_eq!(buffers[0].len(), BUFFER);
    let place = buffers[1].as_ptr();
    budget.keep(buffers);
    let again = budget.buffer();
    assert_eq!(again.as_ptr(), place, "it is used again");
    drop(again);
    budget.keep(vec![vec![0; BUFFER]; 7]);
    let extra = budget.try_take(BUFFER * 4).expect("spare");
    assert_eq!(budget.lock().buffers.len(), 2, "what is not counted makes room");
    drop((share, extra));
    assert!(budget.lock().buffers.is_empty(), "nobody works");
}

/// Lets the others go on.
async fn turns(n: u64) {
    for _ in 0..n {
        tokio::task::yield_now().await;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Jobs of several pulls, each taking its least, then extra if there is, then a window for some, some given up in the
    /// line: all end, and never more is used than there is, except by one window that is too big for any budget.
    #[test]
    fn the_budget_is_never_exceeded_and_every_waiter_ends(
        total in 64_usize..400,
        jobs in proptest::collection::vec((0_u64..4, 1_u64..1000, 1_usize..300, 0_usize..200, 0_usize..80, any::<bool>()), 1..40),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("starts");
        let budget = MemoryBudget::new(total);
        let pulls: Vec<PullAccount> = (0..4).map(|_| budget.pull()).collect();
        let most = runtime.block_on(async {
            let most = AtomicU64::new(0);
            let note = || most.fetch_max(used(&budget) as u64, Ordering::Relaxed);
            let runs = jobs.iter().enumerate().map(|(n, &(pull, size, least, extra, window, leaves))| {
                let (budget, pulls, note) = (&budget, &pulls, &note);
                async move {
                    let pause = || turns(1 + size % 7);
                    let reserve = budget.reserve(pulls[usize::try_from(pull).expect("small")], size, least);
                    let share = if leaves && n % 3 == 0 {
                        tokio::select! {
                            biased;
                            share = reserve => share,
                            () = turns(size % 5) => return,
                        }
                    } else {
                        reserve.await
                    };
                    note();
                    let extra = budget.try_take(extra);
                    note();
                    pause().await;
                    if window > 0 {
                        let window = budget.window(window.min(total / FOR_WINDOWS)).await;
                        note();
                        pause().await;
                        drop(window);
                    }
                    drop((share, extra));
                }
            });
            futures::future::join_all(runs).await;
            most.into_inner()
        });
        prop_assert!(most <= total as u64, "{most} of {total}");
        prop_assert_eq!(used(&budget), 0);
        prop_assert!(budget.lock().waiting.is_empty() && budget.lock().holds.is_empty());
    }
}
