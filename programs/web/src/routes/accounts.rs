//! Transfers between accounts, each under the object locks of both.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use diesel_locks::{LockRequest, ObjectId, Wait};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::App;
use crate::problem::Problem;
use crate::store;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Transfer {
    from: i64,
    to: i64,
    amount: i64,
}

fn lock_id(account: i64) -> ObjectId {
    ObjectId::new("Account", account)
}

fn refused(detail: String) -> Problem {
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail)
}

/// Transfers an amount; both accounts are locked together.
pub(super) async fn transfer(
    State(app): State<Arc<App>>,
    Json(Transfer { from, to, amount }): Json<Transfer>,
) -> Result<Json<Value>, Problem> {
    if amount < 1 {
        return Err(refused(format!("amount={amount} is less than 1")));
    }
    if from == to {
        return Err(refused(format!("from and to are both {from}")));
    }
    app.blocking(move |app, stop| {
        let wait = Wait::AtMost(app.arguments.wait);
        let request = LockRequest::all([lock_id(from), lock_id(to)]).wait(wait);
        app.locks
            .stopped_by(stop)
            .with_object_lock(request, |conn| {
                let unknown = |id| Problem::new(StatusCode::NOT_FOUND, format!("no account {id}"));
                let source = store::balance(conn, from)?.ok_or_else(|| unknown(from))?;
                let target = store::balance(conn, to)?.ok_or_else(|| unknown(to))?;
                if source < amount {
                    let detail = format!("account {from} has {source}, not {amount}");
                    return Err(refused(detail));
                }
                let (source, target) = (source - amount, target + amount);
                store::set_balance(conn, from, source)?;
                store::set_balance(conn, to, target)?;
                Ok(Json(json!({
                    "from": { "id": from, "balance": source },
                    "to": { "id": to, "balance": target },
                })))
            })
    })
    .await
}

/// All accounts, and the sum that no transfer changes.
pub(super) async fn list(State(app): State<Arc<App>>) -> Result<Json<Value>, Problem> {
    let accounts = app
        .blocking(|app, stop| {
            let mut conn = app.connection(stop)?;
            Ok(store::accounts(&mut conn)?)
        })
        .await?;
    let sum: i64 = accounts.iter().map(|(_, balance)| balance).sum();
    let accounts: Vec<Value> = accounts
        .iter()
        .map(|(id, balance)| json!({ "id": id, "balance": balance }))
        .collect();
    Ok(Json(json!({ "accounts": accounts, "sum": sum })))
}
