//! The evidence is read alike on all engines.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::sql_query;
use torture_checker::{Evidence, ReadEvidence};

use program_support::testing::OwnDatabase;

const APPLICATION: &str = "
    CREATE TABLE torture_counters (id INTEGER PRIMARY KEY, n BIGINT NOT NULL, balance BIGINT NOT NULL);
    CREATE TABLE torture_ledger (op BIGINT, counter INTEGER, n BIGINT, PRIMARY KEY (op, counter));
    CREATE TABLE torture_resources (id INTEGER PRIMARY KEY, fence BIGINT NOT NULL, version BIGINT NOT NULL);
    CREATE TABLE torture_writes (op BIGINT PRIMARY KEY, resource INTEGER NOT NULL, version BIGINT NOT NULL,
        fence BIGINT NOT NULL);
    CREATE TABLE torture_passes (op BIGINT PRIMARY KEY, sequence INTEGER NOT NULL, number BIGINT NOT NULL);
    CREATE TABLE torture_steps (op BIGINT, step INTEGER, PRIMARY KEY (op, step));
    CREATE TABLE torture_slot_uses (op BIGINT PRIMARY KEY, semaphore VARCHAR(255) NOT NULL);
    INSERT INTO torture_counters VALUES (3, 1, -7);
    INSERT INTO torture_ledger VALUES (4294967297, 3, 1);
    INSERT INTO torture_resources VALUES (11, 228698418577408001, 2);
    INSERT INTO torture_writes VALUES (4294967298, 11, 2, 228698418577408001);
    INSERT INTO torture_passes VALUES (4294967299, 1, 5);
    INSERT INTO torture_steps VALUES (4294967301, 2);
    INSERT INTO torture_slot_uses VALUES (4294967300, 'gate');
    INSERT INTO diesel_locks_objects (id, kept) VALUES ('left: é', FALSE), ('kept', TRUE);
    INSERT INTO diesel_locks_sequences (name, scope, last) VALUES ('pass', '1', 5);
    INSERT INTO diesel_locks_slots (name, number, token, holder, fence, acquired_us, expires_us, hold_until_us) VALUES
        ('leader', 1, NULL, NULL, 7, 0, 0, 0), ('collate', 2, 'token', 'worker 7', 8, 1, 9000000000000000, 0);
";

/// The crate's tables, from its migrations: shared files, no code.
macro_rules! tables {
    ($engine:literal) => {
        [
            include_str!(concat!(
                "../../../../../migrations/",
                $engine,
                "/00000000000000-diesellocks-0001_object_locks/up.sql"
            )),
            include_str!(concat!(
                "../../../../../migrations/",
                $engine,
                "/00000000000000-diesellocks-0002_semaphores/up.sql"
            )),
            include_str!(concat!(
                "../../../../../migrations/",
                $engine,
                "/00000000000000-diesellocks-0003_sequences/up.sql"
            )),
        ]
    };
}

fn prepare(conn: &mut impl SimpleConnection, tables: [&str; 3]) {
    for table in tables {
        conn.batch_execute(table).unwrap();
    }
    conn.batch_execute(APPLICATION).unwrap();
}

