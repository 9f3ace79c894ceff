//! The lessons.

use anyhow::Result;
use diesel_locks::migrate;

use crate::runner::LessonRunner;
use crate::session::connect;
use crate::store::Store;

mod commits;
mod lock_order;
mod lost_updates;
mod sqlite;
mod upgrades;

pub(crate) fn run<C: Store>(runner: &mut LessonRunner<'_>) -> Result<()> {
    migrate(&mut connect::<C>(runner.url)?)?;
    println!(
        "{}, with two sessions, A and B.\nAt the start of each part, table lessons has rows 1 and 2 with n = 0.",
        C::NAME
    );
    if C::ONE_WRITER {
        sqlite::run::<C>(runner);
        return Ok(());
    }
    upgrades::run::<C>(runner);
    lock_order::run::<C>(runner);
    lost_updates::run::<C>(runner);
    if !C::SERIALIZABLE_READS_LOCK {
        commits::run::<C>(runner);
    }
    Ok(())
}

/// A SELECT of row `id`, with `lock` at the end.
fn select(id: i64, lock: &str) -> String {
    format!("SELECT n FROM lessons WHERE id = {id}{lock}")
}

fn update(id: i64, n: i64) -> String {
    format!("UPDATE lessons SET n = {n} WHERE id = {id}")
}

const FOR_UPDATE: &str = " FOR UPDATE";
