//! Ids of objects.

use std::collections::BTreeSet;

use diesel_locks::Retention;
use diesel_locks::prelude::*;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::TestCaseResult;

use super::{granted, nothing, refused_in_a_transaction, refuses};
use crate::support::Backend;
use crate::support::generators::{fits, short_texts, texts, texts_with_similar, usable_texts};
use crate::support::property::{CASES, Sessions, check_property_on};

fn kept(ids: impl IntoIterator<Item = impl Into<ObjectId>>) -> LockRequest {
    LockRequest::all(ids).retention(Retention::Kept)
}

pub(crate) fn property_id_text<B: Backend>() {
    check_property_on::<B, _>(CASES, &texts_with_similar(), |sessions, (text, others)| {
        sessions.one.with_object_lock(kept(&others), nothing)?;
        let before = B::tables(&mut sessions.one);
        prop_assert_eq!(before.locks.len(), others.len());
        if !fits(&text) {
            is_refused::<B>(&mut sessions.one, &text)?;
            prop_assert_eq!(B::tables(&mut sessions.one), before);
            return Ok(());
        }
        is_held_alone(sessions, &text, Retention::Transient, &others)?;
        prop_assert_eq!(&B::tables(&mut sessions.other), &before, "nothing is left");
        is_held_alone(sessions, &text, Retention::Kept, &others)?;
        let mut after = before;
        after.locks.insert(text, true);
        prop_assert_eq!(B::tables(&mut sessions.other), after);
        Ok(())
    });
}

/// While the lock is held the others are free, and this one is not.
fn is_held_alone<B: Backend>(
    Sessions { one, other }: &mut Sessions<B>,
    text: &str,
    retention: Retention,
    others: &[String],
) -> TestCaseResult {
    one.with_object_lock(LockRequest::new(text).retention(retention), |one| {
        one.lock_object(text)?;
        prop_assert_eq!(other.try_with_object_lock(text, nothing)?, None);
        for similar in others {
            let free = other.try_with_object_lock(similar, nothing)?;
            prop_assert_eq!(free.is_none(), B::ONE_WRITER, "{:?}", similar);
        }
        Ok(())
    })
}

fn is_refused<B: Backend>(conn: &mut B::Conn, text: &str) -> TestCaseResult {
    for retention in [Retention::Transient, Retention::Kept] {
        let lock = LockRequest::new(text).retention(retention);
        refuses(conn.with_object_lock(&lock, nothing), text)?;
        refuses(conn.try_with_object_lock(&lock, nothing), text)?;
        refused_in_a_transaction::<B>(conn, |conn| {
            refuses(conn.lock_object(&lock), text)?;
            refuses(conn.try_lock_object(&lock), text)?;
            refuses(conn.with_object_lock(&lock, nothing), text)
        })?;
    }
    Ok(())
}

/// Two pairs of entity and key are one id only if they are one pair.
pub(crate) fn property_id_pair<B: Backend>() {
    let parts = [short_texts(), short_texts(), short_texts()];
    check_property_on::<B, _>(CASES, &parts, |Sessions { one, other }, [a, b, c]| {
        let pairs = [
            (a.clone(), b.clone()),
            (a.clone(), format!("{b}:{c}")),
            (format!("{a}:{b}"), c.clone()),
            (format!("{a}{b}"), c.clone()),
            (a, format!("{b}{c}")),
        ];
        let mut usable = Vec::new();
        for (entity, key) in pairs {
            let id = ObjectId::new(&entity, &key);
            let text = format!("{entity}:{key}");
            prop_assert_eq!(id.as_str(), &text);
            let is_pair = !entity.contains(':') && !entity.is_empty() && !key.is_empty();
            if is_pair && fits(&text) {
                prop_assert_eq!(&id, &ObjectId::from(text));
                usable.push(((entity, key), id));
                continue;
            }
            let error = super::refused(one.with_object_lock(&id, nothing))?;
            let shown = if is_pair { &text } else { &entity };
            let shown = format!("{shown:?}");
            super::says(&error, &[shown.trim_matches('"')])?;
        }
        let Some((held, lock)) = usable.first() else {
            return Ok(());
        };
        one.with_object_lock(lock, |_| {
            for (pair, id) in &usable {
                let free = other.try_with_object_lock(id, nothing)?.is_some();
                prop_assert_eq!(free, pair != held && !B::ONE_WRITER, "{:?}", pair);
            }
            Ok(())
        })
    });
}

/// Each once, in whatever order and however often they are named; none when one can't be used.
pub(crate) fn property_lock_all_or_none<B: Backend>() {
    let ids = (
        vec(usable_texts(), 0..6),
        vec(any::<Index>(), 0..4),
        proptest::option::weighted(0.3, texts()),
    );
    check_property_on::<B, _>(
        CASES / 2,
        &ids,
        |Sessions { one, other }, (mut ids, again, odd)| {
            if !ids.is_empty() {
                let again: Vec<_> = again.iter().map(|index| index.get(&ids).clone()).collect();
                ids.extend(again);
            }
            let usable = odd.as_ref().is_none_or(|odd| fits(odd));
            ids.extend(odd.clone());
            let before = B::tables(other);
            if !usable {
                let odd = odd.unwrap_or_default();
                refuses(one.with_object_lock(kept(&ids), nothing), &odd)?;
                refuses(one.try_with_object_lock(kept(&ids), nothing), &odd)?;
                prop_assert_eq!(B::tables(other), before);
                return Ok(());
            }
            for id in &ids {
                let held = one.with_object_lock(id, |_| {
                    Ok::<_, TestCaseError>(other.try_with_object_lock(kept(&ids), nothing)?)
                })?;
                prop_assert_eq!(held, None, "all but one are free: {:?}", id);
            }
            let done = one.try_with_object_lock(kept(&ids), nothing)?;
            granted(done, "all")?;
            let expected: BTreeSet<_> = ids.into_iter().collect();
            let locks = B::tables(other).locks;
            prop_assert!(locks.values().all(|kept| *kept));
            prop_assert_eq!(locks.into_keys().collect::<BTreeSet<_>>(), expected);
            let rows = one.purge_object_locks()?;
            prop_assert_eq!(B::tables(other), before, "{} purged", rows);
            Ok(())
        },
    );
}
