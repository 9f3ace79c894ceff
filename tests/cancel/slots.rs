//! Slots of semaphores.

use std::time::Duration;

use diesel_locks::prelude::*;
use diesel_locks::{AsyncInspectExt, Error, InspectExt, ListOptions, Wait};

use crate::locks::{read_committed, write};
use crate::support::case::Case;
use crate::support::engine::Engine;
use crate::support::watch::{HOUR, Held};

const NAME: &str = "workers";

fn workers() -> Semaphore {
    Semaphore::new(NAME, 1)
}

/// A slot that nobody has got is released.
pub(crate) async fn leases<E: Engine>() {
    let case = Case::<E>::new("try_acquire_slot", Held::Slot(NAME)).has_pauses();
    let returned = case.returned();
    case.run(|conn, _| {
        let returned = returned.clone();
        Box::pin(async move {
            let lease = LeaseOptions::new(HOUR);
            let slot = conn.try_acquire_slot(&workers(), lease).await?;
            *returned.lock().expect("no panic") = Some(slot.expect("a free slot"));
            Ok(())
        })
    })
    .await;
    let case = Case::<E>::new("acquire_slot", Held::Slot(NAME)).has_pauses();
    let returned = case.returned();
    case.run(|conn, _| {
        let returned = returned.clone();
        Box::pin(async move {
            let lease = LeaseOptions::new(HOUR);
            let slot = conn.acquire_slot(&workers(), lease, Wait::Forever).await?;
            *returned.lock().expect("no panic") = Some(slot);
            Ok(())
        })
    })
    .await;
}

/// A slot that is released is free, and one whose release was dropped is free or held.
pub(crate) async fn releases<E: Engine>() {
    let case = Case::<E>::new("release_slot", Held::Nothing).has_pauses();
    let watch = case.watch.clone();
    let registered = watch.with(|conn| conn.register_semaphores([workers()]));
    registered.await.expect("registered");
    case.run(|conn, _| {
        let watch = watch.clone();
        Box::pin(async move {
            let slot = watch.with(|conn| {
                conn.force_release_all(NAME).expect("an answer");
                let slot = conn.try_acquire_slot(&workers(), LeaseOptions::new(HOUR));
                slot.expect("an answer").expect("a free slot")
            });
            conn.release_slot(slot.await).await.map(drop)
        })
    })
    .await;
}

pub(crate) async fn leased_by_another<E: Engine>() {
    let case = Case::<E>::new("acquire_slot, waits", Held::Slot(NAME)).has_pauses();
    case.blocked()
        .run(|conn, _| {
            Box::pin(async {
                let lease = LeaseOptions::new(HOUR);
                conn.acquire_slot(&workers(), lease, Wait::Forever)
                    .await
                    .map(drop)
            })
        })
        .await;
    let case = Case::<E>::new("with_slot, waits", Held::Slot(NAME)).has_pauses();
    case.blocked()
        .run(|conn, attempt| {
            Box::pin(async move {
                conn.with_slot(&workers(), Wait::Forever, async move |conn| {
                    write(conn, attempt).await
                })
                .await
            })
        })
        .await;
}

pub(crate) async fn transactions<E: Engine>() {
    let case = Case::<E>::new("with_slot", Held::Slot(NAME))
        .parts(2)
        .has_pauses();
    case.run(|conn, attempt| {
        Box::pin(async move {
            conn.with_slot(&workers(), Wait::Forever, async move |conn| {
                write(conn, attempt).await
            })
            .await
        })
    })
    .await;
    let case = Case::<E>::new("try_with_slot", Held::Slot(NAME))
        .parts(2)
        .has_pauses();
    case.run(|conn, attempt| {
        Box::pin(async move {
            let work =
                async move |conn: &mut E::Conn| -> Result<(), Error> { write(conn, attempt).await };
            let got = conn.try_with_slot(&workers(), work).await?;
            got.ok_or(Error::Unavailable {
                resource: NAME.to_owned(),
            })
        })
    })
    .await;
}

/// A slot that is held stays held, whatever is done with it, until it is released.
pub(crate) async fn held<E: Engine>() {
    let case = Case::<E>::new("renew_slot, pin_slot", Held::Nothing).parts(2);
    let slot = case.watch.with(|conn| {
        let slot = conn.try_acquire_slot(&workers(), LeaseOptions::new(HOUR));
        slot.expect("an answer").expect("a free slot")
    });
    let slot = slot.await;
    let watch = case.watch.clone();
    let renewed = slot.clone();
    case.run(move |conn, attempt| {
        let mut slot = renewed.clone();
        Box::pin(async move {
            conn.renew_slot(&mut slot, HOUR).await?;
            conn.run_transaction(read_committed::<E>(), async |conn| -> Result<(), Error> {
                conn.pin_slot(&slot).await?;
                write(conn, attempt).await
            })
            .await
        })
    })
    .await;
    let released = watch.with(move |conn| conn.release_slot(slot));
    released.await.expect("the slot is still held");
}

