//! What only those may do who know the token.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::http::{HeaderMap, StatusCode, header};
use serde::Deserialize;
use serde_json::{Value, json};
use subtle::ConstantTimeEq;
use tokio::time;

use crate::Shared;
use crate::problem::Problem;

/// How long an act may take.
const LIMIT: Duration = Duration::from_secs(10);

/// The grant that the operator saw: nobody who was not seen loses a slot.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    pub(crate) semaphore: String,
    pub(crate) slot: u32,
    /// Text: JavaScript rounds numbers above 2^53.
    pub(crate) fence: String,
}

#[derive(Clone, Copy)]
pub enum Act {
    Release,
    RequestRelease,
}

/// Answers 409 if nobody holds the grant by now.
pub(crate) async fn act(
    act: Act,
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    grant: Result<Json<Grant>, JsonRejection>,
) -> Result<Json<Value>, Problem> {
    authorize(&headers, shared.page.token.as_deref())?;
    let Json(grant) = grant.map_err(|error| Problem(error.status(), error.body_text()))?;
    let gone = format!(
        "slot {} of {:?} is not held with the fence {}: nothing was done",
        grant.slot, grant.semaphore, grant.fence
    );
    let act = shared.page.database.act(act, grant);
    let silent = "the database does not answer: look whether it was done before you repeat it";
    let ended = time::timeout(LIMIT, act).await;
    let ended = ended.map_err(|_| Problem(StatusCode::GATEWAY_TIMEOUT, silent.to_owned()))?;
    if ended.map_err(Problem::panicked)?? {
        return Ok(Json(json!({})));
    }
    Err(Problem(StatusCode::CONFLICT, gone))
}

/// Accepts a request with the token.
fn authorize(headers: &HeaderMap, token: Option<&str>) -> Result<(), Problem> {
    let Some(token) = token else {
        let detail = "this page only reads: the program that serves it has set no token";
        return Err(Problem(StatusCode::FORBIDDEN, detail.to_owned()));
    };
    let given = headers.get(header::AUTHORIZATION);
    let given = given
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.strip_prefix("Bearer "))
        .unwrap_or_default();
    if bool::from(given.as_bytes().ct_eq(token.as_bytes())) {
        return Ok(());
    }
    let detail = "the token is missing or wrong";
    Err(Problem(StatusCode::UNAUTHORIZED, detail.to_owned()))
}
