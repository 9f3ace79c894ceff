//! Names of semaphores, and what holders call themselves.

use std::time::{Duration, Instant};

use diesel_locks::prelude::*;
use diesel_locks::{InspectExt, LeaseState, SlotRenewer};
use proptest::collection::btree_set;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseResult};

use super::{granted, nothing, one_hour, refused_in_a_transaction, refuses};
use crate::behaviour::slots::{HOUR, slots_of};
use crate::subprocess::RENEWED_LEASE;
use crate::support::Backend;
use crate::support::generators::{fits, texts, texts_with_similar, usable_texts};
use crate::support::property::{CASES, Sessions, check_property, check_property_on, config};
use crate::support::tables::Tables;

/// Whatever is done with the one semaphore: of all the others nothing changes.
pub(crate) fn property_semaphore_name<B: Backend>() {
    check_property_on::<B, _>(CASES, &texts_with_similar(), |sessions, (text, others)| {
        let Sessions { one, other } = sessions;
        let mut held = Vec::new();
        for name in &others {
            let semaphore = Semaphore::new(name, 2);
            let slot = one.try_acquire_slot(&semaphore, one_hour().holder(name))?;
            held.push(granted(slot, name)?);
        }
        let before = B::tables(other);
        if fits(&text) {
            is_one_semaphore(sessions, &text, &before)?;
        } else {
            is_refused::<B>(one, &text)?;
            prop_assert_eq!(&B::tables(other), &before);
        }
        for slot in held {
            let state = sessions.one.release_slot(slot)?;
            prop_assert_eq!(state, LeaseState::Unexpired);
        }
        Ok(())
    });
}

fn is_one_semaphore<B: Backend>(
    Sessions { one, other }: &mut Sessions<B>,
    text: &str,
    before: &Tables,
) -> TestCaseResult {
    let semaphore = Semaphore::new(text, 2);
    let mut others_stay = |what: &str, slots: usize| {
        let tables = B::tables(other);
        prop_assert_eq!(tables.slots_of(text).len(), slots, "{}", what);
        let others = tables.clone().without_semaphore(text);
        prop_assert_eq!(&others, before, "{}", what);
        Ok(tables)
    };
    let slot = one.try_acquire_slot(&semaphore, one_hour().holder(text))?;
    let mut slot = granted(slot, text)?;
    prop_assert_eq!(slot.semaphore(), text);
    let tables = others_stay("acquire", 2)?;
    let row = &tables.slots[&(text.to_owned(), i32::try_from(slot.number())?)];
    prop_assert_eq!(row.token, Some(slot.token()));
    prop_assert_eq!(row.holder.as_deref(), Some(text));
    prop_assert_eq!(row.fence, slot.fence());

    let held = one.held_slots(&slots_of(text))?;
    prop_assert_eq!(held.len(), 1);
    prop_assert_eq!(&held[0].semaphore, text);
    prop_assert_eq!(held[0].holder.as_deref(), Some(text));
    prop_assert_eq!(held[0].token, Some(slot.token()));

    let state = one.renew_slot(&mut slot, Duration::from_secs(7200))?;
    prop_assert_eq!(state, LeaseState::Unexpired);
    others_stay("refresh", 2)?;
    B::in_transaction(one, |one| one.pin_slot(&slot))?;
    prop_assert_eq!(one.try_with_slot(&semaphore, nothing)?, Some(()));
    others_stay("hold", 2)?;
    one.register_semaphores([Semaphore::new(text, 3)])?;
    let tables = others_stay("register", 3)?;
    prop_assert_eq!(tables.semaphores.get(text), Some(&3));
    prop_assert_eq!(one.release_slot(slot)?, LeaseState::Unexpired);
    others_stay("release", 3)?;
    let slot = granted(one.try_acquire_slot(&semaphore, one_hour())?, text)?;
    prop_assert_eq!(slot.semaphore(), text);
    prop_assert_eq!(one.force_release_all(text)?, 1);
    others_stay("release all", 3)?;
    prop_assert_eq!(one.purge_slots(Duration::from_secs(3600))?, 0);
    others_stay("purge what is old", 3)?;
    Ok(())
}

