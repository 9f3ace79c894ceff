//! What only an operator may do.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use diesel_locks::{Error, InspectExt, ListOptions, SemaphoreExt, Slot};
use serde::Deserialize;
use serde_json::{Value, json};
use subtle::ConstantTimeEq;
use tokio::task;

use crate::app::App;
use crate::problem::Problem;
use crate::store::Connections;

/// The grants that the operator saw.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Grants {
    grants: Vec<Grant>,
}

/// A slot, and the fence of the grant that it had: a text, as the page has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Grant {
    slot: u32,
    fence: String,
}

/// Releases the slots that still have these grants: nobody who was not seen loses a slot. Answers 409 if none has.
pub(super) async fn release(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    Json(Grants { grants }): Json<Grants>,
) -> Result<Json<Value>, Problem> {
    authorize(&headers, app.arguments.operator_token.as_deref())?;
    let (named, semaphore) = (grants.len(), name.clone());
    let released = task::spawn_blocking(move || release_grants(&app.operator, &name, &grants));
    let released = released.await.map_err(|_panicked| Problem::internal())??;
    if released == 0 {
        let detail = format!("no slot of {semaphore:?} is held with the fence that was named");
        return Err(Problem::new(StatusCode::CONFLICT, detail));
    }
    let gone = named - released;
    Ok(Json(
        json!({ "semaphore": semaphore, "released": released, "gone": gone }),
    ))
}

/// Returns how many of the grants were released; the others had ended.
fn release_grants(pool: &Connections, name: &str, grants: &[Grant]) -> Result<usize, Error> {
    let mut conn = pool.get()?;
    let mut released = 0;
    for held in conn.held_slots(&ListOptions::new().name(name))? {
        let fence = held.fence.to_string();
        let is_named = |grant: &Grant| grant.slot == held.number && grant.fence == fence;
        let Some(token) = held.token.filter(|_| grants.iter().any(is_named)) else {
            continue;
        };
        match conn.release_slot(Slot::from_parts(name, held.number, token, held.fence)) {
            Ok(_) => released += 1,
            Err(Error::SlotLost { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(released)
}

/// Accepts a request with the operator's token.
fn authorize(headers: &HeaderMap, token: Option<&str>) -> Result<(), Problem> {
    let token = token.ok_or_else(|| {
        let detail = "nobody can release slots: start the service with --operator-token";
        Problem::new(StatusCode::FORBIDDEN, detail)
    })?;
    let given = headers.get(header::AUTHORIZATION);
    let given = given
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.strip_prefix("Bearer "))
        .unwrap_or_default();
    if bool::from(given.as_bytes().ct_eq(token.as_bytes())) {
        return Ok(());
    }
    let detail =
        "the operator's token is missing or wrong: send it as Authorization: Bearer <token>";
    Err(Problem::new(StatusCode::UNAUTHORIZED, detail))
}
