//! `list`.

use std::process::Stdio;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel_locks::prelude::*;
use program_support::connection::AnyConnection;
use program_support::database::{Database, Engine};
use program_support::testing::wait_until;

use crate::cli::{Cli, on_engines};
#[cfg(any(feature = "postgres", feature = "mysql"))]
use crate::user::as_user;

on_engines!(
    held_slots_are_listed_with_their_holders,
    rows_above_the_limit_are_counted,
    object_locks_are_listed_as_far_as_they_are_known,
    sequences_are_listed,
    missing_tables_are_said,
    locked_table_is_waited_for_for_a_short_time,
);

fn held_slots_are_listed_with_their_holders(url: &str) {
    let cli = Cli::new(url);
    assert!(
        cli.text(&["list"])
            .contains("Held slots: none (slots of transactions are not visible)")
    );
    let run = cli.run(
        "jobs",
        &["--holder", "worker\u{1b} 7"],
        "echo $DIESEL_LOCKS_FENCE > $OUT/fence; exec sleep 600",
    );
    let fence = run.line("fence");
    let slot = &cli.slots("jobs")[0];
    assert_eq!(slot["fence"], fence.as_str());
    assert_eq!(slot["holder"], "worker\u{1b} 7");
    assert!(
        slot["expires_in_s"]
            .as_f64()
            .is_some_and(|left| (0.0..=60.0).contains(&left)),
        "{slot}"
    );
    let text = cli.text(&["list"]);
    for part in [
        &format!("jobs slot 1, fence {fence}"),
        "held by \"worker\\u{1b} 7\" since 2",
        "lease expires 2",
        " UTC, in ",
        "not set       1  jobs",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains('\u{1b}'), "{text}");
    let others = cli.text(&["list", "slots", "--semaphore", "other"]);
    assert!(
        others.contains("none whose name begins with \"other\""),
        "{others}"
    );
}

fn rows_above_the_limit_are_counted(url: &str) {
    let cli = Cli::new(url);
    for number in 1..=5 {
        cli.json(&["set-permits", &format!("s{number}"), "3"]);
    }
    let text = cli.text(&["list", "semaphores", "--limit", "2"]);
    assert!(text.contains("3 not shown"), "{text}");
    let list = &cli.json(&["list", "semaphores", "--limit", "2"])["semaphores"];
    assert_eq!(
        (
            list["rows"].as_array().map(Vec::len),
            list["not_shown"].as_u64()
        ),
        (Some(2), Some(3))
    );
    assert_eq!(
        list["rows"][0],
        serde_json::json!({ "name": "s1", "held": 0, "permits": 3, "slots": 3 })
    );
    assert!(!cli.text(&["list", "semaphores"]).contains("not shown"));
}

fn object_locks_are_listed_as_far_as_they_are_known(url: &str) {
    let cli = Cli::new(url);
    let database = Database::from_url(url).expect("a URL");
    let open = || AnyConnection::open(&database).expect("a connection");
    let is_sqlite = matches!(open(), AnyConnection::Sqlite(_));
    if is_sqlite {
        let text = cli.text(&["list"]);
        assert!(
            text.contains("Object locks: not shown: SQLite does not show"),
            "{text}"
        );
        assert!(cli.json(&["list"])["object_locks"]["error"].is_string());
        assert!(
            cli.refused(69, &["list", "objects"])
                .contains("SQLite does not show")
        );
        return;
    }
    assert!(
        cli.text(&["list", "objects"])
            .contains("Object locks: none")
    );
    let (release, released) = mpsc::channel::<()>();
    let (held, holds) = mpsc::channel();
    let lock = |conn: &mut AnyConnection, work: &dyn Fn()| {
        let done = conn.with_object_lock("Order:4711", |_| {
            work();
            Ok::<_, diesel_locks::Error>(())
        });
        done.expect("the lock");
    };
    thread::scope(|scope| {
        let mut holder = open();
        scope.spawn(move || {
            lock(&mut holder, &|| {
                held.send(()).expect("the test");
                // Until the test has ended, also by a panic.
                let _ = released.recv();
            });
        });
        holds.recv().expect("held");
        let mut waiter = open();
        scope.spawn(move || lock(&mut waiter, &|| ()));
        let mut listed = serde_json::Value::Null;
        wait_until("the waiter is listed", || {
            // MariaDB returns the former list to those who ask again within 0.1 s.
            thread::sleep(Duration::from_millis(200));
            listed = cli.json(&["list", "objects", "--prefix", "Order"]);
            listed["object_locks"]["rows"][0]["waiters"][0].is_object()
        });
        let row = &listed["object_locks"]["rows"][0];
        assert_eq!(row["id"], "Order:4711");
        assert!(row["holder"]["session"].is_number(), "{row}");
        let text = cli.text(&["list", "objects"]);
        for part in [
            "  Order:4711\n    held by session ",
            "\n    1 session known to wait:\n      session ",
        ] {
            assert!(text.contains(part), "{text}");
        }
        drop(release);
    });
}

