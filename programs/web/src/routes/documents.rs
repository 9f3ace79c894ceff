//! XML documents, each stored under the object lock of its id.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use diesel_locks::{Error, LockRequest, ObjectId, Wait};
use serde::Deserialize;

use crate::app::App;
use crate::problem::Problem;
use crate::store;
use crate::xml::{self, Refusal};

/// The longest time for which a request may ask to hold its lock: less than PostgreSQL lets a transaction do nothing.
const LONGEST_HOLD_MS: u64 = 50_000;

#[derive(Deserialize)]
pub(super) struct Options {
    /// How long the lock is held, to show what waits for it.
    #[serde(default)]
    hold_ms: u64,
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
