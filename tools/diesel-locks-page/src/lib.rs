#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderName, header};
use axum::response::Html;
use axum::routing::{get, post};
use diesel_locks::uuid::Uuid;
use diesel_locks::{Pool, RequestInfo};

use crate::acts::{Act, act};
use crate::database::{Database, Source};
use crate::history::{History, Render};
use crate::state::Reader;

mod acts;
mod database;
mod history;
mod problem;
mod state;

/// What the page shows, and what it allows.
#[derive(Clone)]
#[must_use = "it does nothing until it is given to `router`"]
pub struct Page {
    database: Arc<dyn Database>,
    name: String,
    token: Option<String>,
    requests: Option<Arc<dyn Fn() -> Vec<RequestInfo> + Send + Sync>>,
    metrics: Option<Arc<Render>>,
}

impl Page {
    /// Creates a page of this pool's database. It only reads.
    pub fn new<P: Pool>(pool: P) -> Self
    where
        Source<P, P::Style>: Database + 'static,
    {
        Self {
            database: Arc::new(Source::new(pool)),
            name: String::new(),
            token: None,
            requests: None,
            metrics: None,
        }
    }

    /// Sets the text beside the title, which tells one page from another: of the database or the process.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Allows those who know the token to release a slot, and to request its release. The page asks for it.
    ///
    /// # Panics
    ///
    /// If the token is empty, or has other characters than visible ones of ASCII: a browser can't send it.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        let token = token.into();
        assert!(
            !token.is_empty() && token.chars().all(|c| c.is_ascii_graphic()),
            "a token is visible characters of ASCII"
        );
        self.token = Some(token);
        self
    }

    /// Shows the requests that this returns, such as those of [`LockPool::requests`](diesel_locks::LockPool::requests) and
    /// [`SlotRenewer::requests`](diesel_locks::SlotRenewer::requests).
    pub fn requests(
        mut self,
        requests: impl Fn() -> Vec<RequestInfo> + Send + Sync + 'static,
    ) -> Self {
        self.requests = Some(Arc::new(requests));
        self
    }

    /// Shows the last hour of object locks and of each semaphore in this process, from its metrics (feature `metrics` of
    /// diesel-locks). `render` returns them in the text format of Prometheus, such as `PrometheusHandle::render` of the crate
    /// `metrics-exporter-prometheus`. [`router`] calls it, and then a task every 5 s. The history begins with the first call.
    pub fn metrics(mut self, render: impl Fn() -> String + Send + Sync + 'static) -> Self {
        self.metrics = Some(Arc::new(render));
        self
    }
}

/// What the handlers share.
struct Shared {
    page: Page,
    reader: Reader,
    history: Option<Arc<History>>,
    html: String,
}

/// Returns the routes of a page, for an application with any state.
///
/// # Panics
///
/// If the page has [metrics](Page::metrics), and this is called outside of a runtime of tokio.
pub fn router<S: Clone + Send + Sync + 'static>(page: Page) -> Router<S> {
    let history = page.metrics.clone().map(|render| {
        let history = Arc::new(History::new(render));
        tokio::spawn(History::keep(Arc::downgrade(&history)));
        history
    });
    let shared = Shared {
        history,
        reader: Reader::new(Arc::clone(&page.database)),
        html: include_str!("../page/index.html")
            .replace("{style}", include_str!("../page/style.css"))
            .replace("{script}", include_str!("../page/page.js")),
        page,
    };
    Router::new()
        .route("/", get(index))
        .route("/state", get(state::state))
        .route("/release", post(|a, b, c| act(Act::Release, a, b, c)))
        .route(
            "/request-release",
            post(|a, b, c| act(Act::RequestRelease, a, b, c)),
        )
        .with_state(Arc::new(shared))
}

/// One document, so that nothing in it depends on the path. Nothing but its own script and style is accepted, and no other host.
async fn index(State(shared): State<Arc<Shared>>) -> ([(HeaderName, String); 4], Html<String>) {
    let nonce = Uuid::new_v4().to_string();
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; img-src data:; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    let headers = [
        (header::CONTENT_SECURITY_POLICY, policy),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
        (header::REFERRER_POLICY, "no-referrer".to_owned()),
        (header::CACHE_CONTROL, "no-store".to_owned()),
    ];
    (headers, Html(shared.html.replace("{nonce}", &nonce)))
}
