//! Queues of those in this process who wait for the same thing of a database: first come, first served.
//!
//! The first of a queue asks the database again and again; the others sleep. Who frees such a thing in this
//! process calls [`Queues::freed`], which wakes the first that sleeps; it asks at once. So the database is asked
//! about as often as there is something to be had, however many wait.
//!
//! - One that asks, or finds out its site, does not keep the others from asking: while it does, the next one that
//!   sleeps is the first. So a connection that does not answer delays nobody else.
//! - Nothing that is freed goes unheard: who was asking meanwhile, and was refused, asks once more.
//! - Other processes are not told. They ask as often as the first of a queue here does, so a thing that is handed
//!   on within this process would hardly ever be free when they look. So now and then it is left free, for as long
//!   as it would be if all who wait here asked for themselves ([`Share`]).
//! - Not more at once than there may be things ask for the first time; the next one does when one of them has its
//!   answer.
//! - The same name may stand for different things, in different databases: each has a queue of its own, a
//!   [site](Ticket::is_at). Which it is may be unknown at first; then the only queue there is is taken for the right
//!   one, and the caller is [asked](Next::Identify) for the site soon.

use std::borrow::Borrow;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::backoff;

/// The first pause between two questions of the first of a queue, and the longest: between 10 and 20 questions
/// a second.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// At most every so many things that are freed here are left free for other processes,
const HANDED_ON: u32 = 3;
/// and at most one part of so many of the time.
const PARTS: u32 = 20;

/// `K`: the name of what is waited for. `P`: the site.
pub(crate) struct Queues<K, P> {
    lines: Mutex<HashMap<K, Lines<P>>>,
    /// Tickets that are out. Without any, who frees something takes no lock.
    tickets: AtomicUsize,
    /// Whether one name was found to stand for several sites: from then on nobody is taken to be at the only one.
    several: AtomicBool,
    /// What other processes get of the things of each name. They outlast queues, which often are empty for a moment;
    /// names share them by their hashes, so that they do not grow in number.
    shares: Mutex<[Share; SHARES]>,
}

const SHARES: usize = 64;

/// What is left free for other processes.
#[derive(Clone, Copy)]
struct Share {
    /// How much was handed on in this process since something was last left free.
    handed_on: u32,
    /// When something may be left free next.
    may_leave: Option<Instant>,
}

/// The queues of one name.
struct Lines<P> {
    /// The number of the next ticket.
    next: u64,
    /// Tickets of those who ask without having waited; and how often something was freed since then, of which one
    /// that is refused has not heard.
    fresh: usize,
    unheard: usize,
    by_site: Vec<Line<P>>,
}

/// One queue.
struct Line<P> {
    /// `None`: of those who have not asked yet, and wait for others who ask for the first time.
    site: Option<P>,
    /// In the order in which they came.
    seats: BTreeMap<u64, Seat>,
    /// How often something was freed while all were asking.
    unheard: usize,
    /// Until when something is left free.
    left_until: Option<Instant>,
}

struct Seat {
    /// It asks once, and waits for nothing but its turn to ask.
    once: bool,
    state: State,
    wake: Arc<Condvar>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Asleep,
    /// Something was freed for it: this one, if that is known.
    Told(Freed),
    Asking,
}

/// What was freed: which one, if that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Freed(pub(crate) Option<u32>);

/// What the holder of a ticket is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Ask the database.
    Ask {
        /// Something was freed, and is to be had unless another was faster: this one, if that is known.
        told: Option<Freed>,
    },
    /// Find out the site, and say it by [`Ticket::is_at`].
    Identify,
}

/// A place in a queue; dropped, it is given up.
pub(crate) struct Ticket<'a, K: Eq + Hash, P: PartialEq> {
    queues: &'a Queues<K, P>,
    key: K,
    at: At,
    /// How often it was refused.
    refused: u32,
    /// Whether the site is known.
    is_placed: bool,
    /// When it is to be known.
    identify_at: Option<Instant>,
    told: bool,
    /// Whether it finds out the site, and has not asked yet.
    is_identifying: bool,
}

