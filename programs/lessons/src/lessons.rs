//! The lessons.

use anyhow::Result;
use diesel_locks::migrate;

use crate::play::Play;
use crate::session::connect;
use crate::store::Store;

mod commits;
mod lost;
mod one_writer;
mod orders;
mod upgrades;

pub(crate) fn play<C: Store>(play: &mut Play<'_>) -> Result<()> {
    migrate(&mut connect::<C>(play.url)?)?;
    println!(
        "{}, two sessions: A and B. The table lessons has rows 1 and 2, with n = 0.",
        C::NAME
    );
    if C::ONE_WRITER {
        one_writer::play::<C>(play);
        return Ok(());
    }
    upgrades::play::<C>(play);
    orders::play::<C>(play);
    lost::play::<C>(play);
    if !C::SERIALIZABLE_READS_LOCK {
        commits::play::<C>(play);
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
