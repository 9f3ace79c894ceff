//! Requests for 4 of 8 permits beside connections that request one without a pause, so that 4 are never free at once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use diesel_locks::Error;
use diesel_locks::prelude::*;
use serde_json::json;

use crate::harness::{Backend, Connections, Report};

static EIGHT: Semaphore = Semaphore::from_static("eight", 8);

const AT_ONCE: u32 = 4;

/// More than there are permits.
const OTHERS: usize = 10;

/// How long a permit is held.
const HELD: Duration = Duration::from_millis(5);

/// How a request acquires its permits before `until`; `false` if it has not.
type Acquire<C> = fn(&mut C, until: Instant) -> Result<bool, Error>;

pub(crate) fn measure<C: Backend>(time: Duration, report: &mut Report) -> Result<()> {
    let title = "Requests for 4 of 8 permits beside 10 connections that request one";
    report.table(
        title,
        "how | granted | median, ms | longest, ms | cycles of the others per second",
    );
    let ways: [(&str, Acquire<C>); 2] =
        [("permits(4)", together), ("all or none by hand", by_hand)];
    for (way, acquire) in ways {
        let (mut waits, cycles) = run(time, acquire)?;
        waits.sort_unstable();
        let ms = |wait: Option<&Duration>| wait.map(|wait| wait.as_secs_f64() * 1000.0);
        let (median, longest) = (ms(waits.get(waits.len() / 2)), ms(waits.last()));
        let per_second = f64::from(cycles) / time.as_secs_f64();
        report.row(&json!([way, waits.len(), median, longest, per_second]));
    }
    Ok(())
}

/// The time that each request took, and the cycles of the others.
fn run<C: Backend>(time: Duration, acquire: Acquire<C>) -> Result<(Vec<Duration>, u32)> {
    let mut conns = Connections::<C>::new(OTHERS + 1)?;
    conns.first().register_semaphores([&EIGHT])?;
    let ended = &AtomicBool::new(false);
    let until = Instant::now() + time;
    let mut conns = conns.iter_mut();
    let requester = conns.next().expect("the first of eleven");
    thread::scope(|scope| {
        let others: Vec<_> = conns
            .map(|conn| {
                scope.spawn(move || {
                    let mut cycles = 0;
                    while !ended.load(Ordering::Relaxed) {
                        let lease = LeaseOptions::new(Duration::from_secs(60));
                        let slot = conn.acquire_slot(&EIGHT, lease, Wait::Forever)?;
                        sleep(HELD);
                        conn.release_slot(slot)?;
                        cycles += 1;
                    }
                    Ok::<u32, Error>(cycles)
                })
            })
            .collect();
        let mut waits = Vec::new();
        let done = (|| {
            while Instant::now() < until {
                let began = Instant::now();
                if acquire(requester, until)? {
                    waits.push(began.elapsed());
                }
                sleep(HELD);
            }
            Ok::<_, Error>(())
        })();
        ended.store(true, Ordering::Relaxed);
        let mut cycles = 0;
        for other in others {
            cycles += other.join().map_err(|_| anyhow!("a panic"))??;
        }
        done?;
        Ok((waits, cycles))
    })
}

fn together<C: Backend>(conn: &mut C, until: Instant) -> Result<bool, Error> {
    let lease = LeaseOptions::new(Duration::from_secs(60)).permits(AT_ONCE);
    let wait = until.saturating_duration_since(Instant::now());
    match conn.acquire_slot(&EIGHT, lease, wait) {
        Ok(slot) => {
            sleep(HELD);
            conn.release_slot(slot)?;
            Ok(true)
        }
        Err(error) if error.is_timeout() => Ok(false),
        Err(error) => Err(error),
    }
}

fn by_hand<C: Backend>(conn: &mut C, until: Instant) -> Result<bool, Error> {
    while Instant::now() < until {
        let mut slots = Vec::new();
        while let Some(slot) =
            conn.try_acquire_slot(&EIGHT, LeaseOptions::new(Duration::from_secs(60)))?
        {
            slots.push(slot);
            if slots.len() == AT_ONCE as usize {
                break;
            }
        }
        let has_all = slots.len() == AT_ONCE as usize;
        if has_all {
            sleep(HELD);
        }
        for slot in slots {
            conn.release_slot(slot)?;
        }
        if has_all {
            return Ok(true);
        }
        sleep(HELD);
    }
    Ok(false)
}