/// Another transaction has locked the row of the slot.
pub(crate) async fn locked_by_another<E: Engine>() {
    // There is one writer, and no locks of rows.
    if E::ONE_WRITER {
        return;
    }
    for name in [
        "renew_slot, waits",
        "release_slot, waits",
        "pin_slot, waits",
        "force_release_all, waits",
        "request_release, waits",
        "set_slot_data, waits",
    ] {
        let case = Case::<E>::new(name, Held::SlotRow);
        let slot = case.watch.with(|conn| {
            let slot = conn.try_acquire_slot(&workers(), LeaseOptions::new(HOUR));
            slot.expect("an answer").expect("a free slot")
        });
        let slot = slot.await;
        let options = ListOptions::new();
        let held = case.watch.with(move |conn| conn.held_slots(&options));
        let held = held.await.expect("rows").remove(0);
        case.blocked()
            .run(|conn, attempt| {
                let (mut slot, held) = (slot.clone(), held.clone());
                Box::pin(async move {
                    match name {
                        "request_release, waits" => conn.request_release(&held).await.map(drop),
                        "set_slot_data, waits" => conn.set_slot_data(&slot, "data").await.map(drop),
                        "renew_slot, waits" => conn.renew_slot(&mut slot, HOUR).await.map(drop),
                        "release_slot, waits" => conn.release_slot(slot).await.map(drop),
                        "pin_slot, waits" => {
                            let work = async |conn: &mut E::Conn| -> Result<(), Error> {
                                conn.pin_slot(&slot).await?;
                                write(conn, attempt).await
                            };
                            conn.run_transaction(read_committed::<E>(), work).await
                        }
                        _ => conn.force_release_all(NAME).await.map(drop),
                    }
                })
            })
            .await;
    }
}

/// Another session adds or removes slots.
pub(crate) async fn resized_by_another<E: Engine>() {
    // There is one writer, and no locks of rows.
    if E::ONE_WRITER {
        return;
    }
    for name in [
        "register_semaphores, waits",
        "purge_slots, waits",
        "raise_fences, waits",
    ] {
        let case = Case::<E>::new(name, Held::Fences);
        let there = case.watch.with(|conn| {
            let acquired = conn.try_acquire_slot(&workers(), LeaseOptions::new(HOUR));
            acquired.map(|slot| slot.is_some())
        });
        assert!(there.await.expect("an answer"), "{name}");
        case.blocked()
            .run(|conn, _| {
                Box::pin(async move {
                    match name {
                        "register_semaphores, waits" => conn.register_semaphores([workers()]).await,
                        "purge_slots, waits" => conn.purge_slots(HOUR).await.map(drop),
                        _ => conn.raise_fences(HOUR).await.map(drop),
                    }
                })
            })
            .await;
    }
}

/// Slots that another transaction has locked are not removed, and not waited for.
pub(crate) async fn purge_beside_locked<E: Engine>() {
    // There is one writer, and no locks of rows.
    if E::ONE_WRITER {
        return;
    }
    let case = Case::<E>::new("purge_slots, beside locked slots", Held::SlotRow);
    // Without that they would stay anyway.
    case.prepare(|conn| {
        let slot = conn.try_acquire_slot(&workers(), LeaseOptions::new(HOUR));
        let slot = slot.expect("an answer").expect("a free slot");
        conn.release_slot(slot).expect("its own slot");
    })
    .passes()
    .run(|conn, _| {
        Box::pin(async move {
            assert_eq!(conn.purge_slots(Duration::ZERO).await?, 0);
            Ok(())
        })
    })
    .await;
}

pub(crate) async fn administration<E: Engine>() {
    let case = Case::<E>::new("register, list, release, purge", Held::Slot(NAME));
    case.run(|conn, attempt| {
        Box::pin(async move {
            let permits = u32::try_from(attempt % 7 + 1).expect("a small number");
            conn.register_semaphores([workers(), Semaphore::new("others", permits)])
                .await?;
            conn.held_slots(&ListOptions::new().name(NAME)).await?;
            conn.force_release_all(NAME).await?;
            conn.raise_fences(HOUR).await?;
            conn.purge_slots(HOUR).await.map(drop)
        })
    })
    .await;
}