fn is_refused<B: Backend>(conn: &mut B::Conn, text: &str) -> TestCaseResult {
    let semaphore = Semaphore::new(text, 2);
    let all = |conn: &mut B::Conn| {
        refuses(conn.try_acquire_slot(&semaphore, one_hour()), text)?;
        refuses(
            conn.acquire_slot(&semaphore, one_hour(), Wait::Forever),
            text,
        )?;
        refuses(conn.try_with_slot(&semaphore, nothing), text)?;
        refuses(conn.with_slot(&semaphore, Wait::Forever, nothing), text)?;
        let two = [&Semaphore::new("usable", 1), &semaphore];
        refuses(conn.register_semaphores(two), text)?;
        refuses(conn.held_slots(&slots_of(text)), text)?;
        refuses(conn.force_release_all(text), text)
    };
    all(conn)?;
    refused_in_a_transaction::<B>(conn, all)
}

/// The empty text is one too.
pub(crate) fn property_holder_text<B: Backend>() {
    let one_slot = Semaphore::new("one", 1);
    let holders = proptest::option::weighted(0.95, texts());
    check_property_on::<B, _>(CASES, &holders, |Sessions { one, other }, holder| {
        one.register_semaphores([&one_slot])?;
        let before = B::tables(other);
        let lease = match &holder {
            Some(holder) => one_hour().holder(holder),
            None => one_hour(),
        };
        let unusable = holder
            .as_deref()
            .filter(|text| !text.is_empty() && !fits(text));
        if let Some(text) = unusable {
            refuses(one.try_acquire_slot(&one_slot, lease.clone()), text)?;
            refused_in_a_transaction::<B>(one, |one| {
                refuses(one.acquire_slot(&one_slot, lease, Wait::No), text)
            })?;
            prop_assert_eq!(B::tables(other), before);
            return Ok(());
        }
        let slot = granted(one.try_acquire_slot(&one_slot, lease)?, "one")?;
        let row = B::tables(other).slots.remove(&("one".to_owned(), 1));
        let row = row.map(|row| (row.holder, row.token));
        let listed = other.held_slots(&slots_of("one"))?.remove(0).holder;
        prop_assert_eq!(row, Some((listed.clone(), Some(slot.token()))));
        // Without a text of its own, the holder is `host/pid`.
        prop_assert!(holder.is_none() || listed == holder, "{:?}", listed);
        Ok(())
    });
}

/// All of a renewer in one statement, in which names travel in another way (JSON, an array).
pub(crate) fn guards_of_any_names_are_renewed_and_released<B: Backend>() {
    // One case has many names, and lasts for a third of the shortest lease: no more of them.
    let names = btree_set(usable_texts(), 24..=32);
    let config = Config {
        cases: 1,
        ..config(1)
    };
    check_property(config, &names, |names| {
        let database = B::new();
        let renewer = SlotRenewer::new(database.pool(2));
        let mut conn = database.connect();
        let mut guards = Vec::new();
        for (index, name) in names.iter().enumerate() {
            let semaphore = Semaphore::new(name, 1);
            // All are renewed by the lease of the last one: that acquiring takes long costs no lease.
            let is_last = index + 1 == names.len();
            let lease = LeaseOptions::new(if is_last { RENEWED_LEASE } else { HOUR });
            let guard = renewer.try_acquire(&semaphore, &lease)?;
            guards.push(granted(guard, name)?);
        }
        let before = B::slots(&mut conn);
        prop_assert_eq!(before.len(), names.len());
        let started = Instant::now();
        let all_renewed = |conn: &mut B::Conn| {
            let now = B::slots(conn);
            before
                .iter()
                .all(|(key, row)| now[key].expires_us > row.expires_us)
        };
        while !all_renewed(&mut conn) {
            prop_assert!(started.elapsed() < Duration::from_secs(20), "not renewed");
            std::thread::sleep(Duration::from_millis(20));
        }
        for (guard, name) in guards.into_iter().zip(&names) {
            prop_assert!(guard.is_held(), "{:?}", name);
            prop_assert_eq!(guard.release()?, LeaseState::Unexpired);
        }
        let rows = B::slots(&mut conn);
        prop_assert!(
            rows.values()
                .all(|row| row.token.is_none() && row.expires_us == 0)
        );
        Ok(())
    });
}
