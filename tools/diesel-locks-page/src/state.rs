//! What the page shows: the lists of the database, read once for all browsers, and the requests of this process.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use diesel_locks::{Error, ObjectId, RequestInfo, RequestSubject};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time;

use crate::Shared;
use crate::database::{Database, Lists};
use crate::problem::Problem;

/// How long the lists are those of the last reading. MariaDB returns an old list of locks if it is asked every 0.1 s.
const FRESH: Duration = Duration::from_millis(900);

/// How long a request for the lists may take.
const LIMIT: Duration = Duration::from_secs(3);

/// The requests of the process that are shown at most.
const MOST_REQUESTS: usize = 200;

#[derive(Deserialize)]
pub(crate) struct Selection {
    /// Only what has names that begin with this.
    #[serde(default)]
    prefix: String,
}

pub(crate) async fn state(
    State(shared): State<Arc<Shared>>,
    Query(Selection { prefix }): Query<Selection>,
) -> Result<impl IntoResponse, Problem> {
    let silent = || "the database does not answer".to_owned();
    let lists = time::timeout(LIMIT, shared.reader.lists(&prefix)).await;
    let lists = lists.map_err(|_| Problem(StatusCode::SERVICE_UNAVAILABLE, silent()))??;
    let page = &shared.page;
    let requests = page.requests.as_ref().map(|of| requests(of(), &prefix));
    let state = json!({
        "name": page.name,
        "may_act": page.token.is_some(),
        "lists": &*lists,
        "requests": requests,
        "history": shared.history.as_ref().map(|history| history.rows(&prefix)),
    });
    Ok(([(header::CACHE_CONTROL, "no-store")], axum::Json(state)))
}

/// The oldest first.
fn requests(mut found: Vec<RequestInfo>, prefix: &str) -> Value {
    found.retain(|it| prefix.is_empty() || names(&it.subject).any(|name| name.starts_with(prefix)));
    found.sort_by_key(|it| std::cmp::Reverse(it.age));
    let rows = found.iter().take(MOST_REQUESTS).map(|it| {
        json!({
            "subject": it.subject.to_string(),
            "age_s": it.age.as_secs(),
            "inside_s": it.inside_for.map(|inside| inside.as_secs()),
        })
    });
    json!({ "rows": rows.collect::<Vec<_>>(), "total": found.len(), "may_be_more": false, "refusal": null })
}

fn names(subject: &RequestSubject) -> impl Iterator<Item = &str> {
    let (ids, semaphore) = match subject {
        RequestSubject::Objects { ids, .. } => (&ids[..], None),
        RequestSubject::Slots { semaphore, .. } => (&[][..], Some(semaphore.name())),
        _ => (&[][..], None),
    };
    ids.iter().map(ObjectId::as_str).chain(semaphore)
}

/// Reads on one connection at a time. A reading that has no answer is waited for by all, and not sent again.
pub(crate) struct Reader {
    database: Arc<dyn Database>,
    readings: Mutex<Readings>,
}

#[derive(Default)]
struct Readings {
    running: Option<(String, JoinHandle<Result<Lists, Error>>)>,
    last: Option<(String, Instant, Arc<Lists>)>,
}

impl Reader {
    pub(crate) fn new(database: Arc<dyn Database>) -> Self {
        Self {
            database,
            readings: Mutex::default(),
        }
    }

    /// If the future is dropped, the reading that it has started continues.
    async fn lists(&self, prefix: &str) -> Result<Arc<Lists>, Problem> {
        let readings = &mut *self.readings.lock().await;
        loop {
            if let Some((of, read, lists)) = &readings.last
                && of == prefix
                && read.elapsed() < FRESH
            {
                return Ok(Arc::clone(lists));
            }
            let (of, running) = readings
                .running
                .get_or_insert_with(|| (prefix.to_owned(), self.database.read(prefix)));
            let of = of.clone();
            let ended = running.await;
            readings.running = None;
            match ended.map_err(Problem::panicked)? {
                Ok(lists) => readings.last = Some((of, Instant::now(), Arc::new(lists))),
                Err(error) if of == prefix => return Err(error.into()),
                Err(_) => {}
            }
        }
    }
}
