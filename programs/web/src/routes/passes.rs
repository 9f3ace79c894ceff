//! Passes of meetings, numbered without gaps.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use diesel_locks::{Error, RetryPolicy, Sequence, TransactionOptions};
use serde_json::{Value, json};

use crate::app::App;
use crate::problem::Problem;
use crate::store::Store;

/// A draw from a new sequence may conflict with another.
const RETRIED: TransactionOptions = TransactionOptions::new().retry(RetryPolicy::max_attempts(5));

/// Issues the next pass: the number belongs to the transaction that inserts the pass.
pub(super) async fn issue<C: Store>(
    State(app): State<Arc<App<C>>>,
    Path(meeting): Path<String>,
) -> Result<(StatusCode, Json<Value>), Problem> {
    let pass = app
        .blocking(move |app, call| {
            let sequence = Sequence::new("pass").for_key(&meeting);
            sequence.validate()?;
            let mut conn = app.connection(&call)?;
            drop(call.wait);
            let conn: &mut C = &mut conn;
            let number = conn.run_transaction(RETRIED, |conn| {
                let number = conn.next_number(&sequence)?;
                conn.insert_pass(&meeting, number)?;
                Ok::<_, Error>(number)
            })?;
            Ok(json!({ "meeting": meeting, "number": number.to_string() }))
        })
        .await?;
    Ok((StatusCode::CREATED, Json(pass)))
}
