//! XML documents, each stored under the object lock of its id.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use diesel_locks::{LockRequest, ObjectId};
use serde::Deserialize;

use crate::app::App;
use crate::problem::Problem;
use crate::store::Store;
use crate::xml::{self, Refusal};

/// The longest time for which a request may ask to hold its lock. PostgreSQL ends a transaction that does nothing
/// for longer: see `store::SET_IDLE_LIMIT`.
const LONGEST_HOLD_MS: u64 = 50_000;

#[derive(Deserialize)]
pub(super) struct Options {
    /// How long the lock is held, to show what waits for it.
    #[serde(default)]
    hold_ms: u64,
}

/// Stores the document if it is newer than the one that is stored.
pub(super) async fn put<C: Store>(
    State(app): State<Arc<App<C>>>,
    Path(id): Path<String>,
    Query(options): Query<Options>,
    body: Bytes,
) -> Result<StatusCode, Problem> {
    if options.hold_ms > LONGEST_HOLD_MS {
        let detail = format!(
            "hold_ms={} is too long: at most {LONGEST_HOLD_MS} are allowed",
            options.hold_ms
        );
        return Err(Problem::new(StatusCode::BAD_REQUEST, detail));
    }
    let text = std::str::from_utf8(&body)
        .map_err(|_| Problem::new(StatusCode::BAD_REQUEST, "the body is not UTF-8"))?;
    let changed_us = xml::changed_us(text).map_err(|refusal| match refusal {
        Refusal::Malformed(detail) => Problem::new(StatusCode::BAD_REQUEST, detail),
        Refusal::Untimed(detail) => Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail),
        Refusal::DocumentType => Problem::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "the body has a document type (<!DOCTYPE>), which is not accepted: it can declare entities",
        ),
    })?;
    let hold = Duration::from_millis(options.hold_ms);
    app.blocking(move |app, call| {
        let request = LockRequest::new(ObjectId::new("Document", &id)).wait(app.wait());
        let locks = app.locks.stopped_by(&call.stop);
        locks.with_object_lock(request, |conn| {
            drop(call.wait);
            thread::sleep(hold);
            let status = match conn.changed_us(&id)? {
                None => {
                    conn.insert_document(&id, changed_us, &body)?;
                    StatusCode::CREATED
                }
                Some(stored) if stored < changed_us => {
                    conn.update_document(&id, changed_us, &body)?;
                    StatusCode::OK
                }
                Some(_) => StatusCode::NO_CONTENT,
            };
            Ok(status)
        })
    })
    .await
}

pub(super) async fn get<C: Store>(
    State(app): State<Arc<App<C>>>,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let found = app
        .blocking(move |app, call| {
            ObjectId::new("Document", &id)
                .validate()
                .map_err(diesel_locks::Error::from)?;
            app.connection(&call)?
                .document(&id)?
                .ok_or_else(|| Problem::new(StatusCode::NOT_FOUND, format!("no document {id:?}")))
        })
        .await?;
    let headers = [
        (header::CONTENT_TYPE, "application/xml".to_owned()),
        (header::ETAG, format!("\"{}\"", found.changed_us)),
    ];
    Ok((headers, found.body).into_response())
}

#[cfg(test)]
mod tests {
    use super::LONGEST_HOLD_MS;
    use crate::store::SET_IDLE_LIMIT;

    #[test]
    fn lock_is_held_for_less_time_than_a_transaction_may_do_nothing() {
        let (_, limit) = SET_IDLE_LIMIT.rsplit_once(' ').expect("words");
        let limit_ms: u64 = limit.parse().expect("milliseconds");
        assert!(LONGEST_HOLD_MS + 5_000 <= limit_ms);
    }
}
