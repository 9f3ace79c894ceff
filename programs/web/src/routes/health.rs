//! Whether the database answers.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};
use tokio::{task, time};

use crate::app::App;
use crate::problem::Problem;
use crate::store::Store;

/// After this time the database counts as down.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Asks the database on a connection that requests can't occupy. One check at a time asks.
pub(super) async fn check<C: Store>(
    State(app): State<Arc<App<C>>>,
) -> Result<Json<Value>, Problem> {
    let asked = async {
        let turn = Arc::clone(&app.health_turn).lock_owned().await;
        let app = Arc::clone(&app);
        let asked = task::spawn_blocking(move || {
            let _turn = turn;
            app.health.ask(TIMEOUT, |conn| Ok(conn.now_us()?))
        });
        asked.await
    };
    match time::timeout(TIMEOUT, asked).await {
        Ok(Ok(Ok(_))) => Ok(Json(json!({ "status": "ok" }))),
        _ => Err(Problem::database_down()),
    }
}
