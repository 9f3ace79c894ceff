//! The crate's queues of waiters under all short interleavings of their threads, with up to three preemptions each: no release is
//! lost whoever waits, leaves, is stopped or runs out of time meanwhile. Time stands still unless a test lets it pass, so that a
//! waiter that is not called waits for ever, which `loom` reports. And each mistake in a copy of the source is found.

#![allow(missing_docs, reason = "the source of the crate has its own")]

use std::env;
use std::process::Command;

mod sync {
    pub(crate) use std::sync::Arc;

    pub(crate) use loom::sync::{Mutex, MutexGuard};
}

/// How the queues wait: in place of the crate's module of the same name.
#[allow(
    dead_code,
    unexpected_cfgs,
    unreachable_pub,
    unused_qualifications,
    clippy::pedantic,
    reason = "some of it are copies of the crate's source"
)]
mod rt {
    use std::cell::{Cell, RefCell};
    use std::future::poll_fn;
    use std::sync::LazyLock;
    use std::task::{Poll, Waker};
    use std::time::{Duration, Instant};

    use crate::sync::{Mutex, MutexGuard};

    include!(concat!(env!("OUT_DIR"), "/rt.rs"));

    pub(crate) enum Polled<T> {
        Ready(T),
        Pending { until: Option<Instant> },
    }

    pub(crate) async fn wait<T>(mut poll: impl FnMut(&Waker) -> Polled<T> + Send) -> T {
        poll_fn(|context| match poll(context.waker()) {
            Polled::Ready(value) => Poll::Ready(value),
            Polled::Pending { until } => {
                if let Some(until) = until {
                    let waker = context.waker().clone();
                    alarm::call_at(until, move || waker.wake());
                }
                Poll::Pending
            }
        })
        .await
    }

    pub(crate) async fn blocks() -> bool {
        false
    }

    pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().expect("no panic")
    }

    pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
        loom::future::block_on(future)
    }

    pub(crate) async fn pause(_: Duration) {
        unreachable!("nothing pauses");
    }

    type Call = Box<dyn FnOnce() + Send>;

    static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

    // All threads of an execution run on one thread of the system.
    thread_local! {
        static PASSED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
        static CALLS: RefCell<Vec<(Instant, Call)>> = const { RefCell::new(Vec::new()) };
    }

    pub(crate) fn now() -> Instant {
        *BEGIN + PASSED.get()
    }

    /// Time passes until the next call, which is made, if that comes within a second. In no test is a waiter to be called later.
    pub(crate) fn pass() {
        let end = *BEGIN + Duration::from_secs(1);
        let next = CALLS.with_borrow_mut(|calls| {
            let times = calls.iter().enumerate();
            let times = times.filter(|(_, (time, _))| *time <= end);
            let next = times
                .min_by_key(|(_, (time, _))| *time)
                .map(|(place, _)| place);
            next.map(|place| calls.remove(place))
        });
        if let Some((time, call)) = next {
            PASSED.set(PASSED.get().max(time - *BEGIN));
            call();
        }
    }

    /// An execution begins, or ends.
    pub(crate) fn reset() {
        PASSED.set(Duration::ZERO);
        drop(CALLS.take());
    }

    pub(crate) mod alarm {
        use std::time::Instant;

        pub(crate) fn call_at(time: Instant, call: impl FnOnce() + Send + 'static) {
            super::CALLS.with_borrow_mut(|calls| calls.push((time, Box::new(call))));
        }
    }

    pub(crate) mod backoff {
        use std::time::Duration;

        pub(crate) fn growing(attempt: u32, first: Duration, last: Duration) -> Duration {
            let factor = 2_u32.saturating_pow(attempt);
            first.saturating_mul(factor).min(last)
        }

        pub(crate) fn jittered(longest: Duration) -> Duration {
            longest
        }
    }
}

#[allow(
    dead_code,
    unused_imports,
    unused_qualifications,
    unreachable_pub,
    unexpected_cfgs,
    clippy::all,
    clippy::pedantic,
    reason = "copies of the crate's source"
)]
mod variants {
    include!(concat!(env!("OUT_DIR"), "/variants.rs"));
}

/// Runs under all interleavings.
fn check(scenario: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(move || {
        rt::reset();
        scenario();
        rt::reset();
    });
}