fn sequences_are_listed(url: &str) {
    let cli = Cli::new(url);
    let mut conn =
        AnyConnection::open(&Database::from_url(url).expect("a URL")).expect("a connection");
    let drawn = conn.run_transaction(TransactionOptions::new(), |conn| {
        conn.next_number(&Sequence::new("invoice").start_with(1041))?;
        conn.next_number(&Sequence::new("pass").for_key(4711))
    });
    drawn.expect("numbers");
    let text = cli.text(&["list", "sequences"]);
    assert!(text.contains("1041  invoice\n"), "{text}");
    assert!(text.contains("1  pass, key 4711"), "{text}");
    let listed = cli.json(&["list", "sequences", "--prefix", "pa", "--key-prefix", "47"]);
    let expected = serde_json::json!([{ "name": "pass", "key": "4711", "last_number": "1" }]);
    assert_eq!(listed["sequences"]["rows"], expected);
    let others = cli.text(&["list", "sequences", "--key-prefix", "zz"]);
    assert_eq!(others, "Sequences: none whose key begins with \"zz\"\n");
    let others = cli.text(&["list", "--prefix", "a", "--key-prefix", "zz"]);
    for part in [
        "Semaphores: none whose name begins with \"a\"\n",
        "Sequences: none whose name begins with \"a\" and whose key begins with \"zz\"\n",
    ] {
        assert!(others.contains(part), "{others}");
    }
}

#[test]
fn largest_limit_is_not_raised() {
    use diesel::connection::SimpleConnection;

    let directory = program_support::testing::TempDir::new().expect("a directory");
    let cli = Cli::new(&program_support::testing::path_in(&directory, "app.db"));
    let mut conn =
        AnyConnection::open(&Database::from_url(&cli.url).expect("a URL")).expect("a connection");
    let rows = "INSERT INTO diesel_locks_sequences (name, scope, last) \
                WITH RECURSIVE number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < 10000) \
                SELECT 'number-' || n, '', n FROM number";
    conn.batch_execute(rows).expect("rows");
    let text = cli.text(&["list", "sequences", "--limit", "9999"]);
    assert!(text.ends_with("select by --prefix, or raise --limit (9999 rows)\n"));
    let text = cli.text(&["list", "sequences", "--limit", "10000"]);
    assert!(text.ends_with("  there may be more: select by --prefix\n"));
}

/// SQLite decodes the path, which is not that of a file before.
#[test]
fn missing_sqlite_file_is_not_created() {
    let directory = program_support::testing::TempDir::new().expect("a directory");
    let path = program_support::testing::path_in(&directory, "x y.db");
    let cli = Cli {
        url: format!("file:{}", path.replace(' ', "%20")),
    };
    let error = cli.refused(69, &["list"]);
    assert!(error.contains("there is no SQLite file"), "{error}");
    assert!(!std::path::Path::new(&path).exists());
    cli.text(&["migrate"]);
    cli.text(&["list"]);
    assert!(std::path::Path::new(&path).exists());
}

fn missing_tables_are_said(url: &str) {
    let cli = Cli {
        url: url.to_owned(),
    };
    let error = cli.refused(69, &["list"]);
    assert!(error.contains("diesel-locks migrate`"), "{error}");
    // Other engines have no search_path.
    assert!(!error.contains("if they exist: "), "{error}");
}

