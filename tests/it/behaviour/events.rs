//! Events that the crate records by `tracing`.

use std::cell::Cell;
use std::collections::HashMap;
use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use diesel_locks::prelude::*;
use diesel_locks::{Error, LockPool, SlotRenewer};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

use crate::support::Backend;
use crate::support::threads::{Holder, LONG, loss_of, until};
use crate::support::urls::fresh_name;

/// Collects events of every thread, a line for each. One for the whole run: subscribers that come and go while other
/// tests use the same places in the code miss events.
#[derive(Clone, Default)]
pub(crate) struct Collector(Arc<Mutex<HashMap<ThreadId, String>>>);

impl Collector {
    pub(crate) fn global() -> &'static Self {
        static GLOBAL: OnceLock<Collector> = OnceLock::new();
        GLOBAL.get_or_init(|| {
            let collector = Self::default();
            tracing::subscriber::set_global_default(
                tracing_subscriber::registry().with(collector.clone()),
            )
            .expect("the only one");
            collector
        })
    }

    pub(crate) fn events_of_this_thread(&self) -> String {
        self.events_of(std::thread::current().id())
    }

    pub(crate) fn events_of(&self, thread: ThreadId) -> String {
        let events = self.0.lock().expect("unpoisoned");
        events.get(&thread).cloned().unwrap_or_default()
    }

    pub(crate) fn events_with(&self, part: &str) -> String {
        let events = self.0.lock().expect("unpoisoned");
        let lines = events.values().flat_map(|lines| lines.lines());
        let wanted: Vec<_> = lines.filter(|line| line.contains(part)).collect();
        wanted.join("\n")
    }
}

/// A part of the name of semaphores: the collector panics when a slot of one is lost, and at all later events of that thread.
const PANICS: &str = "panics";

thread_local! {
    static HAS_PANICKED: Cell<bool> = const { Cell::new(false) };
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{}={value:?} ", field.name()).expect("a string");
    }
}

impl Collector {
    fn add(&self, line: &str) {
        let mut events = self.0.lock().expect("unpoisoned");
        let lines = events.entry(std::thread::current().id()).or_default();
        lines.push_str(&line.replace('\n', "\\n"));
        lines.push('\n');
    }
}

/// The line of a span: its name, the name of its parent, and its fields.
struct Opened(String);

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Collector {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let target = event.metadata().target();
        if target.starts_with("diesel_locks") {
            let mut text = Text(format!("{target} "));
            event.record(&mut text);
            self.add(&text.0);
            if text.0.contains(PANICS) && text.0.contains("outcome=\"lost\"") || HAS_PANICKED.get()
            {
                HAS_PANICKED.set(true);
                panic!("on purpose: {}", text.0);
            }
        }
    }

    fn on_new_span(&self, span: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let metadata = span.metadata();
        let opened = context.span(id).expect("it is new");
        if metadata.target().starts_with("diesel_locks")
            || ["request", "work"].contains(&metadata.name())
        {
            let parent = opened.parent().map_or("none", |parent| parent.name());
            let mut text = Text(format!("{} in {parent} ", metadata.name()));
            span.record(&mut text);
            self.add(&format!("opened {}", text.0));
            opened.extensions_mut().insert(Opened(text.0));
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let span = context.span(&id).expect("it closes");
        if let Some(Opened(text)) = span.extensions().get() {
            self.add(&format!("closed {text}"));
        }
    }
}

