//! What a request must be before it reaches a handler: for this host, from no page of another site, and with a body
//! that is not compressed.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::app::App;
use crate::problem::Problem;
use crate::store::Store;

/// Refuses requests that other sites have caused. Health checks and metrics are outside of it: probes name the service
/// as they like, and these answers tell nothing of the data.
pub(super) async fn check<C: Store>(
    State(app): State<Arc<App<C>>>,
    request: Request,
    next: Next,
) -> Response {
    let headers = request.headers();
    if let Err(problem) = check_host(headers, &app.arguments.hosts) {
        return problem.into_response();
    }
    if !request.method().is_safe() {
        if is_cross_site(headers) {
            let detail = "pages of other sites may not change anything here";
            return Problem::new(StatusCode::FORBIDDEN, detail).into_response();
        }
        if let Some(coding) = coding(headers) {
            return unsupported(&coding);
        }
    }
    next.run(request).await
}

/// Accepts an IP address, `localhost`, and the names of `--host`. Any other name can be that of another
/// site, which has let it point to this machine: to a browser, pages of that site are then pages of this service.
fn check_host(headers: &HeaderMap, known: &[String]) -> Result<(), Problem> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        let detail = "a request has one header Host";
        return Err(Problem::new(StatusCode::BAD_REQUEST, detail));
    };
    let host = host.to_str().unwrap_or_default();
    let is_known = host.parse::<Authority>().is_ok_and(|host| {
        let name = host.host();
        is_this_machine(name) || known.iter().any(|known| known.eq_ignore_ascii_case(name))
    });
    if is_known {
        return Ok(());
    }
    let detail = format!(
        "the service is not known as {host:?}: name it by its IP address, or start it with --host"
    );
    Err(Problem::new(StatusCode::FORBIDDEN, detail))
}

fn is_this_machine(name: &str) -> bool {
    let address = name
        .strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'));
    name.eq_ignore_ascii_case("localhost") || address.unwrap_or(name).parse::<IpAddr>().is_ok()
}

/// Whether the page of another site sends the request. All browsers send `Origin` with a method that is not safe;
/// `Sec-Fetch-Site` they send only to addresses that they trust.
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

/// The content codings of the body, if it has any.
fn coding(headers: &HeaderMap) -> Option<String> {
    let codings = headers.get_all(header::CONTENT_ENCODING).iter();
    let codings: Vec<&str> = codings
        .flat_map(|codings| codings.to_str().unwrap_or("unreadable").split(','))
        .map(str::trim)
        .filter(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case("identity"))
        .collect();
    (!codings.is_empty()).then(|| codings.join(", "))
}

/// Names what is supported, as RFC 9110 (15.5.16) demands.
fn unsupported(coding: &str) -> Response {
    let detail = format!(
        "the body has the content coding {coding:?}: send it without one, as Accept-Encoding: identity says"
    );
    let mut response = Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail).into_response();
    let supported = HeaderValue::from_static("identity");
    response
        .headers_mut()
        .insert(header::ACCEPT_ENCODING, supported);
    response
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderMap, HeaderValue};

    use super::{check_host, coding, is_cross_site};

    fn headers(name: &'static str, value: &'static str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert("host", HeaderValue::from_static("127.0.0.1:8080"));
        headers.insert(name, HeaderValue::from_static(value));
        headers
    }

    #[test]
    fn pages_of_other_sites_are_told_apart() {
        assert!(is_cross_site(&headers("sec-fetch-site", "cross-site")));
        assert!(is_cross_site(&headers("sec-fetch-site", "same-site")));
        assert!(!is_cross_site(&headers("sec-fetch-site", "same-origin")));
        assert!(!is_cross_site(&headers("accept", "*/*")));
        for (origin, accepted) in [
            ("http://127.0.0.1:8080", true),
            ("http://127.0.0.1:8081", false),
            ("http://evil.example", false),
            ("null", false),
            ("", false),
        ] {
            let given = headers("origin", origin);
            assert_eq!(!is_cross_site(&given), accepted, "{origin}");
        }
    }

    #[test]
    fn names_that_others_can_give_are_refused() {
        let known = ["web.example".to_owned()];
        for (host, accepted) in [
            ("127.0.0.1:8080", true),
            ("[::1]:8080", true),
            ("192.0.2.1", true),
            ("LocalHost:8080", true),
            ("Web.example:8080", true),
            ("evil.example", false),
            ("evil.example:8080", false),
            ("web.example.evil.example", false),
            ("localhost.evil.example", false),
            ("127.0.0.1.evil.example", false),
            ("", false),
        ] {
            let given = headers("host", host);
            assert_eq!(check_host(&given, &known).is_ok(), accepted, "{host}");
        }
        assert!(check_host(&HeaderMap::new(), &known).is_err());
        let mut two = headers("host", "127.0.0.1");
        two.append("host", HeaderValue::from_static("127.0.0.1"));
        assert!(check_host(&two, &known).is_err());
    }

    #[test]
    fn codings_of_the_body_are_found() {
        let of = |value| coding(&headers("content-encoding", value));
        assert_eq!(of("gzip").as_deref(), Some("gzip"));
        assert_eq!(of("identity, br").as_deref(), Some("br"));
        assert_eq!(of("Identity"), None);
        assert_eq!(coding(&HeaderMap::new()), None);
    }
}
