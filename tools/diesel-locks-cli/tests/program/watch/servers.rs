//! `watch` and the sessions of a server.

use diesel::RunQueryDsl;
use diesel::connection::SimpleConnection;
use diesel::dsl::sql;
use diesel::sql_types::{BigInt, Bool};
use program_support::connection::AnyConnection;
use program_support::database::{Database, Engine};
use program_support::on_servers;
#[cfg(feature = "mysql")]
use program_support::testing::OwnDatabase;

use super::Watching;
use crate::cli::Cli;
use crate::user::User;

on_servers!(
    session_that_has_ended_is_replaced,
    last_picture_stays_until_the_user_may_connect_again,
);

fn open(url: &str) -> AnyConnection {
    AnyConnection::open(&Database::from_url(url).expect("a URL")).expect("a connection")
}

/// The user has one, that of `watch`.
fn end_session_of(user: &User, conn: &mut AnyConnection) {
    let name = &user.name;
    if conn.engine() == Engine::Postgres {
        let end =
            format!("pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{name}'");
        let ended: Vec<bool> = diesel::select(sql::<Bool>(&end)).load(conn).expect("ended");
        return assert_eq!(ended, [true]);
    }
    let list = format!("id FROM information_schema.processlist WHERE user = '{name}'");
    let sessions: Vec<i64> = diesel::select(sql::<BigInt>(&list))
        .load(conn)
        .expect("listed");
    assert_eq!(sessions.len(), 1);
    conn.batch_execute(&format!("KILL {}", sessions[0]))
        .expect("ended");
}

fn session_that_has_ended_is_replaced(url: &str) {
    let cli = Cli::new(url);
    cli.text(&["set-permits", "jobs", "3"]);
    let user = User::create(&cli);
    let watch = Watching::start(&user.cli, 24, &["semaphores"]);
    watch.wait_for("3       3  jobs");
    end_session_of(&user, &mut open(url));
    cli.text(&["set-permits", "jobs", "4"]);
    watch.wait_for("4       4  jobs");
    watch.quit();
}

fn last_picture_stays_until_the_user_may_connect_again(url: &str) {
    let cli = Cli::new(url);
    cli.text(&["set-permits", "jobs", "3"]);
    let mut user = User::create(&cli);
    let watch = Watching::start(&user.cli, 24, &["semaphores"]);
    watch.wait_for("3       3  jobs");
    let mut conn = open(url);
    let (alter, refuse, admit) = if conn.engine() == Engine::Postgres {
        ("ALTER ROLE", "NOLOGIN", "LOGIN")
    } else {
        ("ALTER USER", "ACCOUNT LOCK", "ACCOUNT UNLOCK")
    };
    let grantee = user.grantee();
    user.by_owner(&format!("{alter} {grantee} {refuse}"));
    end_session_of(&user, &mut conn);
    watch.wait_for("not read since: can't connect to the database: ");
    assert!(watch.picture().contains("3       3  jobs"));
    cli.text(&["set-permits", "jobs", "4"]);
    user.by_owner(&format!("{alter} {grantee} {admit}"));
    watch.wait_for("4       4  jobs");
    assert!(!watch.picture().contains("not read since"));
    watch.quit();
}

/// All readings of one transaction would show what the first one has read.
#[cfg(feature = "mysql")]
#[test]
fn mysql_session_without_autocommit_shows_changes() {
    let own = OwnDatabase::<diesel::MysqlConnection>::create("MYSQL_DATABASE_URL");
    let cli = Cli::new(&own.url);
    let mut user = User::create(&cli);
    user.set("autocommit", "0");
    let watch = Watching::start(&user.cli, 24, &["semaphores"]);
    watch.wait_for("Semaphores: none");
    cli.text(&["set-permits", "jobs", "3"]);
    watch.wait_for("3       3  jobs");
    watch.quit();
}