/// Their parent is the span of the caller, but for the hold of a guard, and they are not the parents of those of the closure.
pub(crate) fn tracing_has_spans_of_waits_and_holds<B: Backend>() {
    let database = B::new();
    let collector = Collector::global();
    let pool = database.pool(2);
    let (locks, renewer) = (LockPool::new(pool.clone()), SlotRenewer::new(pool));
    let name = fresh_name();
    let semaphore = Semaphore::new(&name, 1);
    let mut conn = database.connect();
    let request = tracing::info_span!("request", name).entered();
    let work = || {
        tracing::info_span!("work", name);
        Ok::<_, Error>(())
    };
    let ran = [
        conn.with_object_lock(&*name, |_| work()),
        locks.with_object_lock(&*name, |_| work()),
        conn.with_slot(&semaphore, LONG, |_| work()),
        locks.with_slot(&semaphore, LONG, |_| work()),
    ];
    for ran in ran {
        ran.expect("free");
    }
    let guard = renewer.acquire(&semaphore, LeaseOptions::new(LONG), LONG);
    let guard = guard.expect("free");
    let refused = conn.try_acquire_slot(&semaphore, LeaseOptions::new(LONG));
    assert!(refused.expect("an answer").is_none());
    drop(request);
    guard.release().expect("held");
    let told = collector.events_with(&name);
    let spans = told.lines().filter(|line| !line.contains("outcome="));
    let spans: Vec<_> = spans
        .map(|line| {
            line.split_whitespace()
                .take(4)
                .collect::<Vec<_>>()
                .join(" ")
        })
        .collect();
    let wait = [
        "opened diesel_locks.wait in request",
        "closed diesel_locks.wait in request",
    ];
    let transaction = [
        "opened diesel_locks.hold in request",
        "opened work in request",
        "closed work in request",
        "closed diesel_locks.hold in request",
    ];
    let transaction = [&wait[..], &transaction].concat();
    let expected = [
        &["opened request in none"],
        &*transaction.repeat(4),
        &wait,
        &["opened diesel_locks.hold in none"],
        &wait,
        // It does not stay open as long as the guard lives.
        &["closed request in none", "closed diesel_locks.hold in none"],
    ];
    assert_eq!(spans, expected.concat(), "{told}");
}

pub(crate) fn tracing_records_acquired_unavailable_timeout_and_released<B: Backend>() {
    let database = Arc::new(B::new());
    let collector = Collector::global();
    let mut conn = database.connect();
    conn.with_object_lock("Bond:1", |_| Ok::<_, Error>(()))
        .expect("free");
    let holder = Holder::acquire(&database, "Bond:2");
    conn.try_with_object_lock("Bond:2", |_| Ok::<_, Error>(()))
        .expect("an answer");
    conn.with_object_lock(
        LockRequest::new("Bond:2").wait(Wait::AtMost(Duration::from_millis(20))),
        |_| Ok::<_, Error>(()),
    )
    .expect_err("held");
    holder.release();
    let told = collector.events_of_this_thread();
    for (id, what) in [
        ("Bond:1", "acquired"),
        ("Bond:1", "released"),
        ("Bond:2", "not acquired"),
        ("Bond:2", "timed out"),
    ] {
        assert!(
            told.lines()
                .any(|line| line.contains(id) && line.contains(what)),
            "{id} {what} in:\n{told}"
        );
    }
    assert!(told.lines().any(|line| line.contains("waited=")), "{told}");
}

pub(crate) fn tracing_records_the_outcomes_of_slots<B: Backend>() {
    let database = B::new();
    let collector = Collector::global();
    let mut conn = database.connect();
    let name = fresh_name();
    let semaphore = Semaphore::new(&name, 1);
    let lease = LeaseOptions::new(Duration::from_secs(3600));
    let renewer = SlotRenewer::new(database.pool(2));
    let guard = renewer.try_acquire(&semaphore, &lease);
    let guard = guard.expect("an answer").expect("free");
    let refused = renewer.try_acquire(&semaphore, &lease);
    assert!(refused.expect("an answer").is_none());
    let wait = Wait::AtMost(Duration::from_millis(20));
    conn.acquire_slot(&semaphore, lease, wait)
        .expect_err("held");
    guard.release().expect("held");
    conn.with_slot(&semaphore, wait, |_| Ok::<_, Error>(()))
        .expect("free");
    let told = collector.events_with(&name);
    for (outcome, field, times) in [
        ("granted", "waited_us=", 2),
        ("refused", "", 1),
        ("timed_out", "waited_us=", 1),
        ("released", "held_us=", 2),
    ] {
        let outcome = format!("outcome=\"{outcome}\"");
        let lines = told.lines().filter(|line| {
            line.starts_with("diesel_locks::slot ")
                && line.contains(&outcome)
                && line.contains(field)
        });
        assert_eq!(lines.count(), times, "{outcome} {field} in:\n{told}");
    }
}

