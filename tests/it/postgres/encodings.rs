//! Databases with another encoding than UTF8.

use std::time::Duration;

use diesel::PgConnection;
use diesel_locks::prelude::*;
use diesel_locks::{Error, InspectExt, ListOptions, Retention};

use crate::behaviour::slots::slots_of;
use crate::support::Backend;
use crate::support::postgres::Postgres;
use crate::support::urls::{fresh_name, with_database};

/// With `SQL_ASCII` each byte is a character for the server.
#[test]
fn longest_texts_are_accepted_in_any_encoding() {
    let database = Postgres::empty();
    let mut admin = database.connect();
    for encoding in ["SQL_ASCII", "LATIN1", "UTF8"] {
        let name = fresh_name();
        let create = format!(
            "CREATE DATABASE {name} TEMPLATE template0 ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C'"
        );
        Postgres::sql(&mut admin, &create);
        let url = with_database(&database.url(), &name);
        use_longest_texts(&mut Postgres::connect_to(&url), encoding);
        Postgres::sql(&mut admin, &format!("DROP DATABASE {name} WITH (FORCE)"));
    }
}

fn use_longest_texts(conn: &mut PgConnection, encoding: &str) {
    diesel_locks::migrate(conn).expect("migrate");
    let characters = if encoding == "LATIN1" { "ü" } else { "ü🔒" };
    for character in characters.chars() {
        let text = character.to_string().repeat(255);
        for retention in [Retention::Transient, Retention::Kept] {
            let lock = LockRequest::new(text.as_str()).retention(retention);
            let locked = conn.with_object_lock(&lock, |_| Ok::<_, Error>(()));
            locked.expect(encoding);
        }
        let semaphore = Semaphore::new(&text, 1);
        conn.register_semaphores([&semaphore]).expect(encoding);
        let lease = LeaseOptions::new(Duration::from_secs(60)).holder(&text);
        let slot = conn.try_acquire_slot(&semaphore, lease);
        let slot = slot.expect(encoding).expect("free");
        let held = conn.held_slots(&slots_of(&semaphore)).expect(encoding);
        assert_eq!(held[0].holder.as_deref(), Some(text.as_str()));
        conn.release_slot(slot).expect(encoding);
        let sequence = Sequence::new(&text).for_key(&text);
        let drawn = conn.run_transaction(TransactionOptions::new(), |conn| {
            conn.next_number(&sequence)
        });
        assert_eq!(drawn.expect(encoding), 1);
        let sequences = conn.sequences(&ListOptions::new()).expect(encoding);
        assert!(sequences.iter().any(|listed| listed.name == text));
    }
    let missing = conn.with_object_lock("€", |_| Ok::<_, Error>(()));
    assert_eq!(missing.is_err(), encoding == "LATIN1", "{missing:?}");
}
