//! Transfers between accounts, each under the object locks of both.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use diesel_locks::{LockRequest, ObjectId};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::App;
use crate::problem::Problem;
use crate::store::Store;

#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Transfer {
    from: i64,
    to: i64,
    amount: i64,
}

impl Transfer {
    fn check(self) -> Result<(), Problem> {
        let refused = |detail: String| Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail));
        if self.amount < 1 {
            return refused(format!("amount={} is less than 1", self.amount));
        }
        if self.from == self.to {
            return refused(format!("from and to are both {}", self.from));
        }
        Ok(())
    }
}

fn lock_id(account: i64) -> ObjectId {
    ObjectId::new("Account", account)
}

/// Transfers an amount; both accounts are locked together.
pub(super) async fn transfer<C: Store>(
    State(app): State<Arc<App<C>>>,
    Json(transfer): Json<Transfer>,
) -> Result<Json<Value>, Problem> {
    transfer.check()?;
    let Transfer { from, to, amount } = transfer;
    app.blocking(move |app, call| {
        let request = LockRequest::all([lock_id(from), lock_id(to)]).wait(app.wait());
        let locks = app.locks.stopped_by(&call.stop);
        locks.with_object_lock(request, |conn| {
            drop(call.wait);
            let unknown = |id| Problem::new(StatusCode::NOT_FOUND, format!("no account {id}"));
            let refused = |detail| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail);
            let source = conn.balance(from)?.ok_or_else(|| unknown(from))?;
            let target = conn.balance(to)?.ok_or_else(|| unknown(to))?;
            if source < amount {
                return Err(refused(format!(
                    "account {from} has {source}, not {amount}"
                )));
            }
            let increased = target
                .checked_add(amount)
                .ok_or_else(|| refused(format!("account {to} can't hold {target} and {amount}")))?;
            conn.set_balance(from, source - amount)?;
            conn.set_balance(to, increased)?;
            Ok(Json(json!({
                "from": { "id": from, "balance": (source - amount).to_string() },
                "to": { "id": to, "balance": increased.to_string() },
            })))
        })
    })
    .await
}

/// All accounts, and the sum that no transfer changes.
pub(super) async fn list<C: Store>(State(app): State<Arc<App<C>>>) -> Result<Json<Value>, Problem> {
    let accounts = app
        .blocking(|app, call| Ok(app.connection(&call)?.accounts()?))
        .await?;
    let sum: i128 = accounts
        .iter()
        .map(|account| i128::from(account.balance))
        .sum();
    let accounts: Vec<Value> = accounts
        .iter()
        .map(|account| json!({ "id": account.id, "balance": account.balance.to_string() }))
        .collect();
    Ok(Json(
        json!({ "accounts": accounts, "sum": sum.to_string() }),
    ))
}