pub(crate) fn tracing_records_a_lost_slot<B: Backend>() {
    let database = B::new();
    let collector = Collector::global();
    let mut conn = database.connect();
    let name = fresh_name();
    let semaphore = Semaphore::new(&name, 1);
    let lease = LeaseOptions::new(Duration::from_millis(600));
    let renewer = SlotRenewer::new(database.pool(2));
    let guard = renewer.try_acquire(&semaphore, &lease);
    let guard = guard.expect("an answer").expect("free");
    let lost = loss_of(&guard);
    conn.force_release_all(&name).expect("released");
    lost.recv_timeout(LONG)
        .expect("the next renewal notices it");
    drop(guard);
    // Recorded after the callbacks are called.
    let is_told = || collector.events_with(&name).contains("outcome=\"lost\"");
    until(is_told);
    let told = collector.events_with(&name);
    let lines = |outcome| told.lines().filter(|line| line.contains(outcome)).count();
    assert_eq!(lines("outcome=\"lost\""), 1, "{told}");
    assert_eq!(lines("outcome=\"released\""), 0, "{told}");
}

/// As one does that writes to a standard error whose reader has ended.
pub(crate) fn subscriber_that_panics_ends_neither_notifications_nor_renewals<B: Backend>() {
    let database = B::new();
    Collector::global();
    let mut conn = database.connect();
    let renewer = SlotRenewer::new(database.pool(2));
    let acquire = |name: &str| {
        let lease = LeaseOptions::new(Duration::from_millis(600));
        renewer.acquire(&Semaphore::new(name, 1), lease, LONG)
    };
    let kept = acquire(&fresh_name()).expect("free");
    for _ in 0..2 {
        let name = format!("{PANICS} {}", fresh_name());
        let guard = acquire(&name).expect("free");
        let lost = loss_of(&guard);
        conn.force_release_all(&name).expect("released");
        lost.recv_timeout(LONG).expect("it is told");
    }
    let lasts = || Instant::now() + kept.remaining();
    for _ in 0..2 {
        let before = lasts();
        until(|| lasts() > before + Duration::from_millis(50));
    }
}

/// And not at the request: the time of the wait has a field of its own.
pub(crate) fn held_time_starts_at_the_grant<B: Backend>() {
    let database = Arc::new(B::new());
    Collector::global();
    let holder = Holder::acquire(&database, "Bond:held");
    let (told, whole) = std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let mut conn = database.connect();
            let started = Instant::now();
            conn.with_object_lock("Bond:held", |_| Ok::<_, Error>(()))
                .expect("in the end");
            (
                Collector::global().events_of_this_thread(),
                started.elapsed(),
            )
        });
        database.await_waiting(1);
        // However short it is, it is not in both.
        std::thread::sleep(Duration::from_millis(100));
        holder.release();
        waiter.join().expect("the waiter")
    });
    let times = ["waited=", "held="].map(|field| {
        let rest = told
            .split_once(field)
            .unwrap_or_else(|| panic!("{field}{told}"))
            .1;
        duration(rest.split_whitespace().next().expect("a value"))
    });
    let [waited, held] = times;
    assert!(waited + held <= whole, "{waited:?} {held:?} {whole:?}");
}

/// What `Debug` makes of one.
fn duration(text: &str) -> Duration {
    let unit = text.find(|c: char| c.is_alphabetic()).expect("a unit");
    let seconds = match &text[unit..] {
        "s" => 1.0,
        "ms" => 1e-3,
        "µs" => 1e-6,
        "ns" => 1e-9,
        other => panic!("{other}"),
    };
    let number: f64 = text[..unit].parse().expect("a number");
    Duration::from_secs_f64(number * seconds)
}