fn all_is_read<C: ReadEvidence>(conn: &mut C) {
    let evidence = Evidence::read(conn).unwrap();
    let Evidence {
        counters,
        ledger,
        resources,
        writes,
        passes,
        slot_uses,
        steps,
        ..
    } = &evidence;
    let counter = &counters[0];
    assert_eq!((counter.id, counter.n, counter.balance), (3, 1, -7));
    let row = &ledger[0];
    assert_eq!((row.op, row.counter, row.n), (4_294_967_297, 3, 1));
    let resource = &resources[0];
    let fence = 228_698_418_577_408_001;
    assert_eq!(
        (resource.id, resource.fence, resource.version),
        (11, fence, 2)
    );
    let write = &writes[0];
    assert_eq!((write.op, write.resource), (4_294_967_298, 11));
    assert_eq!((write.version, write.fence), (2, fence));
    let pass = &passes[0];
    assert_eq!((pass.op, pass.sequence, pass.number), (4_294_967_299, 1, 5));
    let slot_use = &slot_uses[0];
    assert_eq!(
        (slot_use.op, slot_use.semaphore.as_str()),
        (4_294_967_300, "gate")
    );
    assert_eq!((steps[0].op, steps[0].step), (4_294_967_301, 2));
    assert_eq!(evidence.transient_locks, ["left: é"]);
    let sequence = &evidence.sequences[0];
    assert_eq!(
        (sequence.name.as_str(), sequence.scope.as_str()),
        ("pass", "1")
    );
    assert_eq!(sequence.last, 5);
    let mut slots = evidence.slots.clone();
    slots.sort_by_key(|slot| slot.number);
    let [free, held] = slots.as_slice() else {
        panic!("two slots: {slots:?}");
    };
    assert_eq!(
        (free.name.as_str(), free.number, free.expires_us),
        ("leader", 1, 0)
    );
    assert_eq!(free.holder, None);
    assert_eq!((held.name.as_str(), held.number), ("collate", 2));
    assert_eq!(held.expires_us, 9_000_000_000_000_000);
    assert_eq!(held.holder.as_deref(), Some("worker 7"));
    assert!(
        evidence.locked_slots.is_empty(),
        "{:?}",
        evidence.locked_slots
    );
    assert!(!evidence.somebody_writes);
    // Between 2026 and 2100, in microseconds.
    let years = 1_767_225_600_000_000..4_102_444_800_000_000;
    assert!(years.contains(&evidence.now_us), "{}", evidence.now_us);
}

/// Another transaction has one of the rows; and when it has ended, none.
fn a_locked_slot_is_seen<C: ReadEvidence>(url: &str, conn: &mut C) {
    let mut other = C::establish(url).unwrap();
    other.batch_execute("BEGIN").unwrap();
    let lock =
        "SELECT number FROM diesel_locks_slots WHERE name = 'leader' AND number = 1 FOR UPDATE";
    other.batch_execute(lock).unwrap();
    let locked = Evidence::read(conn).unwrap().locked_slots;
    assert_eq!(locked, [("leader".to_owned(), 1)]);
    other.batch_execute("ROLLBACK").unwrap();
    assert!(Evidence::read(conn).unwrap().locked_slots.is_empty());
}

#[test]
fn postgres() {
    let own = OwnDatabase::<PgConnection>::create("PG_DATABASE_URL");
    let mut conn = PgConnection::establish(&own.url).unwrap();
    prepare(&mut conn, tables!("postgres"));
    all_is_read(&mut conn);
    a_locked_slot_is_seen(&own.url, &mut conn);
}

#[test]
fn mysql() {
    let own = OwnDatabase::<MysqlConnection>::create("MYSQL_DATABASE_URL");
    let mut conn = MysqlConnection::establish(&own.url).unwrap();
    prepare(&mut conn, tables!("mysql"));
    all_is_read(&mut conn);
    a_locked_slot_is_seen(&own.url, &mut conn);
}

#[derive(QueryableByName)]
struct BusyTimeout {
    #[diesel(sql_type = diesel::sql_types::Integer)]
    timeout: i32,
}

#[test]
fn sqlite() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("evidence.sqlite3");
    let path = path.to_str().unwrap();
    let mut conn = SqliteConnection::establish(path).unwrap();
    conn.batch_execute("PRAGMA journal_mode = WAL; PRAGMA busy_timeout = 4321")
        .unwrap();
    prepare(&mut conn, tables!("sqlite"));
    all_is_read(&mut conn);

    let mut other = SqliteConnection::establish(path).unwrap();
    other.batch_execute("BEGIN IMMEDIATE").unwrap();
    assert!(Evidence::read(&mut conn).unwrap().somebody_writes);
    other.batch_execute("ROLLBACK").unwrap();
    assert!(!Evidence::read(&mut conn).unwrap().somebody_writes);
    let after = sql_query("PRAGMA busy_timeout").get_result::<BusyTimeout>(&mut conn);
    assert_eq!(after.unwrap().timeout, 4321);
}
