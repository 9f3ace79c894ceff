//! Passes of meetings, numbered without gaps.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use diesel_locks::{Error, RetryPolicy, Sequence, SequenceExt, TransactionExt, TransactionOptions};
use program_support::connection::AnyConnection;
use serde_json::{Value, json};

use crate::app::App;
use crate::problem::Problem;
use crate::store;

/// A draw from a new sequence may conflict with another.
const RETRIED: TransactionOptions = TransactionOptions::new().retry(RetryPolicy::max_attempts(5));

/// Issues the next pass: the number belongs to the transaction that inserts the pass.
pub(super) async fn issue(
    State(app): State<Arc<App>>,
    Path(meeting): Path<String>,
) -> Result<(StatusCode, Json<Value>), Problem> {
    let pass = app
        .blocking(move |app, stop| {
            let sequence = Sequence::new("pass").for_key(&meeting);
            sequence.validate()?;
            let mut conn = app.connection(stop)?;
            let conn: &mut AnyConnection = &mut conn;
            let number = conn.run_transaction(RETRIED, |conn| {
                let number = conn.next_number(&sequence)?;
                store::insert_pass(conn, &meeting, number)?;
                Ok::<_, Error>(number)
            })?;
            Ok(json!({ "meeting": meeting, "number": number }))
        })
        .await?;
    Ok((StatusCode::CREATED, Json(pass)))
}
