//! Slots that are put together from parts.

use std::time::Duration;

use diesel_locks::prelude::*;
use diesel_locks::{Error, LeaseState, Slot};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::TestCaseResult;
use uuid::Uuid;

use super::{granted, one_hour, refused, refused_in_a_transaction, refuses, says};
use crate::support::Backend;
use crate::support::generators::{fits, texts};
use crate::support::property::{CASES, Sessions, check_property_on};

/// Semaphores with one slot held of two.
const NAMES: [&str; 3] = ["a", "A", "a "];

fn lost<T: std::fmt::Debug>(result: Result<T, Error>, slot: &Slot) -> TestCaseResult {
    if !fits(slot.semaphore()) {
        return refuses(result, slot.semaphore());
    }
    let error = refused(result)?;
    let typed = matches!(
        &error,
        Error::SlotLost { semaphore, number }
            if semaphore == slot.semaphore() && *number == slot.number()
    );
    prop_assert!(typed, "{:?}", error);
    says(
        &error,
        &[format!("{:?}", slot.semaphore()), slot.number().to_string()],
    )
}

/// Only name, number and token together are a slot; the fence is not asked for.
pub(crate) fn property_slot_parts<B: Backend>() {
    // A slot whose grant is not in the database is waited for on MySQL: a node of a cluster may receive it later.
    let names = prop_oneof![12 => select(&NAMES[..]).prop_map(str::to_owned), 1 => texts()];
    let numbers = prop_oneof![12 => 1..=2_u32, 1 => any::<u32>()];
    // The token of one of the three, or another.
    let tokens = prop_oneof![6 => (0..3_usize).prop_map(Ok), 1 => any::<u128>().prop_map(Err)];
    let fences = prop_oneof![12 => Just(0), 1 => any::<i64>()];
    let inputs = (names, numbers, tokens, fences);
    check_property_on::<B, _>(
        CASES,
        &inputs,
        |Sessions { one, other }, (name, number, token, fence)| {
            let mut held = Vec::new();
            for name in NAMES {
                let slot = one.try_acquire_slot(&Semaphore::new(name, 2), one_hour())?;
                held.push(granted(slot, name)?);
            }
            let token = token.map_or_else(Uuid::from_u128, |of| held[of].token());
            let mut forged = Slot::from_parts(&name, number, token, fence);
            let before = B::tables(other);
            let real = held.iter().any(|slot| {
                (slot.semaphore(), slot.number(), slot.token()) == (&name, number, token)
            });
            let day = Duration::from_secs(86_400);
            if real {
                B::in_transaction(one, |one| one.pin_slot(&forged))?;
                prop_assert_eq!(one.renew_slot(&mut forged, day)?, LeaseState::Unexpired);
                prop_assert_eq!(one.release_slot(&forged)?, LeaseState::Unexpired);
                let mut after = before;
                let key = (name, i32::try_from(number)?);
                let row = after.slots.get_mut(&key);
                let row = granted(row, "the row")?;
                (row.token, row.expires_us) = (None, 0);
                prop_assert_eq!(B::tables(other), after);
                return Ok(());
            }
            let all = |one: &mut B::Conn| {
                lost(one.renew_slot(&mut forged.clone(), day), &forged)?;
                lost(one.release_slot(&forged), &forged)
            };
            all(one)?;
            refused_in_a_transaction::<B>(one, |one| {
                all(one)?;
                lost(one.pin_slot(&forged), &forged)
            })?;
            prop_assert_eq!(B::tables(other), before);
            Ok(())
        },
    );
}
