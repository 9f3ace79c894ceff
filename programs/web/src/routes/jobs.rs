//! Jobs, of which a semaphore lets so many run at the same time on all instances.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use diesel_locks::{LeaseOptions, Semaphore};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::App;
use crate::name;
use crate::problem::Problem;
use crate::store::Store;

const LONGEST_SECONDS: f64 = 3600.0;

fn five() -> f64 {
    5.0
}

#[derive(Deserialize)]
pub(super) struct Options {
    /// How long the job runs.
    #[serde(default = "five")]
    seconds: f64,
    /// The name of the holder, instead of the instance's.
    holder: Option<String>,
}

/// Starts a job in the background if a slot is free.
pub(super) async fn start<C: Store>(
    State(app): State<Arc<App<C>>>,
    Path(name): Path<String>,
    Query(options): Query<Options>,
) -> Result<(StatusCode, Json<Value>), Problem> {
    let seconds = options.seconds;
    if !(0.0..=LONGEST_SECONDS).contains(&seconds) {
        let detail = format!("seconds={seconds}: 0 to {LONGEST_SECONDS} are allowed");
        return Err(Problem::new(StatusCode::BAD_REQUEST, detail));
    }
    let holder = match options.holder {
        Some(holder) => {
            name::usable(&holder).map_err(|error| Problem::new(StatusCode::BAD_REQUEST, error))?
        }
        None => app.instance.clone(),
    };
    let duration = Duration::from_secs_f64(seconds);
    let runtime = tokio::runtime::Handle::current();
    let started = app
        .blocking(move |app, call| {
            let semaphore = Semaphore::new(&name, app.permits);
            // Before the request: one that is refused here is not a failure that the crate logs.
            semaphore.validate()?;
            let lease = LeaseOptions::new(app.arguments.lease()).holder(holder);
            let guard = app
                .renewer
                .stopped_by(&call.stop)
                .try_acquire(&semaphore, &lease)?;
            drop(call.wait);
            let guard = guard.ok_or_else(|| {
                let permits = app.permits;
                let detail = format!("{permits} jobs {name:?} run already");
                Problem::temporary(StatusCode::TOO_MANY_REQUESTS, detail)
            })?;
            if call.stop.is_stopped() {
                // Dropping the guard releases the slot.
                let detail = "stopped before the job began";
                return Err(Problem::temporary(StatusCode::SERVICE_UNAVAILABLE, detail));
            }
            let answer = json!({
                "semaphore": name,
                "slot": guard.slot().number(),
                "fence": guard.fence().to_string(),
            });
            let _entered = runtime.enter();
            app.jobs
                .start(guard, duration, app.shutdown.stop_token().clone());
            Ok(answer)
        })
        .await?;
    Ok((StatusCode::ACCEPTED, Json(started)))
}
