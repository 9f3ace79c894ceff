//! `serve`: the page of diesel-locks-page.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::uri::Authority;
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use diesel::r2d2::{ConnectionManager, CustomizeConnection, Error as R2d2Error, Pool};
use diesel_locks_page::Page;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::runtime::Builder;

use crate::arguments::Serve;
use crate::database::{AnyConnection, Database};
use crate::failure::Failure;
use crate::output::Report;

/// How long a reading waits for a connection.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Serves until the process is ended.
pub(crate) fn serve(database: &Database, options: Serve, as_json: bool) -> Result<u8, Failure> {
    // Says why it can't be opened, and does not create a file.
    drop(database.open()?);
    let pool = Pool::builder()
        .max_size(2)
        .min_idle(Some(0))
        .connection_timeout(TIMEOUT)
        .connection_customizer(Box::new(Session))
        .build_unchecked(ConnectionManager::new(&database.url));
    let page = Page::new(pool).name(database.name());
    let mut router: Router = diesel_locks_page::router(match options.token {
        Some(token) => page.token(token),
        None => page,
    });
    if options.listen.ip().is_loopback() {
        router = router.layer(from_fn(only_of_this_machine));
    }
    let served = || -> io::Result<()> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let listener = TcpListener::bind(options.listen).await?;
            let url = format!("http://{}", listener.local_addr()?);
            // It serves also when nobody can read that.
            let report = Report::new(format!("listening on {url}"), json!({ "url": url }));
            let _ = report.print(as_json);
            axum::serve(listener, router).await
        })
    };
    served().map_err(|error| {
        Failure::NotDone(format!("can't listen on {}: {error}", options.listen))
    })?;
    Ok(0)
}

/// Refuses a name that another site has pointed to this machine (DNS rebinding), whose scripts could read the page.
async fn only_of_this_machine(request: Request, next: Next) -> Response {
    let host = request.headers().get(header::HOST);
    let host = host.and_then(|host| host.to_str().ok()?.parse::<Authority>().ok());
    let is_of_this_machine = host.is_some_and(|host| {
        let name = host.host().trim_matches(['[', ']']);
        name == "localhost" || name.parse::<IpAddr>().is_ok()
    });
    if is_of_this_machine {
        next.run(request).await
    } else {
        StatusCode::MISDIRECTED_REQUEST.into_response()
    }
}

/// Sets up each connection of the pool.
#[derive(Debug)]
struct Session;

impl CustomizeConnection<AnyConnection, R2d2Error> for Session {
    fn on_acquire(&self, conn: &mut AnyConnection) -> Result<(), R2d2Error> {
        conn.set_up()
            .map_err(|error| R2d2Error::QueryError(error.into()))
    }
}
