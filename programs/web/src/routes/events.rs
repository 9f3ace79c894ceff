//! The state of all semaphores, locks and sequences: once, and as server-sent events.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use axum::response::sse::{Event, Sse};
use futures_util::stream::{self, Stream};
use tokio::time;

use crate::app::App;
use crate::store::Store;

/// A snapshot is sent again, with the present time, if there is no new one for so long.
const LONGEST_PAUSE: Duration = Duration::from_millis(450);

pub(super) async fn state<C: Store>(State(app): State<Arc<App<C>>>) -> impl IntoResponse {
    let kind = [(header::CONTENT_TYPE, "application/json")];
    let snapshot = app.snapshots.borrow().json();
    (kind, snapshot)
}

/// Each event is a whole snapshot. The snapshots are made once for all listeners. The stream ends when the process is
/// to end.
pub(super) async fn stream<C: Store>(
    State(app): State<Arc<App<C>>>,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let snapshots = app.snapshots.clone();
    let stop = app.shutdown.stop_token().clone();
    Sse::new(stream::unfold(
        (snapshots, stop, true),
        |(mut snapshots, stop, first)| async move {
            if !first {
                let changed = time::timeout(LONGEST_PAUSE, snapshots.changed()).await;
                // The publisher may still wait for the database.
                if matches!(changed, Ok(Err(_))) || stop.is_stopped() {
                    return None;
                }
            }
            let event = Event::default().data(snapshots.borrow_and_update().json());
            Some((Ok(event), (snapshots, stop, false)))
        },
    ))
}