fn locked_table_is_waited_for_for_a_short_time(url: &str) {
    let cli = Cli::new(url);
    let mut other =
        AnyConnection::open(&Database::from_url(url).expect("a URL")).expect("a connection");
    let lock = match other.engine() {
        Engine::Postgres => "BEGIN; LOCK TABLE diesel_locks_slots",
        Engine::Mysql => "LOCK TABLES diesel_locks_slots WRITE",
        // It has a limit of its own.
        Engine::Sqlite => return,
    };
    other.batch_execute(lock).expect("locked");
    let commands = [
        (69, "list slots"),
        (1, "doctor"),
        (69, "run --semaphore jobs --no-wait -- true"),
        (69, "run --semaphore jobs --wait 1s -- true"),
    ];
    let started = commands.map(|(code, line)| {
        let mut command = cli.command(&line.split(' ').collect::<Vec<_>>());
        let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        (code, line, piped.spawn().expect("it starts"))
    });
    for (code, line, mut child) in started {
        wait_until(line, || child.try_wait().expect("a state").is_some());
        let output = child.wait_with_output().expect("it has ended");
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert_eq!(output.status.code(), Some(code), "{line}: {text}");
        assert!(
            text.contains("another session has locked a table"),
            "{text}"
        );
    }
    // The end of the transaction, or of LOCK TABLES. No privilege is taken for missing then.
    let lock = match other.engine() {
        Engine::Postgres => "COMMIT; BEGIN; LOCK TABLE diesel_locks_sequences",
        _ => "UNLOCK TABLES; LOCK TABLES diesel_locks_sequences WRITE",
    };
    other.batch_execute(lock).expect("locked");
    let checked = cli.output(&["doctor"]);
    let text = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert!(text.contains("privileges: can't be tried: "), "{text}");
    assert!(!text.contains("would lack"), "{text}");
}

#[cfg(any(feature = "postgres", feature = "mysql"))]
fn assert_rest_is_listed(cli: &Cli, hidden: &str, shown: &str) {
    let text = cli.text(&["list"]);
    let line = text
        .lines()
        .find(|line| line.starts_with(hidden))
        .unwrap_or_else(|| panic!("{text}"));
    assert!(
        line.contains("not shown: the database user lacks a privilege"),
        "{line}"
    );
    assert!(text.contains(shown), "{text}");
    let checked = cli.output(&["doctor"]);
    assert_eq!(checked.status.code(), Some(1));
    let checked = String::from_utf8(checked.stdout).expect("UTF-8");
    let lacks =
        "problem  privileges: an application's user would lack INSERT on diesel_locks_objects (";
    assert!(checked.contains(lacks), "{checked}");
    assert!(!(text + &checked).contains("secret"));
}

#[cfg(feature = "mysql")]
#[test]
fn mysql_lists_what_the_user_may_read() {
    type Own = program_support::testing::OwnDatabase<diesel::MysqlConnection>;
    let mut own = Own::create("MYSQL_DATABASE_URL");
    let cli = Cli::new(&own.url);
    cli.json(&["set-permits", "jobs", "3"]);
    let user = format!("u{}", own.name.trim_start_matches("program_test_"));
    let name = own.name.clone();
    let create = format!(
        "CREATE USER '{user}'@'%' IDENTIFIED BY 'secret'; GRANT SELECT ON {name}.* TO '{user}'@'%'"
    );
    own.server.batch_execute(&create).expect("a user");
    assert_rest_is_listed(
        &Cli {
            url: as_user(&own.url, &user),
        },
        "Object locks",
        "3  jobs",
    );
    own.server
        .batch_execute(&format!("DROP USER '{user}'@'%'"))
        .expect("dropped");
}

#[cfg(feature = "postgres")]
#[test]
fn postgres_lists_what_the_role_may_read() {
    use diesel::Connection;
    type Own = program_support::testing::OwnDatabase<diesel::PgConnection>;
    let mut own = Own::create("PG_DATABASE_URL");
    let cli = Cli::new(&own.url);
    cli.json(&["set-permits", "jobs", "3"]);
    let user = format!("u{}", own.name.trim_start_matches("program_test_"));
    let mut conn = diesel::PgConnection::establish(&own.url).expect("a connection");
    let create = format!(
        "CREATE ROLE {user} LOGIN PASSWORD 'secret'; \
         GRANT SELECT ON diesel_locks_slots, diesel_locks_semaphores, diesel_locks_objects TO {user}"
    );
    conn.batch_execute(&create).expect("a role");
    assert_rest_is_listed(
        &Cli {
            url: as_user(&own.url, &user),
        },
        "Sequences",
        "3  jobs",
    );
    conn.batch_execute(&format!("DROP OWNED BY {user}; DROP ROLE {user}"))
        .expect("dropped");
    drop(conn);
    own.server
        .batch_execute("SELECT 1")
        .expect("the server answers");
}
