//! Users with the privileges of `docs/privileges.md` and no others.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;

use super::Backend;
use super::mysql::Mysql;
use super::postgres::Postgres;
use super::urls::fresh_name;
use super::wrapped_backend::{WrappedBackend, Wrapper};

const DOCUMENT: &str = include_str!("../../../docs/privileges.md");

/// What has to be right for a user to be made and to come in; no secret.
const PASSWORD: &str = "Application-1";

/// The statements of the document, a list for each of PostgreSQL and MySQL.
pub(crate) fn documented_grants() -> [Vec<String>; 2] {
    let blocks: Vec<Vec<String>> = DOCUMENT
        .split("```sql\n")
        .skip(1)
        .map(|block| {
            let (block, _) = block.split_once("```").expect("an end");
            block
                .lines()
                .map(|line| line.trim_end_matches(';').to_owned())
                .collect()
        })
        .collect();
    blocks.try_into().expect("two blocks of SQL")
}

/// A privilege, what it is on, and the statement that gives it alone.
#[derive(Debug)]
pub(crate) struct Privilege {
    pub(crate) name: String,
    pub(crate) object: String,
    pub(crate) grant: String,
}

/// `GRANT SELECT, INSERT ON .. TO ..` one by one.
pub(crate) fn single_privileges(grants: &[String]) -> Vec<Privilege> {
    grants
        .iter()
        .flat_map(|grant| {
            let rest = grant.strip_prefix("GRANT ").expect("a grant");
            let (privileges, rest) = rest.split_once(" ON ").expect("on something");
            let (object, to) = rest.split_once(" TO ").expect("to somebody");
            privileges.split(", ").map(move |privilege| Privilege {
                name: privilege.to_owned(),
                object: object.to_owned(),
                grant: format!("GRANT {privilege} ON {object} TO {to}"),
            })
        })
        .collect()
}

/// With privileges on the tables of the tests' own, which an application has on its own tables.
fn with_own_tables(mut grants: Vec<String>, user: &str) -> Vec<String> {
    for table in ["counters", "drawn"] {
        grants.push(format!("GRANT SELECT, INSERT, UPDATE ON {table} TO {user}"));
    }
    grants
}

/// A role of PostgreSQL's.
pub(crate) struct Role {
    server: String,
    pub(crate) name: String,
    url: String,
}

/// A user of MySQL's or MariaDB's.
pub(crate) struct User {
    server: String,
    pub(crate) name: String,
    url: String,
}

pub(crate) type ApplicationRole = WrappedBackend<Role>;
pub(crate) type ApplicationUser = WrappedBackend<User>;

/// The same URL for another user.
fn as_user(url: &str, name: &str) -> String {
    let (scheme, rest) = url.split_once("://").expect("a URL");
    let (authority, path) = rest.split_once('/').expect("a database");
    let (_, address) = authority.rsplit_once('@').unwrap_or(("", authority));
    format!("{scheme}://{name}:{PASSWORD}@{address}/{path}")
}

impl Role {
    /// With these GRANTs to `app`.
    pub(crate) fn with(database: &Postgres, grants: &[String]) -> Self {
        let name = fresh_name();
        let mut owner = database.connect();
        let mut sql = |sql: &str| {
            owner
                .batch_execute(sql)
                .unwrap_or_else(|error| panic!("{sql}: {error}"));
        };
        sql(&format!("CREATE ROLE {name} LOGIN PASSWORD '{PASSWORD}'"));
        // What everybody has by default.
        sql("REVOKE ALL ON SCHEMA public FROM PUBLIC");
        sql("REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA public FROM PUBLIC");
        for grant in grants {
            sql(&grant.replace(" TO app", &format!(" TO {name}")));
        }
        let url = as_user(&database.url(), &name);
        let server = database.server().to_owned();
        Self { server, name, url }
    }
}

impl Wrapper for Role {
    type Inner = Postgres;

    const NAME: &'static str = "application-role";

    fn open(database: &Postgres) -> Self {
        let [grants, _] = documented_grants();
        Self::with(database, &with_own_tables(grants, "app"))
    }

    fn url(&self) -> String {
        self.url.clone()
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        // Not by a function that panics: a second panic would hide the first.
        let dropped = PgConnection::establish(&self.server)
            .map_err(|error| error.to_string())
            .and_then(|mut admin| {
                admin
                    .batch_execute(&format!("DROP ROLE {}", self.name))
                    .map_err(|error| error.to_string())
            });
        if !std::thread::panicking() {
            dropped.expect("drop the role");
        }
    }
}

impl User {
    /// With these GRANTs to `app`.
    pub(crate) fn with(database: &Mysql, grants: &[String]) -> Self {
        let name = short_name();
        let mut owner = database.connect();
        let mut sql = |sql: &str| {
            owner
                .batch_execute(sql)
                .unwrap_or_else(|error| panic!("{sql}: {error}"));
        };
        sql(&format!(
            "CREATE USER '{name}'@'%' IDENTIFIED BY '{PASSWORD}'"
        ));
        for grant in grants {
            sql(&grant.replace("'app'@", &format!("'{name}'@")));
        }
        let url = as_user(&database.url(), &name);
        let server = database.server().to_owned();
        Self { server, name, url }
    }
}

/// MySQL's users have at most 32 characters.
fn short_name() -> String {
    fresh_name().replace("diesel_locks_test", "dl_app")
}

impl Wrapper for User {
    type Inner = Mysql;

    const NAME: &'static str = "application-user";

    fn open(database: &Mysql) -> Self {
        let [_, grants] = documented_grants();
        Self::with(database, &with_own_tables(grants, "'app'@'%'"))
    }

    fn url(&self) -> String {
        self.url.clone()
    }
}

impl Drop for User {
    fn drop(&mut self) {
        let dropped = MysqlConnection::establish(&self.server)
            .map_err(|error| error.to_string())
            .and_then(|mut admin| {
                admin
                    .batch_execute(&format!("DROP USER '{}'@'%'", self.name))
                    .map_err(|error| error.to_string())
            });
        if !std::thread::panicking() {
            dropped.expect("drop the user");
        }
    }
}
