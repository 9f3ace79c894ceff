//! Clients of the service, each request on a connection of its own.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http1::handshake;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// What became of a request.
#[derive(Debug)]
pub(crate) enum Answer {
    /// 200, with the text of the body.
    Done(String),
    /// 503: the lock or the slot was not free within the time of the request.
    Busy,
    /// Another answer.
    Failed(StatusCode),
    /// The client has closed the connection before the answer.
    HungUp,
}

/// Sends a request. Hangs up when the patience is at an end.
pub(crate) async fn send(
    server: SocketAddr,
    method: &Method,
    path: &str,
    patience: Option<Duration>,
) -> Result<Answer> {
    match patience {
        None => answer(server, method, path).await,
        // The connection is dropped with the future, and so closed.
        Some(patience) => match timeout(patience, answer(server, method, path)).await {
            Ok(answer) => answer,
            Err(_) => Ok(Answer::HungUp),
        },
    }
}

async fn answer(server: SocketAddr, method: &Method, path: &str) -> Result<Answer> {
    let stream = TcpStream::connect(server).await.context("no connection")?;
    let (mut sender, connection) = handshake(TokioIo::new(stream)).await?;
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", server.to_string())
        .body(Empty::<Bytes>::new())?;
    let exchange = async {
        let response = sender.send_request(request).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        drop(sender);
        anyhow::Ok((status, body))
    };
    // The connection is not a task of its own, which would outlive this future.
    let (exchanged, _) = tokio::join!(exchange, connection);
    let (status, body) = exchanged?;
    Ok(match status {
        StatusCode::OK => Answer::Done(String::from_utf8_lossy(&body).into_owned()),
        StatusCode::SERVICE_UNAVAILABLE => Answer::Busy,
        status => Answer::Failed(status),
    })
}