#[derive(Clone, Copy)]
enum At {
    /// Asks without having waited.
    Fresh {
        number: u64,
    },
    Seat {
        number: u64,
    },
    /// In no queue: it asks for itself.
    Alone,
}

impl<K: Eq + Hash + Clone, P: PartialEq + Clone> Queues<K, P> {
    pub(crate) fn new() -> Self {
        Self {
            lines: Mutex::default(),
            tickets: AtomicUsize::new(0),
            several: AtomicBool::new(false),
            shares: Mutex::new(
                [Share {
                    handed_on: 0,
                    may_leave: None,
                }; SHARES],
            ),
        }
    }

    /// For one who comes now. Somebody waits at the only site that fits: it waits behind. Otherwise it asks, unless
    /// `most` others are asking at this moment.
    pub(crate) fn enter(&self, key: K, most: usize, fits: impl Fn(&P) -> bool) -> Ticket<'_, K, P> {
        let mut ticket = self.ticket(key);
        let mut all = self.lock();
        let lines = all.entry(ticket.key.clone()).or_insert_with(Lines::new);
        let mut fitting = lines
            .by_site
            .iter_mut()
            .filter(|line| line.site.as_ref().is_some_and(&fits));
        let sure = !self.several.load(Ordering::SeqCst);
        let mut soon = Instant::now() + backoff::jittered(LONGEST_PAUSE);
        ticket.at = match (fitting.next(), fitting.next()) {
            (None, _) => lines.admit(most, false),
            (Some(line), second) => {
                if second.is_some() || !sure {
                    soon = Instant::now();
                }
                let number = lines.next;
                line.seats.insert(number, Seat::new(false));
                lines.next += 1;
                At::Seat { number }
            }
        };
        ticket.identify_at = Some(soon);
        drop(all);
        ticket
    }

    /// For one who asks once, and does not wait behind those who wait: only for its turn to ask, when `most`
    /// others do.
    pub(crate) fn enter_once(&self, key: K, most: usize) -> Ticket<'_, K, P> {
        let mut ticket = self.ticket(key);
        let mut all = self.lock();
        let lines = all.entry(ticket.key.clone()).or_insert_with(Lines::new);
        ticket.at = lines.admit(most, true);
        drop(all);
        ticket
    }

    fn ticket(&self, key: K) -> Ticket<'_, K, P> {
        // Before the question: who frees something after it sees the ticket.
        self.tickets.fetch_add(1, Ordering::SeqCst);
        let mut ticket = self.alone(key);
        ticket.is_placed = false;
        ticket
    }

    /// For one who must not wait for others of this process: it asks for itself.
    pub(crate) fn alone(&self, key: K) -> Ticket<'_, K, P> {
        Ticket {
            queues: self,
            key,
            at: At::Alone,
            refused: 0,
            is_placed: true,
            identify_at: None,
            told: false,
            is_identifying: false,
        }
    }

    /// Somebody in this process has freed so many, at whatever site, and this one among them: the next question will
    /// find them.
    pub(crate) fn freed<Q: Eq + Hash + ?Sized>(&self, key: &Q, count: usize, which: Option<u32>)
    where
        K: Borrow<Q>,
    {
        if self.tickets.load(Ordering::SeqCst) == 0 {
            return;
        }
        if let Some(lines) = self.lock().get_mut(key) {
            lines.unheard = lines.asking().min(lines.unheard + count);
            let now = Instant::now();
            let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
            let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(key);
            let share = &mut shares[usize::try_from(hash % SHARES as u64).unwrap_or(0)];
            for line in lines.by_site.iter_mut().filter(|line| line.site.is_some()) {
                // More than there are waiting need not be told.
                for _ in 0..count.min(line.seats.len()) {
                    line.freed(now, Freed(which), share);
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<K, Lines<P>>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<P> Lines<P> {
    fn new() -> Self {
        Self {
            next: 0,
            fresh: 0,
            unheard: 0,
            by_site: Vec::new(),
        }
    }

    fn is_empty(&self) -> bool {
        self.fresh == 0 && self.by_site.is_empty()
    }

    /// How many ask for the first time at this moment, or have been told to.
    fn asking(&self) -> usize {
        let unplaced = self.by_site.iter().filter(|line| line.site.is_none());
        let told = unplaced
            .flat_map(|line| line.seats.values())
            .filter(|seat| seat.state != State::Asleep);
        self.fresh + told.count()
    }
}

impl<P: PartialEq> Lines<P> {
    fn admit(&mut self, most: usize, once: bool) -> At {
        let number = self.next;
        self.next += 1;
        if self.asking() < most.max(1) {
            self.fresh += 1;
            return At::Fresh { number };
        }
        let line = self.line(None);
        line.seats.insert(number, Seat::new(once));
        At::Seat { number }
    }

    fn line(&mut self, site: Option<P>) -> &mut Line<P> {
        let found = self.by_site.iter().position(|line| line.site == site);
        let position = found.unwrap_or_else(|| {
            self.by_site.push(Line::new(site));
            self.by_site.len() - 1
        });
        &mut self.by_site[position]
    }

    /// The queue in which a ticket is.
    fn line_of(&mut self, number: u64) -> Option<&mut Line<P>> {
        self.by_site
            .iter_mut()
            .find(|line| line.seats.contains_key(&number))
    }

    /// Gives up the place of a ticket.
    fn leave(&mut self, at: At) {
        match at {
            At::Fresh { .. } => {
                self.fresh -= 1;
                self.unheard = self.unheard.min(self.asking());
                // The next one may ask.
                let waiting = self.by_site.iter_mut().find(|line| line.site.is_none());
                if let Some(line) = waiting {
                    line.tell(Freed(None));
                }
            }
            At::Seat { number } => {
                let Some(line) = self.line_of(number) else {
                    return;
                };
                match line.seats.remove(&number) {
                    _ if line.seats.is_empty() => {
                        self.by_site.retain(|line| !line.seats.is_empty());
                    }
                    Some(Seat {
                        state: State::Told(which),
                        ..
                    }) => line.tell(which),
                    _ => line.wake_first(),
                }
            }
            At::Alone => {}
        }
    }
}

impl<P> Line<P> {
    fn new(site: Option<P>) -> Self {
        Self {
            site,
            seats: BTreeMap::new(),
            unheard: 0,
            left_until: None,
        }
    }

    fn first_asleep(&mut self) -> Option<(&u64, &mut Seat)> {
        self.seats
            .iter_mut()
            .find(|(_, seat)| seat.state == State::Asleep)
    }

    /// The first of those that sleep looks at the clock for the others.
    fn wake_first(&mut self) {
        if let Some((_, seat)) = self.first_asleep() {
            seat.wake.notify_one();
        }
    }

    /// Hands something on to the first that sleeps.
    fn tell(&mut self, which: Freed) {
        match self.first_asleep() {
            Some((_, seat)) => {
                seat.state = State::Told(which);
                seat.wake.notify_one();
            }
            None => self.unheard = self.seats.len().min(self.unheard + 1),
        }
    }

    /// One that has had its answer sleeps; it asks once more when something was freed after the database has looked.
    fn sleep_or_ask(&mut self, number: u64) {
        let unheard = self.unheard > 0;
        self.unheard = self.unheard.saturating_sub(1);
        if let Some(seat) = self.seats.get_mut(&number) {
            seat.state = if unheard {
                State::Told(Freed(None))
            } else {
                State::Asleep
            };
        }
    }

    /// Hands something on, or leaves it free for other processes. These ask every 50 to 100 ms, and so would each
    /// who waits here: the next of `n` would ask after that time, divided by `n`.
    fn freed(&mut self, now: Instant, which: Freed, share: &mut Share) {
        share.handed_on = share.handed_on.saturating_add(1);
        let too_soon = share.may_leave.is_some_and(|time| now < time);
        if share.handed_on < HANDED_ON || too_soon || self.left_until.is_some() {
            self.tell(which);
            return;
        }
        let waiting = u32::try_from(self.seats.len()).unwrap_or(u32::MAX);
        let time = backoff::jittered(LONGEST_PAUSE) / waiting.max(1);
        share.handed_on = 0;
        share.may_leave = Some(now + time * PARTS);
        self.left_until = Some(now + time);
        self.wake_first();
    }
}

impl Seat {
    fn new(once: bool) -> Self {
        Self {
            once,
            state: State::Asleep,
            wake: Arc::default(),
        }
    }
}

impl<K: Eq + Hash + Clone, P: PartialEq + Clone> Ticket<'_, K, P> {
    /// Waits until it is this one's turn to ask, or `until` comes, which is a reason to ask for the last time.
    pub(crate) fn wait(&mut self, until: Option<Instant>) -> Next {
        match self.at {
            At::Fresh { .. } => Next::Ask { told: None },
            At::Alone => {
                if self.refused > 0 {
                    let pause = self.pause();
                    let left = until.map(|until| until.saturating_duration_since(Instant::now()));
                    sleep(left.map_or(pause, |left| left.min(pause)));
                }
                Next::Ask { told: None }
            }
            At::Seat { number } => self.wait_in_line(number, until),
        }
    }

    fn wait_in_line(&mut self, number: u64, until: Option<Instant>) -> Next {
        let mut due = None;
        let mut all = self.queues.lock();
        loop {
            let line = all
                .get_mut(&self.key)
                .and_then(|lines| lines.line_of(number))
                .expect("a queue with a seat");
            let now = Instant::now();
            let is_first = line
                .first_asleep()
                .is_some_and(|(first, _)| *first == number);
            let left_until = line.left_until.filter(|_| is_first);
            let seat = line.seats.get_mut(&number).expect("a seat with a ticket");
            let mut told = match seat.state {
                State::Told(which) => Some(which),
                State::Asleep | State::Asking => None,
            };
            if told.is_none() && left_until.is_some_and(|left| now >= left) {
                line.left_until = None;
                told = Some(Freed(None));
            }
            if is_first && due.is_none() {
                due = Some(now + self.pause());
            }
            let passed = |time: Option<Instant>| time.is_some_and(|time| now >= time);
            if told.is_some() || (is_first && passed(due)) || passed(until) {
                seat.state = State::Asking;
                line.wake_first();
                self.told = told.is_some();
                return Next::Ask { told };
            }
            if passed(self.identify_at) {
                // The database may not answer: the next one that sleeps is the first meanwhile.
                self.is_identifying = true;
                seat.state = State::Asking;
                line.wake_first();
                return Next::Identify;
            }
            let due_now = due.filter(|_| is_first);
            let wake_at = [until, due_now, left_until, self.identify_at];
            let wake = Arc::clone(&seat.wake);
            all = match wake_at.into_iter().flatten().min() {
                Some(time) => {
                    let waited = wake.wait_timeout(all, time.saturating_duration_since(now));
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => wake.wait(all).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    fn pause(&self) -> Duration {
        let pauses = self.refused.saturating_sub(1);
        backoff::jittered(backoff::growing(pauses, FIRST_PAUSE, LONGEST_PAUSE))
    }

    /// Whether the site is unknown.
    pub(crate) fn is_unknown(&self) -> bool {
        !self.is_placed
    }

    /// The site is this one; `None`: it is nobody else's.
    pub(crate) fn is_at(&mut self, site: Option<P>) {
        self.is_placed = true;
        self.identify_at = None;
        let is_identifying = std::mem::take(&mut self.is_identifying);
        let mut all = self.queues.lock();
        let Some(lines) = all.get_mut(&self.key) else {
            return;
        };
        let (number, unheard) = match self.at {
            At::Alone => return,
            At::Fresh { number } => (number, std::mem::take(&mut lines.unheard)),
            At::Seat { number } => {
                let Some(line) = lines.line_of(number) else {
                    return;
                };
                if site.is_some() && line.site == site {
                    if is_identifying {
                        line.sleep_or_ask(number);
                    }
                    return;
                }
                if line.site.is_some() {
                    self.queues.several.store(true, Ordering::SeqCst);
                    (number, 0)
                } else {
                    (number, std::mem::take(&mut lines.unheard))
                }
            }
        };
        if std::mem::take(&mut self.told)
            && let Some(line) = lines.line_of(number)
        {
            line.tell(Freed(None));
        }
        lines.leave(self.at);
        let Some(site) = site else {
            self.at = At::Alone;
            self.queues.tickets.fetch_sub(1, Ordering::SeqCst);
            if lines.is_empty() {
                all.remove(&self.key);
            }
            return;
        };
        self.at = At::Seat { number };
        let mut followers = BTreeMap::new();
        if !self.queues.several.load(Ordering::SeqCst) {
            // Those who came after it will not fare better, and find out later whether they wait for the same.
            let line = lines.line(None);
            let all = std::mem::take(&mut line.seats);
            (line.seats, followers) = all
                .into_iter()
                .partition(|(_, seat)| seat.once || seat.state != State::Asleep);
            lines.by_site.retain(|line| !line.seats.is_empty());
        }
        let line = lines.line(Some(site));
        line.unheard += unheard;
        let mut seat = Seat::new(false);
        if is_identifying && line.seats.is_empty() {
            // Nobody asks for it there, and it has not asked yet.
            seat.state = State::Told(Freed(None));
        }
        line.seats.insert(number, seat);
        line.seats.append(&mut followers);
    }

    /// The database had nothing. To be said after [`is_at`](Self::is_at).
    pub(crate) fn refused(&mut self) {
        self.refused = self.refused.saturating_add(1);
        self.told = false;
        if let At::Seat { number } = self.at
            && let Some(line) = self
                .queues
                .lock()
                .get_mut(&self.key)
                .and_then(|lines| lines.line_of(number))
        {
            line.sleep_or_ask(number);
        }
    }

    /// The database had something. One that had not been told of it hands on the question, as there may be more; one
    /// that asked for the first time hands on its turn.
    pub(crate) fn served(mut self) {
        let told = std::mem::take(&mut self.told);
        if let At::Seat { number } = self.at
            && let Some(line) = self
                .queues
                .lock()
                .get_mut(&self.key)
                .and_then(|lines| lines.line_of(number))
            && (!told || line.site.is_none())
        {
            line.tell(Freed(None));
        }
    }
}

impl<K: Eq + Hash, P: PartialEq> Drop for Ticket<'_, K, P> {
    fn drop(&mut self) {
        if matches!(self.at, At::Alone) {
            return;
        }
        self.queues.tickets.fetch_sub(1, Ordering::SeqCst);
        let mut all = self
            .queues
            .lines
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(lines) = all.get_mut(&self.key) {
            // It was told of something, and neither had it nor looked in vain.
            if let At::Seat { number } = self.at
                && self.told
                && let Some(line) = lines.line_of(number)
            {
                line.tell(Freed(None));
            }
            lines.leave(self.at);
            if lines.is_empty() {
                all.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::AtomicI64;
    use std::sync::mpsc::{Receiver, channel};
    use std::thread;

    use super::*;

    type Test = Queues<&'static str, u8>;

    const LIMIT: Duration = Duration::from_secs(20);

    fn queues() -> &'static Test {
        Box::leak(Box::new(Queues::new()))
    }

    /// A ticket that was refused once.
    fn refused(queues: &'static Test, site: u8) -> Ticket<'static, &'static str, u8> {
        let mut ticket = queues.enter("slots", 1, |_| true);
        ticket.wait(None);
        ticket.is_at(Some(site));
        ticket.refused();
        ticket
    }

    fn until(true_at_last: impl Fn() -> bool) {
        let begun = Instant::now();
        while !true_at_last() {
            assert!(begun.elapsed() < LIMIT, "it does not come true");
            thread::yield_now();
        }
    }

    fn seats(queues: &Test) -> usize {
        let all = queues.lock();
        let lines = all
            .get("slots")
            .into_iter()
            .flat_map(|lines| &lines.by_site);
        lines.map(|line| line.seats.len()).sum()
    }

    /// Waits on a thread, and says then that it is its turn.
    fn waits(
        mut ticket: Ticket<'static, &'static str, u8>,
        name: usize,
        turns: &std::sync::mpsc::Sender<(usize, Ticket<'static, &'static str, u8>)>,
    ) {
        let turns = turns.clone();
        thread::spawn(move || {
            while ticket.wait(None) == Next::Identify {
                ticket.is_at(Some(0));
            }
            let _ = turns.send((name, ticket));
        });
    }

    fn next<T>(turns: &Receiver<T>) -> T {
        turns.recv_timeout(LIMIT).expect("somebody's turn")
    }

    #[test]
    fn first_come_first_served() {
        let queues = queues();
        // As it stands in the queue it asks alone.
        let first = refused(queues, 0);
        let tickets: Vec<_> = (0..8).map(|_| refused_behind(queues)).collect();
        assert_eq!(seats(queues), 9);
        drop(first);
        for mut ticket in tickets {
            // As when something is freed and not left free for other processes.
            let mut all = queues.lock();
            let lines = all.get_mut("slots").expect("those that wait");
            lines.by_site[0].tell(Freed(None));
            drop(all);
            let told = Some(Freed(None));
            assert_eq!(ticket.wait(None), Next::Ask { told });
            let others = queues.lock()["slots"].by_site[0]
                .seats
                .values()
                .filter(|seat| seat.state != State::Asleep)
                .count();
            assert_eq!(others, 1, "one asks");
            ticket.served();
        }
        assert!(queues.lock().is_empty());
    }

    #[test]
    fn one_that_gets_no_answer_keeps_nobody_from_asking() {
        let queues = queues();
        let (sender, turns) = channel();
        let mut first = refused(queues, 0);
        waits(refused_behind(queues), 1, &sender);
        waits(refused_behind(queues), 2, &sender);
        // It asks, and that is the last that is heard of it; so does the next.
        assert_eq!(first.wait(None), Next::Ask { told: None });
        let (turn, second) = next(&turns);
        assert_eq!(turn, 1);
        let (turn, third) = next(&turns);
        assert_eq!(turn, 2);
        drop((first, second, third));
        assert!(queues.lock().is_empty());
    }

    #[test]
    fn what_is_freed_while_one_asks_is_heard_of() {
        let queues = queues();
        let mut ticket = queues.enter("slots", 1, |_| true);
        assert_eq!(ticket.wait(None), Next::Ask { told: None });
        queues.freed("slots", 1, None);
        ticket.is_at(Some(0));
        ticket.refused();
        assert_eq!(
            ticket.wait(None),
            Next::Ask {
                told: Some(Freed(None))
            }
        );
        queues.freed("slots", 1, Some(7));
        ticket.refused();
        assert_eq!(
            ticket.wait(None),
            Next::Ask {
                told: Some(Freed(None))
            }
        );
        ticket.refused();
        // Nothing was freed since: it is the clock that lets it ask.
        assert_eq!(ticket.wait(None), Next::Ask { told: None });
    }

    #[test]
    fn a_turn_that_ends_in_a_panic_is_the_next_ones() {
        let queues = queues();
        let (sender, turns) = channel();
        let mut first = refused(queues, 0);
        let second = refused_behind(queues);
        queues.freed("slots", 1, Some(3));
        let panicked = catch_unwind(AssertUnwindSafe(move || {
            assert_eq!(
                first.wait(None),
                Next::Ask {
                    told: Some(Freed(Some(3)))
                }
            );
            panic!("while it asks");
        }));
        assert!(panicked.is_err());
        waits(second, 2, &sender);
        let (_, ticket) = next(&turns);
        assert!(ticket.told);
    }

    /// The second of the queue, which has not asked yet.
    fn refused_behind(queues: &'static Test) -> Ticket<'static, &'static str, u8> {
        let mut ticket = queues.enter("slots", 1, |_| true);
        ticket.is_at(Some(0));
        ticket
    }

    #[test]
    fn a_wait_ends_in_time_behind_others() {
        let queues = queues();
        let _first = refused(queues, 0);
        let mut second = refused_behind(queues);
        let end = Instant::now() + Duration::from_millis(5);
        assert_eq!(second.wait(Some(end)), Next::Ask { told: None });
        assert!(Instant::now() >= end);
    }

    #[test]
    fn sites_have_queues_of_their_own() {
        let queues = queues();
        let _first = refused(queues, 1);
        // Taken to be at the same site, it is asked for it.
        let mut other = queues.enter("slots", 1, |_| true);
        assert_eq!(other.wait(None), Next::Identify);
        other.is_at(Some(2));
        assert!(matches!(other.wait(None), Next::Ask { .. }));
        other.refused();
        // From then on nobody is taken to be anywhere.
        let mut third = queues.enter("slots", 1, |_| true);
        assert_eq!(third.wait(None), Next::Identify);
        third.is_at(Some(2));
        // What is freed may be at either.
        queues.freed("slots", 1, None);
        assert_eq!(
            other.wait(None),
            Next::Ask {
                told: Some(Freed(None))
            }
        );
    }

    #[test]
    fn no_more_ask_for_the_first_time_at_once_than_may() {
        let queues = queues();
        let (sender, turns) = channel();
        let mut first = queues.enter("slots", 1, |_| true);
        assert_eq!(first.wait(None), Next::Ask { told: None });
        waits(queues.enter_once("slots", 1), 1, &sender);
        assert_eq!(seats(queues), 1);
        drop(first);
        let (_, ticket) = next(&turns);
        assert!(ticket.told);
        drop(ticket);
        assert!(queues.lock().is_empty());
    }

    #[test]
    fn now_and_then_something_is_left_free() {
        let queues = queues();
        let mut first = refused(queues, 0);
        let told: Vec<bool> = (0..HANDED_ON)
            .map(|_| {
                queues.freed("slots", 1, None);
                let told = queues.lock()["slots"].by_site[0].left_until.is_none();
                let Next::Ask { .. } = first.wait(None) else {
                    panic!("the site is known");
                };
                first.refused();
                told
            })
            .collect();
        assert_eq!(told, [true, true, false]);
    }

    #[test]
    fn something_is_left_free_though_each_waiter_is_served_at_once() {
        let queues = queues();
        let told: Vec<bool> = (0..HANDED_ON)
            .map(|_| {
                // The queue is empty, and gone, between two of them.
                let mut only = refused(queues, 0);
                queues.freed("slots", 1, None);
                let told = queues.lock()["slots"].by_site[0].left_until.is_none();
                let Next::Ask { .. } = only.wait(None) else {
                    panic!("the site is known");
                };
                only.served();
                assert!(queues.lock().is_empty());
                told
            })
            .collect();
        assert_eq!(told, [true, true, false]);
    }

    #[test]
    fn one_that_identifies_without_an_answer_keeps_nobody_from_asking() {
        let queues = queues();
        let (sender, turns) = channel();
        let first = refused(queues, 0);
        let mut second = queues.enter("slots", 1, |_| true);
        let mut third = queues.enter("slots", 1, |_| true);
        third.is_at(Some(0));
        // Its time to identify comes before its turn, and that is the last that is heard of it.
        second.identify_at = Some(Instant::now());
        assert_eq!(second.wait(None), Next::Identify);
        first.served();
        waits(third, 3, &sender);
        let (turn, third) = next(&turns);
        assert_eq!(turn, 3);
        drop((second, third));
        assert!(queues.lock().is_empty());
    }

    #[test]
    fn one_that_identifies_goes_on_where_it_was() {
        let queues = queues();
        let mut first = refused(queues, 0);
        let mut second = queues.enter("slots", 1, |_| true);
        second.identify_at = Some(Instant::now());
        assert_eq!(second.wait(None), Next::Identify);
        assert_eq!(first.wait(None), Next::Ask { told: None });
        // While all ask.
        queues.freed("slots", 1, None);
        second.is_at(Some(0));
        assert_eq!(
            second.wait(None),
            Next::Ask {
                told: Some(Freed(None))
            }
        );
    }

    #[test]
    fn one_that_is_alone_at_its_site_asks_at_once() {
        let queues = queues();
        let _first = refused(queues, 1);
        let mut other = queues.enter("slots", 1, |_| true);
        assert_eq!(other.wait(None), Next::Identify);
        other.is_at(Some(2));
        assert_eq!(
            other.wait(None),
            Next::Ask {
                told: Some(Freed(None))
            }
        );
    }

    #[test]
    fn sites_that_nobody_shares_have_no_queue() {
        let queues = queues();
        let mut first = queues.enter("slots", 1, |_| true);
        assert_eq!(first.wait(None), Next::Ask { told: None });
        let mut second = queues.enter("slots", 1, |_| true);
        drop(first);
        assert!(matches!(second.wait(None), Next::Ask { .. }));
        second.is_at(None);
        assert!(matches!(second.at, At::Alone));
        assert!(queues.lock().is_empty());
    }

    #[test]
    fn newcomers_count_those_that_have_been_told_to_ask() {
        let queues = queues();
        let mut first = queues.enter("slots", 1, |_| true);
        assert_eq!(first.wait(None), Next::Ask { told: None });
        let second = queues.enter_once("slots", 1);
        drop(first);
        // The second has been told to ask.
        let third = queues.enter_once("slots", 1);
        assert!(matches!(second.at, At::Seat { .. }));
        assert!(matches!(third.at, At::Seat { .. }));
        drop((second, third));
        assert!(queues.lock().is_empty());
    }

    /// Two slots and many who want them: none is held by two or lost, and all come to an end.
    #[test]
    fn all_are_served() {
        const THREADS: usize = 32;
        const EACH: usize = 50;
        let queues = queues();
        let free = AtomicI64::new(2);
        let take = || {
            free.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |free| {
                (free > 0).then_some(free - 1)
            })
            .is_ok()
        };
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..EACH {
                        let mut ticket = queues.enter("slots", 2, |_| true);
                        loop {
                            match ticket.wait(None) {
                                Next::Identify => ticket.is_at(Some(0)),
                                Next::Ask { .. } if take() => break,
                                Next::Ask { .. } => {
                                    if ticket.is_unknown() {
                                        ticket.is_at(Some(0));
                                    }
                                    ticket.refused();
                                }
                            }
                        }
                        ticket.served();
                        thread::yield_now();
                        free.fetch_add(1, Ordering::SeqCst);
                        queues.freed("slots", 1, None);
                    }
                });
            }
        });
        assert_eq!(free.into_inner(), 2);
        until(|| queues.lock().is_empty());
        assert_eq!(queues.tickets.load(Ordering::SeqCst), 0);
    }
}
