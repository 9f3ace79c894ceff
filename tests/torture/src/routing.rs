//! Leads the workers to the node of a cluster that takes writes, as a balancer does that asks each node.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::cluster::Cluster;
use crate::proxy::Route;

/// Between two questions to a node, and between two looks at the answers.
const PAUSE: Duration = Duration::from_millis(100);
/// An answer that is older counts as none.
const VALID: Duration = Duration::from_secs(1);

/// When a node answered last, and whether it is the primary.
type Answer = Arc<Mutex<Option<(Instant, bool)>>>;

/// Leads the proxies to the primary until the process ends, and resets connections to others as soon as there is another one.
/// The URLs are those of the servers: sessions in the run's database are ended by the nemesis. Returns when there is a primary.
pub(crate) fn follow_primary(
    cluster: Cluster,
    urls: &[String],
    addresses: Vec<SocketAddr>,
    routes: Vec<Route>,
) {
    let answers: Vec<Answer> = urls.iter().map(|url| ask(cluster, url.clone())).collect();
    let (found, is_found) = channel();
    thread::spawn(move || {
        let mut before = Vec::new();
        loop {
            let is_primary = |answer: &Answer| {
                let answer = *answer.lock().unwrap_or_else(PoisonError::into_inner);
                answer.is_some_and(|(at, is_primary)| is_primary && at.elapsed() < VALID)
            };
            let primaries = addresses.iter().zip(&answers);
            let primaries = primaries.filter(|(_, answer)| is_primary(answer));
            let primaries: Vec<SocketAddr> = primaries.map(|(address, _)| *address).collect();
            if !primaries.is_empty() && primaries != before {
                for route in &routes {
                    route.lead_to(&primaries);
                }
                before = primaries;
                // Nobody waits for it any more after the first.
                let _ = found.send(());
            }
            sleep(PAUSE);
        }
    });
    // An error means that the thread has panicked.
    let _ = is_found.recv();
}

/// Asks a node all the time. A node that is stopped does not answer until it continues.
fn ask(cluster: Cluster, url: String) -> Answer {
    let answer = Answer::default();
    let answered = Arc::clone(&answer);
    thread::spawn(move || {
        loop {
            // An error means that the node is down, or has ended the session: it is not the primary until it answers again.
            let _ = ask_until_lost(cluster, &url, &answered);
            set(&answered, None);
            sleep(PAUSE);
        }
    });
    answer
}

/// Asks on one connection until that is lost.
fn ask_until_lost(cluster: Cluster, url: &str, answered: &Answer) -> Result<Infallible> {
    let mut conn = cluster.connect(url)?;
    loop {
        let is_primary = cluster.is_primary(&mut *conn)?;
        set(answered, Some((Instant::now(), is_primary)));
        sleep(PAUSE);
    }
}

fn set(answered: &Answer, answer: Option<(Instant, bool)>) {
    *answered.lock().unwrap_or_else(PoisonError::into_inner) = answer;
}
