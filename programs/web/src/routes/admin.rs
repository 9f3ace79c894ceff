//! What only an operator may do.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use diesel_locks::{Error, InspectExt, ListOptions, Slot, SlotInfo};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use subtle::ConstantTimeEq;

use crate::app::App;
use crate::problem::Problem;
use crate::store::Store;

/// The grants that the operator saw.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Grants {
    grants: Vec<Grant>,
}

/// A slot, and the fence of the grant that it had.
#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct Grant {
    slot: u32,
    #[serde(deserialize_with = "number_as_text")]
    fence: i64,
}

/// Releases the slots that still have these grants: nobody who was not seen loses a slot. Answers 409 if none has.
pub(super) async fn release<C: Store>(
    State(app): State<Arc<App<C>>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    grants: Result<Json<Grants>, JsonRejection>,
) -> Result<Json<Value>, Problem> {
    authorize(&headers, app.arguments.operator_token.as_deref())?;
    let Json(Grants { grants }) = grants?;
    if grants.is_empty() {
        let detail = "no grants are named: send the slot and the fence of each holder to release";
        return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail));
    }
    let (named, released) = (grants.len(), release_grants(&app, &name, grants).await?);
    if released == 0 {
        let detail = format!("no slot of {name:?} is held with the fence that was named");
        return Err(Problem::new(StatusCode::CONFLICT, detail));
    }
    let gone = named - released;
    Ok(Json(
        json!({ "semaphore": name, "released": released, "gone": gone }),
    ))
}

#[derive(Deserialize)]
pub(super) struct Fence {
    fence: i64,
}

/// Releases one slot, if it still has the grant of this fence. Answers 409 if it has not.
pub(super) async fn release_slot<C: Store>(
    State(app): State<Arc<App<C>>>,
    Path((name, slot)): Path<(String, u32)>,
    Query(Fence { fence }): Query<Fence>,
    headers: HeaderMap,
) -> Result<Json<Value>, Problem> {
    authorize(&headers, app.arguments.operator_token.as_deref())?;
    if release_grants(&app, &name, vec![Grant { slot, fence }]).await? == 0 {
        let detail = format!("slot {slot} of {name:?} is not held with the fence {fence}");
        return Err(Problem::new(StatusCode::CONFLICT, detail));
    }
    Ok(Json(
        json!({ "semaphore": name, "slot": slot, "released": 1 }),
    ))
}

/// Returns how many of the grants were released; the others had ended.
async fn release_grants<C: Store>(
    app: &Arc<App<C>>,
    name: &str,
    grants: Vec<Grant>,
) -> Result<usize, Problem> {
    let name = name.to_owned();
    app.releasing(move |app, call| {
        drop(call.wait);
        let mut conn = app.operator_connection()?;
        let conn: &mut C = &mut conn;
        let held = conn.held_slots(&ListOptions::new().name(&name))?;
        let mut released = 0;
        for slot in grants.iter().filter_map(|grant| find(&held, *grant)) {
            match conn.release_slot(slot) {
                Ok(_) => released += 1,
                Err(Error::SlotLost { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(released)
    })
    .await
}

fn find(held: &[SlotInfo], grant: Grant) -> Option<Slot> {
    let found = held
        .iter()
        .find(|held| held.number == grant.slot && held.fence == grant.fence)?;
    Some(Slot::from_parts(
        found.semaphore.as_str(),
        found.number,
        found.token?,
        found.fence,
    ))
}

/// A number that may exceed 2^53, as the page has it.
fn number_as_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(serde::de::Error::custom)
}

/// Accepts a request with the operator's token, and any request if there is none.
fn authorize(headers: &HeaderMap, token: Option<&str>) -> Result<(), Problem> {
    let Some(token) = token else {
        return Ok(());
    };
    let given = headers.get(header::AUTHORIZATION);
    let given = given
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.strip_prefix("Bearer "))
        .unwrap_or_default();
    if bool::from(given.as_bytes().ct_eq(token.as_bytes())) {
        Ok(())
    } else {
        Err(Problem::new(
            StatusCode::UNAUTHORIZED,
            "the operator's token is missing or wrong: send it as Authorization: Bearer <token>",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::Grants;

    #[test]
    fn fences_are_not_rounded() {
        let text = r#"{"grants":[{"slot":2,"fence":"9223372036854775807"}]}"#;
        let read: Grants = serde_json::from_str(text).expect("grants");
        assert_eq!((read.grants[0].slot, read.grants[0].fence), (2, i64::MAX));
        let rounded = r#"{"grants":[{"slot":2,"fence":9007199254740993}]}"#;
        assert!(serde_json::from_str::<Grants>(rounded).is_err());
    }
}
