//! XML documents, each stored under the object lock of its id.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result as Reading};
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use diesel_locks::{Error, LockRequest, ObjectId, Wait};
use program_support::document::{first_children, timestamp};
use serde::Deserialize;

use crate::app::App;
use crate::problem::Problem;
use crate::store;

/// The longest time for which a request may ask to hold its lock: less than PostgreSQL lets a transaction do nothing.
const LONGEST_HOLD_MS: u64 = 50_000;

#[derive(Deserialize)]
pub(super) struct Options {
    /// How long the lock is held, to show what waits for it.
    #[serde(default)]
    hold_ms: u64,
}

/// The time of change in this child of the root, as microseconds since 1970. Reads the whole document, which must be
/// well-formed.
fn changed_us(xml: &[u8], element: &str) -> Reading<i64> {
    let [changed] = first_children(xml, [element])?;
    let changed = timestamp(&changed).with_context(|| format!("<{element}> can't be used"))?;
    Ok(changed.and_utc().timestamp_micros())
}

/// Stores the document if it is newer than the one that is stored.
pub(super) async fn put(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    Query(Options { hold_ms }): Query<Options>,
    body: Bytes,
) -> Result<StatusCode, Problem> {
    if hold_ms > LONGEST_HOLD_MS {
        let detail =
            format!("hold_ms={hold_ms} is too long: at most {LONGEST_HOLD_MS} are allowed");
        return Err(Problem::new(StatusCode::BAD_REQUEST, detail));
    }
    let changed_us = changed_us(&body, &app.arguments.timestamp_element).map_err(|refusal| {
        Problem::new(StatusCode::UNPROCESSABLE_ENTITY, format!("{refusal:#}"))
    })?;
    app.blocking(move |app, stop| {
        let wait = Wait::AtMost(app.arguments.wait);
        let request = LockRequest::new(ObjectId::new("Document", &id)).wait(wait);
        app.locks
            .stopped_by(stop)
            .with_object_lock(request, |conn| {
                thread::sleep(Duration::from_millis(hold_ms));
                let status = match store::changed_us(conn, &id)? {
                    None => {
                        store::insert_document(conn, &id, changed_us, &body)?;
                        StatusCode::CREATED
                    }
                    Some(stored) if stored < changed_us => {
                        store::update_document(conn, &id, changed_us, &body)?;
                        StatusCode::OK
                    }
                    Some(_) => StatusCode::NO_CONTENT,
                };
                Ok(status)
            })
    })
    .await
}

pub(super) async fn get(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let document = app
        .blocking(move |app, stop| {
            ObjectId::new("Document", &id)
                .validate()
                .map_err(Error::from)?;
            let mut conn = app.connection(stop)?;
            store::document(&mut conn, &id)?
                .ok_or_else(|| Problem::new(StatusCode::NOT_FOUND, format!("no document {id:?}")))
        })
        .await?;
    let headers = [
        (header::CONTENT_TYPE, "application/xml".to_owned()),
        (header::ETAG, format!("\"{}\"", document.changed_us)),
    ];
    Ok((headers, document.body).into_response())
}
