//! Futures that are dropped at random.

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use super::*;
use crate::queue::fair_share::FairShare;
use crate::queue::tests::futures::Task;

#[derive(Clone)]
struct Slots {
    free: Rc<Cell<usize>>,
    queues: Test,
    max_concurrent: usize,
}

impl Slots {
    fn take(&self) -> Option<Held> {
        self.free.set(self.free.get().checked_sub(1)?);
        Some(Held(self.clone()))
    }

    /// Waits for its turn and queries, as often as it is refused.
    async fn acquire(self) -> Held {
        let mut place = self.queues.place(NAME);
        if !place.query_first(self.max_concurrent).await {
            poll_again().await;
            place.refused(Some(HOUR));
            place.join(0, self.max_concurrent, PATIENT);
        }
        loop {
            place.turn(None, None).await;
            // The query is on its way, and so is its answer.
            poll_again().await;
            let held = self.take();
            poll_again().await;
            if let Some(held) = held {
                place.granted();
                return held;
            }
            place.refused(Some(HOUR));
            if place.is_first() {
                poll_again().await;
                place.join(0, self.max_concurrent, PATIENT);
            }
        }
    }
}

struct Held(Slots);

impl Drop for Held {
    fn drop(&mut self) {
        let Slots { free, queues, .. } = &self.0;
        free.set(free.get() + 1);
        queues.notify_released(NAME, 1, None);
    }
}

async fn poll_again() {
    let mut polled = false;
    poll_fn(|context| {
        if std::mem::replace(&mut polled, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// No time passes for the waiters. So when a release is lost, the slot stays free.
#[test]
fn no_release_is_lost_when_futures_are_dropped_at_random() {
    for seed in 0..300 {
        let mut random = fastrand::Rng::with_seed(seed);
        let queues = queues();
        for share in &mut queues.lock().shares {
            // Nothing is yielded to other processes.
            *share = FairShare::never();
        }
        let slots = Slots {
            free: Rc::new(Cell::new(1)),
            queues: Arc::clone(&queues),
            max_concurrent: random.usize(1..4),
        };
        let mut tasks: Vec<Task<Held>> = Vec::new();
        let mut held = Vec::new();
        for step in 0..1000 {
            match random.u8(0..20) {
                0..4 if tasks.len() < 8 => tasks.push(Task::new(slots.clone().acquire())),
                4..6 if !tasks.is_empty() => drop(tasks.swap_remove(random.usize(0..tasks.len()))),
                6..8 if !held.is_empty() => drop(held.pop()),
                _ => {
                    let runnable = (0..tasks.len()).filter(|task| tasks[*task].is_runnable());
                    let Some(task) = random.choice(runnable.collect::<Vec<_>>()) else {
                        continue;
                    };
                    if let Poll::Ready(slot) = tasks[task].poll() {
                        held.push(slot);
                        drop(tasks.swap_remove(task));
                    }
                }
            }
            let lost = slots.free.get() > 0 && !tasks.is_empty();
            assert!(
                !lost || tasks.iter().any(Task::is_runnable),
                "seed {seed}, step {step}: a slot is free, and nobody queries"
            );
        }
        drop((tasks, held));
        assert_eq!(slots.free.get(), 1);
        assert_empty(&queues);
    }
}
