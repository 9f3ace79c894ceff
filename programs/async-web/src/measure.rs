//! `async-web measure`: many clients revise one document, and some of them hang up.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use hyper::Method;
use program_support::{outcome as printing, terminal};
use rand::RngExt;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::arguments::MeasureArguments;
use crate::check::check;
use crate::clients::{Answer, send};
use crate::outcome::Outcome;
use crate::service::router;
use crate::store::Store;

/// The document that all clients revise.
pub(crate) const DOCUMENT: &str = "measure";

/// How long a client waits at most before it hangs up, if it does.
const PATIENCE_MS: u64 = 200;

/// The pause between two health checks.
const HEALTH_PAUSE: Duration = Duration::from_millis(5);

/// What dropped requests have left must be gone within this time.
const CLEANED: Duration = Duration::from_secs(10);

/// What the clients have seen.
#[derive(Default)]
pub(crate) struct Seen {
    /// The revisions that were answered.
    pub(crate) revisions: Vec<i64>,
    pub(crate) reports: usize,
    /// Requests for the document whose clients hung up.
    pub(crate) hung_up: usize,
    /// Of these, the requests whose closures were cut off.
    pub(crate) cut_off: usize,
    /// How long after the first of these a client had its answer that wanted the lock then.
    pub(crate) free_after_cut_off: Option<Duration>,
    pub(crate) busy: usize,
    pub(crate) errors: usize,
}

impl Seen {
    fn add_answer(&mut self, answer: Answer) -> Result<()> {
        match answer {
            Answer::Done(revision) => self.revisions.push(revision.parse()?),
            Answer::HungUp => self.hung_up += 1,
            Answer::Busy => self.busy += 1,
            Answer::Failed(status) => {
                eprintln!("PUT: {status}");
                self.errors += 1;
            }
        }
        Ok(())
    }

    fn add(&mut self, other: Self) {
        self.revisions.extend(other.revisions);
        self.reports += other.reports;
        self.hung_up += other.hung_up;
        self.cut_off += other.cut_off;
        self.free_after_cut_off = self.free_after_cut_off.or(other.free_after_cut_off);
        self.busy += other.busy;
        self.errors += other.errors;
    }
}

/// A load, and what it found.
pub(crate) async fn run(store: Arc<dyn Store>, options: &MeasureArguments) -> Result<ExitCode> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let server = listener.local_addr()?;
    let service = tokio::spawn(axum::serve(listener, router(Arc::clone(&store))).into_future());
    let before = store.revisions(DOCUMENT).await;
    let before = before.map_err(anyhow::Error::from_boxed)?;
    if !options.output.json {
        terminal::print(format!(
            "{} clients revise one document on {} for {} s",
            options.clients,
            store.engine(),
            options.seconds
        ));
    }

    let mut seen = if options.hang_ups == 0 {
        Seen::default()
    } else {
        cut_off(server, &*store).await?
    };
    let end = Instant::now() + Duration::from_secs(options.seconds);
    let mut clients = JoinSet::new();
    for _ in 0..options.clients {
        clients.spawn(revise(server, end, options.hang_ups));
    }
    for _ in 0..options.clients.div_ceil(3) {
        clients.spawn(report(server, end));
    }
    let health = watch_health(server, end).await?;
    while let Some(client) = clients.join_next().await {
        seen.add(client.context("a client has panicked")??);
    }

    // Nobody asks any more: the lock must be free, and nobody must wait.
    let asked = Instant::now();
    let revised = timeout(CLEANED, store.revise(DOCUMENT, Duration::ZERO)).await;
    let is_free = match revised {
        Ok(Ok(revision)) => {
            seen.revisions.push(revision);
            true
        }
        Ok(Err(error)) => {
            eprintln!("{error}");
            false
        }
        Err(_) => false,
    };
    let free_after = asked.elapsed();
    let waiting = store.waiting();
    let [revising, _] = store.witnesses();
    // Those that were cut off have given up the lock.
    seen.cut_off = revising.cut_off();
    service.abort();

    let after = store.revisions(DOCUMENT).await;
    let after = after.map_err(anyhow::Error::from_boxed)?;
    let checked = check(&before, &after, &seen);
    let free_after = is_free.then_some(free_after);
    let outcome = Outcome::new(
        &*store, options, &seen, &checked, health, free_after, waiting,
    );
    printing::print(&outcome, options.output.json)?;
    Ok(outcome.exit_code())
}

/// Revises the document again and again.
async fn revise(server: SocketAddr, end: Instant, hang_ups: u32) -> Result<Seen> {
    let mut seen = Seen::default();
    let path = format!("/documents/{DOCUMENT}");
    while Instant::now() < end {
        let patience = rand::rng()
            .random_ratio(hang_ups, 100)
            .then(|| Duration::from_millis(rand::rng().random_range(0..PATIENCE_MS)));
        seen.add_answer(send(server, &Method::PUT, &path, patience).await?)?;
    }
    Ok(seen)
}

/// A client hangs up as soon as its closure has begun, and the next one wants the lock; again and again, until a closure was
/// cut off.
async fn cut_off(server: SocketAddr, store: &dyn Store) -> Result<Seen> {
    let [revising, _] = store.witnesses();
    let (mut seen, started) = (Seen::default(), Instant::now());
    let path = format!("/documents/{DOCUMENT}");
    while seen.free_after_cut_off.is_none() {
        anyhow::ensure!(started.elapsed() < CLEANED, "no closure was cut off");
        let mut begun = revising.begun();
        let answer = tokio::select! {
            answer = send(server, &Method::PUT, &path, None) => answer?,
            // The connection is dropped, and so closed.
            _ = begun.changed() => Answer::HungUp,
        };
        seen.add_answer(answer)?;
        let hung_up = Instant::now();
        seen.add_answer(send(server, &Method::PUT, &path, None).await?)?;
        if revising.cut_off() > 0 {
            seen.free_after_cut_off = Some(hung_up.elapsed());
        }
    }
    Ok(seen)
}

/// Asks for the report again and again.
async fn report(server: SocketAddr, end: Instant) -> Result<Seen> {
    let mut seen = Seen::default();
    while Instant::now() < end {
        match send(server, &Method::GET, "/report", None).await? {
            Answer::Done(_) => seen.reports += 1,
            Answer::HungUp | Answer::Busy => seen.busy += 1,
            Answer::Failed(status) => {
                eprintln!("GET /report: {status}");
                seen.errors += 1;
            }
        }
    }
    Ok(seen)
}

/// Returns how long each health check took.
async fn watch_health(server: SocketAddr, end: Instant) -> Result<Vec<Duration>> {
    let mut times = Vec::new();
    while Instant::now() < end {
        let asked = Instant::now();
        let answer = send(server, &Method::GET, "/health", None).await?;
        anyhow::ensure!(matches!(answer, Answer::Done(_)), "GET /health: {answer:?}");
        times.push(asked.elapsed());
        sleep(HEALTH_PAUSE).await;
    }
    Ok(times)
}
