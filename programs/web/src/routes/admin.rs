//! What only an operator may do.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use diesel_locks::{Error, Slot};
use serde::Deserialize;
use serde_json::{Value, json};
use subtle::ConstantTimeEq;

use crate::app::App;
use crate::problem::Problem;
use crate::store::Store;

/// Releases all slots of a semaphore, whoever holds them.
pub(super) async fn release<C: Store>(
    State(app): State<Arc<App<C>>>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Json<Value>, Problem> {
    authorize(&headers, app.settings.operator_token.as_deref())?;
    let released = app
        .blocking(move |app, call| {
            drop(call.wait);
            let released = app.operator_connection()?.force_release_all(&name)?;
            Ok(json!({ "semaphore": name, "released": released }))
        })
        .await?;
    Ok(Json(released))
}

/// The grant that the operator saw.
#[derive(Deserialize)]
pub(super) struct Grant {
    fence: i64,
}

/// Releases one slot, if it still has the grant of this fence. Answers 409 if it has not: nobody else loses the slot.
pub(super) async fn release_slot<C: Store>(
    State(app): State<Arc<App<C>>>,
    Path((name, number)): Path<(String, u32)>,
    Query(Grant { fence }): Query<Grant>,
    headers: HeaderMap,
) -> Result<Json<Value>, Problem> {
    authorize(&headers, app.settings.operator_token.as_deref())?;
    let released = app
        .blocking(move |app, call| {
            drop(call.wait);
            let gone = || {
                let detail =
                    format!("slot {number} of {name:?} is not held with the fence {fence}");
                Problem::new(StatusCode::CONFLICT, detail)
            };
            let mut conn = app.operator_connection()?;
            let conn: &mut C = &mut conn;
            let held = conn.held_slots(&name)?;
            let mut held = held
                .iter()
                .filter(|held| held.number == number && held.fence == fence);
            let token = held.next().and_then(|held| held.token).ok_or_else(gone)?;
            match conn.release_slot(Slot::from_parts(name.as_str(), number, token, fence)) {
                Err(Error::SlotLost { .. }) => Err(gone()),
                Err(error) => Err(error.into()),
                Ok(_) => Ok(json!({ "semaphore": name, "slot": number, "released": 1 })),
            }
        })
        .await?;
    Ok(Json(released))
}

/// Accepts a request with the operator's token, and any request of the service's own page if there is no token.
fn authorize(headers: &HeaderMap, token: Option<&str>) -> Result<(), Problem> {
    // A browser says so when the page of another site sends the request.
    let site = headers.get("sec-fetch-site");
    if site.is_some_and(|site| site != "same-origin" && site != "none") {
        return Err(Problem::new(
            StatusCode::FORBIDDEN,
            "pages of other sites may not release slots",
        ));
    }
    let Some(token) = token else {
        return Ok(());
    };
    let given = headers
        .get(header::AUTHORIZATION)
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
    use axum::http::{HeaderMap, HeaderValue};

    use super::authorize;

    fn headers(name: &'static str, value: &'static str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(name, HeaderValue::from_static(value));
        headers
    }

    #[test]
    fn token_is_required_if_there_is_one() {
        assert!(authorize(&HeaderMap::new(), None).is_ok());
        assert!(authorize(&HeaderMap::new(), Some("secret")).is_err());
        for (value, accepted) in [
            ("Bearer secret", true),
            ("Bearer secrets", false),
            ("Bearer ", false),
            ("secret", false),
        ] {
            let given = headers("authorization", value);
            assert_eq!(
                authorize(&given, Some("secret")).is_ok(),
                accepted,
                "{value}"
            );
        }
    }

    #[test]
    fn pages_of_other_sites_are_refused() {
        assert!(authorize(&headers("sec-fetch-site", "cross-site"), None).is_err());
        assert!(authorize(&headers("sec-fetch-site", "same-site"), None).is_err());
        assert!(authorize(&headers("sec-fetch-site", "same-origin"), None).is_ok());
    }
}
