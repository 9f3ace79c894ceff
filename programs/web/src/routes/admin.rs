//! What only an operator may do.

use std::net::IpAddr;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
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
        .releasing(move |app, call| {
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
        .releasing(move |app, call| {
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

/// Accepts a request with the operator's token. If there is no token, accepts any request that no page of another site
/// has sent.
fn authorize(headers: &HeaderMap, token: Option<&str>) -> Result<(), Problem> {
    let refused = |detail| Err(Problem::new(StatusCode::FORBIDDEN, detail));
    if is_cross_site(headers) {
        return refused("pages of other sites may not release slots");
    }
    let Some(token) = token else {
        if names_this_machine(headers) {
            return Ok(());
        }
        return refused(
            "without --operator-token slots are released only at an IP address or localhost: set --operator-token",
        );
    };
    let given = text(headers, &header::AUTHORIZATION)
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

/// Whether the page of another site sends the request. All browsers send `Origin` with a POST; `Sec-Fetch-Site` they
/// send only to addresses that they trust.
fn is_cross_site(headers: &HeaderMap) -> bool {
    let site = headers.get("sec-fetch-site");
    if site.is_some_and(|site| site != "same-origin" && site != "none") {
        return true;
    }
    if !headers.contains_key(header::ORIGIN) {
        return false;
    }
    let origin = text(headers, &header::ORIGIN).and_then(|origin| origin.split_once("://"));
    match (origin, text(headers, &header::HOST)) {
        (Some((_, origin)), Some(host)) => !origin.eq_ignore_ascii_case(host),
        _ => true,
    }
}

/// Whether the request names its host by an IP address or as `localhost`. Any other name can be that of another site,
/// which has let it point to this machine: to a browser, pages of that site are then pages of this service.
fn names_this_machine(headers: &HeaderMap) -> bool {
    let host = text(headers, &header::HOST).and_then(|host| host.parse::<Authority>().ok());
    host.is_some_and(|host| {
        let name = host.host();
        let address = name
            .strip_prefix('[')
            .and_then(|name| name.strip_suffix(']'));
        name.eq_ignore_ascii_case("localhost") || address.unwrap_or(name).parse::<IpAddr>().is_ok()
    })
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderMap, HeaderValue};

    use super::authorize;

    fn headers(name: &'static str, value: &'static str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert("host", HeaderValue::from_static("127.0.0.1:8080"));
        headers.insert(name, HeaderValue::from_static(value));
        headers
    }

    #[test]
    fn token_is_required_if_there_is_one() {
        assert!(authorize(&headers("accept", "*/*"), None).is_ok());
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
        for (origin, accepted) in [
            ("http://127.0.0.1:8080", true),
            ("http://127.0.0.1:8081", false),
            ("http://evil.example", false),
            ("null", false),
            ("", false),
        ] {
            let given = headers("origin", origin);
            assert_eq!(authorize(&given, None).is_ok(), accepted, "{origin}");
        }
    }

    #[test]
    fn names_that_others_can_give_are_refused_without_a_token() {
        for (host, accepted) in [
            ("127.0.0.1:8080", true),
            ("[::1]:8080", true),
            ("192.0.2.1", true),
            ("LocalHost:8080", true),
            ("evil.example", false),
            ("evil.example:8080", false),
            ("localhost.evil.example", false),
            ("127.0.0.1.evil.example", false),
            ("", false),
        ] {
            let given = headers("host", host);
            assert_eq!(authorize(&given, None).is_ok(), accepted, "{host}");
        }
        assert!(authorize(&HeaderMap::new(), None).is_err());
        let mut given = headers("host", "web.example");
        given.insert("authorization", HeaderValue::from_static("Bearer secret"));
        assert!(authorize(&given, Some("secret")).is_ok());
    }
}