macro_rules! scenarios {
    ($($variant:ident),*) => {$(
        #[allow(dead_code, reason = "a mistake is looked for in few of them")]
        mod $variant {
            use std::future::poll_fn;
            use std::pin::pin;
            use std::sync::Arc;
            use std::task::Poll;
            use std::time::Duration;

            use loom::future::{AtomicWaker, block_on};
            use loom::sync::Mutex;
            use loom::sync::atomic::{AtomicBool, Ordering};
            use loom::thread;

            use crate::rt;
            use crate::rt::stop_token::StopToken;
            use crate::variants::$variant::queue::line::FairShare;
            use crate::variants::$variant::queue::{Options, Place, Queues};

            const NAME: &str = "slots";
            const HOUR: Duration = Duration::from_secs(3600);

            /// It does not poll.
            const PATIENT: Options = Options { connected: false, longest_pause: HOUR };

            /// Slots in a database, and the waiters of this process.
            #[derive(Clone)]
            struct Slots {
                free: Arc<Mutex<usize>>,
                queues: Arc<Queues>,
            }

            impl Slots {
                fn new(free: usize, exclusive: bool) -> Self {
                    let queues = Queues::new(exclusive);
                    // Nothing is yielded to other processes.
                    queues.lock().shares.fill(FairShare::never());
                    Self { free: Arc::new(Mutex::new(free)), queues }
                }

                fn take(&self) -> bool {
                    let mut free = self.free.lock().expect("no panic");
                    let takes = *free > 0;
                    *free -= usize::from(takes);
                    takes
                }

                fn release(&self) {
                    *self.free.lock().expect("no panic") += 1;
                    self.queues.notify_released(NAME, 1, None);
                }

                /// Another process releases one.
                fn release_elsewhere(&self) {
                    *self.free.lock().expect("no panic") += 1;
                }

                fn join(&self, max_concurrent: usize) -> Place {
                    let mut place = self.queues.place(NAME);
                    place.refused(Some(HOUR));
                    place.join("", max_concurrent, PATIENT);
                    place
                }

                /// Makes attempts until one succeeds.
                async fn acquire(&self, mut place: Place) {
                    loop {
                        place.turn(None, None).await;
                        if place.is_first() {
                            on_its_way().await;
                        }
                        if self.take() {
                            place.granted(false);
                            return;
                        }
                        place.refused(Some(HOUR));
                        if place.is_first() {
                            place.join("", 1, PATIENT);
                        }
                    }
                }

                /// As a waiter that does not know its target.
                async fn acquire_first(&self) {
                    let mut place = self.queues.place(NAME);
                    if !place.query_first(1, None).await {
                        place.refused(Some(HOUR));
                        place.join("", 1, PATIENT);
                    }
                    self.acquire(place).await;
                }

                /// Nothing is left.
                fn assert_ended(&self, free: usize) {
                    assert_eq!(*self.free.lock().expect("no panic"), free);
                    assert!(self.queues.lock().names.is_empty());
                    assert_eq!(self.queues.waiting.load(Ordering::SeqCst), 0);
                }
            }

            /// A query is on its way: its future may be dropped.
            async fn on_its_way() {
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

            /// Drops futures.
            #[derive(Default)]
            struct Drops(AtomicBool, AtomicWaker);

            impl Drops {
                fn drop_it(&self) {
                    self.0.store(true, Ordering::SeqCst);
                    self.1.wake();
                }

                /// Returns whether the future has ended before it was dropped.
                async fn unless<T>(&self, future: impl Future<Output = T>) -> bool {
                    let mut future = pin!(future);
                    poll_fn(|context| {
                        self.1.register_by_ref(context.waker());
                        if self.0.load(Ordering::SeqCst) {
                            return Poll::Ready(false);
                        }
                        future.as_mut().poll(context).map(|_| true)
                    })
                    .await
                }
            }

            /// One holds the slot and releases it, others wait.
            pub(crate) fn release_reaches_each_waiter(exclusive: bool) {
                let slots = Slots::new(0, exclusive);
                let waiters = [(); 2].map(|()| {
                    let slots = slots.clone();
                    thread::spawn(move || {
                        block_on(slots.acquire(slots.join(1)));
                        slots.release();
                    })
                });
                slots.release();
                for waiter in waiters {
                    waiter.join().expect("no panic");
                }
                slots.assert_ended(1);
            }

            /// Two are released, of which the first waiter uses one.
            pub(crate) fn second_release_reaches_the_second_waiter() {
                let slots = Slots::new(1, false);
                let waiters = [(); 2].map(|()| {
                    let slots = slots.clone();
                    thread::spawn(move || block_on(slots.acquire(slots.join(1))))
                });
                slots.release();
                for waiter in waiters {
                    waiter.join().expect("no panic");
                }
                slots.assert_ended(0);
            }

            /// Nobody knows the target at first.
            pub(crate) fn release_reaches_those_that_query_first() {
                let slots = Slots::new(0, false);
                let waiters = [(); 2].map(|()| {
                    let slots = slots.clone();
                    thread::spawn(move || {
                        block_on(slots.acquire_first());
                        slots.release();
                    })
                });
                slots.release();
                for waiter in waiters {
                    waiter.join().expect("no panic");
                }
                slots.assert_ended(1);
            }

            /// A future is dropped at any moment: another one gets what was released.
            pub(crate) fn dropped_waiter_hands_its_release_over(first: bool) {
                let slots = Slots::new(0, false);
                let drops = Arc::new(Drops::default());
                let dropped = {
                    let (slots, drops) = (slots.clone(), Arc::clone(&drops));
                    thread::spawn(move || {
                        let acquired = block_on(async {
                            if first {
                                drops.unless(slots.acquire_first()).await
                            } else {
                                drops.unless(slots.acquire(slots.join(1))).await
                            }
                        });
                        if acquired {
                            slots.release();
                        }
                    })
                };
                let other = {
                    let slots = slots.clone();
                    thread::spawn(move || {
                        let place = slots.join(1);
                        block_on(slots.acquire(place));
                    })
                };
                slots.release();
                drops.drop_it();
                dropped.join().expect("no panic");
                other.join().expect("no panic");
                slots.assert_ended(0);
            }

            /// A waiter is stopped, or its time is up, at any moment. `early`: what is waited for is released meanwhile.
            pub(crate) fn ended_waiter_hands_its_release_over(stops: bool, early: bool) {
                let slots = Slots::new(0, false);
                let (stop, done) = (StopToken::new(), Arc::new(AtomicBool::new(false)));
                let ended = {
                    let (slots, stop, done) = (slots.clone(), stop.clone(), Arc::clone(&done));
                    thread::spawn(move || {
                        let mut place = slots.join(1);
                        let deadline = (!stops).then(|| rt::now() + Duration::from_millis(10));
                        let is_over =
                            || stop.is_stopped() || deadline.is_some_and(|end| rt::now() >= end);
                        loop {
                            block_on(place.turn(deadline, Some(&stop)));
                            if slots.take() {
                                place.granted(false);
                                slots.release();
                                break;
                            }
                            if is_over() {
                                drop(place);
                                break;
                            }
                            place.refused(Some(HOUR));
                        }
                        done.store(true, Ordering::SeqCst);
                    })
                };
                let other = {
                    let slots = slots.clone();
                    thread::spawn(move || block_on(slots.acquire(slots.join(1))))
                };
                if early {
                    slots.release();
                }
                if stops {
                    stop.stop();
                }
                while !done.load(Ordering::SeqCst) {
                    rt::pass();
                    thread::yield_now();
                }
                ended.join().expect("no panic");
                if !early {
                    slots.release();
                }
                other.join().expect("no panic");
                slots.assert_ended(0);
            }

            /// The slot is released in another process, of which nobody here is told.
            pub(crate) fn waiter_polls() {
                let slots = Slots::new(0, false);
                let done = Arc::new(AtomicBool::new(false));
                let waiter = {
                    let (slots, done) = (slots.clone(), Arc::clone(&done));
                    thread::spawn(move || {
                        let mut place = slots.join(1);
                        for _ in 0..3 {
                            block_on(place.turn(None, None));
                            if slots.take() {
                                place.granted(false);
                                break;
                            }
                            place.refused(None);
                        }
                        done.store(true, Ordering::SeqCst);
                    })
                };
                slots.release_elsewhere();
                while !done.load(Ordering::SeqCst) {
                    rt::pass();
                    thread::yield_now();
                }
                waiter.join().expect("no panic");
                slots.assert_ended(0);
            }

            /// A future is called for a release, and not polled again. Another one gets its turn in time.
            pub(crate) fn future_that_is_not_polled_is_passed_over() {
                let slots = Slots::new(0, false);
                let mut left_alone = Box::pin(slots.acquire(slots.join(1)));
                let mut context = std::task::Context::from_waker(std::task::Waker::noop());
                assert!(left_alone.as_mut().poll(&mut context).is_pending());
                let done = Arc::new(AtomicBool::new(false));
                let other = {
                    let (slots, done) = (slots.clone(), Arc::clone(&done));
                    thread::spawn(move || {
                        let mut place = slots.queues.place(NAME);
                        // It polls.
                        place.join("", 1, PATIENT);
                        block_on(slots.acquire(place));
                        done.store(true, Ordering::SeqCst);
                    })
                };
                slots.release();
                while !done.load(Ordering::SeqCst) {
                    rt::pass();
                    thread::yield_now();
                }
                other.join().expect("no panic");
                drop(left_alone);
                slots.assert_ended(0);
            }
        }
    )*};
}

scenarios!(original);

/// A test for each scenario.
macro_rules! holds {
    ($($test:ident: $scenario:ident($($argument:expr),*);)*) => {$(
        #[test]
        fn $test() {
            check(|| original::$scenario($($argument),*));
        }
    )*};
}

holds! {
    release_reaches_each_waiter: release_reaches_each_waiter(false);
    release_reaches_each_waiter_of_an_exclusive_queue: release_reaches_each_waiter(true);
    second_release_reaches_the_second_waiter: second_release_reaches_the_second_waiter();
    release_reaches_those_that_query_first: release_reaches_those_that_query_first();
    dropped_waiter_hands_its_release_over: dropped_waiter_hands_its_release_over(false);
    dropped_first_query_hands_its_release_over: dropped_waiter_hands_its_release_over(true);
    stopped_waiter_ends: ended_waiter_hands_its_release_over(true, false);
    stopped_waiter_hands_its_release_over: ended_waiter_hands_its_release_over(true, true);
    waiter_whose_time_is_up_ends: ended_waiter_hands_its_release_over(false, false);
    waiter_whose_time_is_up_hands_its_release_over: ended_waiter_hands_its_release_over(false, true);
    waiter_polls: waiter_polls();
    future_that_is_not_polled_is_passed_over: future_that_is_not_polled_is_passed_over();
}

/// A test for each mistake, which fails, and one that runs them.
macro_rules! mistakes {
    ($($mistake:ident: $scenario:ident($($argument:expr),*);)*) => {
        scenarios!($($mistake),*);

        $(#[test]
        #[ignore = "a mistake: run by `every_mistake_is_found`"]
        fn $mistake() {
            check(|| $mistake::$scenario($($argument),*));
        })*

        #[test]
        fn every_mistake_is_found() {
            let mistakes = [$(stringify!($mistake)),*];
            assert_eq!(mistakes, variants::MISTAKES, "each has its scenario");
            for mistake in mistakes {
                // In a process of its own: `loom` may abort it.
                let program = env::current_exe().expect("this program");
                let arguments = ["--ignored", "--exact", "--nocapture", mistake];
                let found = Command::new(program).args(arguments).output();
                let found = found.expect("this program");
                let output = String::from_utf8_lossy(&found.stderr);
                let why = ["deadlock; threads", "maximum number of branches"];
                let why = why.iter().any(|why| output.contains(why));
                assert!(!found.status.success() && why, "{mistake}: {output}");
            }
        }
    };
}

mistakes! {
    a_release_is_not_counted_for_those_that_query: release_reaches_each_waiter(false);
    a_refused_waiter_does_not_look_for_a_release: release_reaches_each_waiter(false);
    a_called_waiter_that_leaves_tells_nobody: dropped_waiter_hands_its_release_over(false);
    a_querying_waiter_that_leaves_tells_nobody: dropped_waiter_hands_its_release_over(false);
    a_granted_waiter_lets_nobody_query: second_release_reaches_the_second_waiter();
    a_first_query_that_ends_tells_nobody: dropped_waiter_hands_its_release_over(true);
    a_refused_first_query_misses_a_release: release_reaches_those_that_query_first();
    a_waiter_counts_after_its_query: release_reaches_each_waiter(false);
    a_stop_is_not_seen: ended_waiter_hands_its_release_over(true, false);
    a_deadline_is_not_seen: ended_waiter_hands_its_release_over(false, false);
    no_alarm_is_set: waiter_polls();
    a_called_future_that_is_not_polled_holds_the_others_up: future_that_is_not_polled_is_passed_over();
}
