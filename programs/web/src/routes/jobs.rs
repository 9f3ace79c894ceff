//! Jobs, of which a semaphore lets so many run at the same time on all instances.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use diesel_locks::{LeaseOptions, Semaphore, SlotGuard, StopToken};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{task, time};

use crate::app::App;
use crate::problem::Problem;

const LONGEST_SECONDS: f64 = 3600.0;

/// How often a job looks whether it still holds its slot: the longest step of its work.
const STEP: Duration = Duration::from_millis(20);

fn five() -> f64 {
    5.0
}

#[derive(Deserialize)]
pub(super) struct Options {
    /// How long the job runs.
    #[serde(default = "five")]
    seconds: f64,
}

/// Starts a job in the background if a slot is free.
pub(super) async fn start(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    Query(Options { seconds }): Query<Options>,
) -> Result<(StatusCode, Json<Value>), Problem> {
    if !(0.0..=LONGEST_SECONDS).contains(&seconds) {
        let detail = format!("seconds={seconds}: 0 to {LONGEST_SECONDS} are allowed");
        return Err(Problem::new(StatusCode::BAD_REQUEST, detail));
    }
    let started = app
        .blocking(move |app, stop| {
            let permits = app.arguments.permits;
            let semaphore = Semaphore::new(&name, permits);
            // Before the request: one that is refused here is not a failure that the crate logs.
            semaphore.validate()?;
            let lease = LeaseOptions::new(app.arguments.lease).holder(&app.instance);
            let guard = app
                .renewer
                .stopped_by(stop)
                .try_acquire(&semaphore, &lease)?
                .ok_or_else(|| {
                    let detail = format!("{permits} jobs {name:?} run already");
                    Problem::temporary(StatusCode::TOO_MANY_REQUESTS, detail)
                })?;
            if stop.is_stopped() {
                // Dropping the guard releases the slot.
                return Err(Problem::stopped());
            }
            let answer = json!({
                "semaphore": name,
                "slot": guard.slot().number(),
                "fence": guard.fence().to_string(),
            });
            let shutdown = app.shutdown.stop_token().clone();
            tokio::spawn(run(guard, Duration::from_secs_f64(seconds), shutdown));
            Ok(answer)
        })
        .await?;
    Ok((StatusCode::ACCEPTED, Json(started)))
}

/// Runs a job for this time. It ends early when it has lost its slot, and when the process is to end.
async fn run(guard: SlotGuard, duration: Duration, shutdown: StopToken) {
    let end = Instant::now() + duration;
    while guard.is_held() && !shutdown.is_stopped() && Instant::now() < end {
        time::sleep(STEP).await;
    }
    // A release blocks. One that fails is repeated by the renewer until the lease ends.
    let released = task::spawn_blocking(move || guard.release()).await;
    if let Ok(Err(error)) = released {
        crate::log(&format!("a slot was not released by its job: {error}"));
    }
}
