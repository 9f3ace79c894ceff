//! Draws.

use diesel_locks::Error;
use diesel_locks::prelude::*;

use crate::locks::write;
use crate::support::case::Case;
use crate::support::engine::Engine;
use crate::support::watch::Held;

const NAME: &str = "invoice";

/// A number that was drawn and not committed is drawn again.
pub(crate) async fn free<E: Engine>() {
    let case = Case::<E>::new("next_number", Held::Number(NAME)).parts(2);
    let watch = case.watch.clone();
    case.run(|conn, attempt| {
        Box::pin(async move {
            let work = async |conn: &mut E::Conn| -> Result<(), Error> {
                let invoices = Sequence::new(NAME);
                let number = conn.next_number(&invoices).await?;
                let numbers = conn.next_numbers(&invoices, 2).await?;
                assert_eq!(numbers, number + 1..=number + 2);
                assert_eq!(conn.last_number(&invoices).await?, Some(number + 2));
                write(conn, attempt).await
            };
            conn.run_transaction(TransactionOptions::new(), work).await
        })
    })
    .await;
    let committed = watch.number("SELECT count(*) FROM written").await / 2;
    let last = watch.with(|conn| conn.last_number(&Sequence::new(NAME)).expect("a number"));
    assert_eq!(last.await.unwrap_or(0), 3 * committed);
}

pub(crate) async fn drawn_by_another<E: Engine>() {
    let case = Case::<E>::new("next_number, waits", Held::Number(NAME));
    case.blocked()
        .run(|conn, attempt| {
            Box::pin(async move {
                let work = async |conn: &mut E::Conn| -> Result<(), Error> {
                    conn.next_number(&Sequence::new(NAME)).await?;
                    write(conn, attempt).await
                };
                conn.run_transaction(TransactionOptions::new(), work).await
            })
        })
        .await;
}
