//! The database's clock jumps, and jumps back.

use anyhow::{Result, ensure};
use torture_history::FaultKind;

use super::hit::Hit;
use super::rng::NemesisRng;
use crate::run_context::RunContext;

/// Sets the clock ahead or back by some seconds, and right again after a while.
pub(super) fn jump(context: &RunContext, rng: &mut NemesisRng, kind: FaultKind) -> Result<Hit> {
    let all = context.clocks.len();
    ensure!(all > 0, "no clock to set");
    let clock = &context.clocks[rng.number(0..all)];
    let is_ahead = kind == FaultKind::ClockAhead;
    let seconds = i32::try_from(rng.number(1..5))?;
    let away = clock.set(if is_ahead { seconds } else { -seconds })?;
    context.sleep(rng.time(1500..5000));
    let back = clock.set(0)?;
    // Where nodes have clocks of their own, one is ahead of the others all the while.
    let apart = (away.0, back.1);
    let jumped = if is_ahead { away } else { back };
    Ok(Hit {
        ahead: Some(if context.cluster.is_some() {
            apart
        } else {
            jumped
        }),
        ..Hit::ALL
    })
}
