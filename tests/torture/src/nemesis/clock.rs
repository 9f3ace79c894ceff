//! The database's clock jumps, and jumps back.

use anyhow::{Context, Result};
use torture_history::FaultKind;

use super::hit::Hit;
use super::rng::NemesisRng;
use crate::run_context::RunContext;

/// Sets the clock ahead or back by some seconds, and right again after a while.
pub(super) fn jump(context: &RunContext, rng: &mut NemesisRng, kind: FaultKind) -> Result<Hit> {
    let clock = context.clock.as_ref().context("no clock to set")?;
    let is_ahead = kind == FaultKind::ClockAhead;
    let seconds = i32::try_from(rng.number(1..5))?;
    let away = clock.set(if is_ahead { seconds } else { -seconds })?;
    context.sleep(rng.time(1500..5000));
    let back = clock.set(0)?;
    Ok(Hit {
        ahead: Some(if is_ahead { away } else { back }),
        ..Hit::ALL
    })
}
