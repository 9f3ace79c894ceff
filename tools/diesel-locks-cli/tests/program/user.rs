//! A user of the database with settings of its own.

use std::sync::{Mutex, MutexGuard, PoisonError};

use diesel::connection::SimpleConnection;
use program_support::connection::AnyConnection;
use program_support::database::{Database, Engine};

use crate::cli::Cli;

pub(crate) const TABLES: [&str; 6] = [
    "diesel_locks_objects",
    "diesel_locks_wanted",
    "diesel_locks_slots",
    "diesel_locks_semaphores",
    "diesel_locks_fences",
    "diesel_locks_sequences",
];

/// Of the server of MySQL, which has one text for the sessions of all users.
static SETTINGS: Mutex<()> = Mutex::new(());

/// With privileges on the tables. Dropped with this value.
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) cli: Cli,
    owner: AnyConnection,
    /// While [`SETTINGS`] are those of this user.
    settings: Option<MutexGuard<'static, ()>>,
}

impl User {
    /// Has all privileges on the rows of the tables.
    pub(crate) fn create(cli: &Cli) -> Self {
        let rows = "SELECT, INSERT, UPDATE, DELETE";
        let grants = TABLES.map(|table| format!("{rows} ON {table}"));
        let migrations = "SELECT ON __diesel_schema_migrations".to_owned();
        Self::granted(cli, grants.into_iter().chain([migrations]))
    }

    /// May only read semaphores and slots.
    pub(crate) fn reader(cli: &Cli) -> Self {
        let tables = ["diesel_locks_slots", "diesel_locks_semaphores"];
        Self::granted(cli, tables.map(|table| format!("SELECT ON {table}")))
    }

    fn granted(cli: &Cli, grants: impl IntoIterator<Item = String>) -> Self {
        let database = Database::from_url(&cli.url).expect("a URL");
        let (_, name) = cli.url.rsplit_once("program_test_").expect("a test's own");
        // Options may follow.
        let name = format!("u{}", name.split('?').next().expect("a name"));
        let mut owner = AnyConnection::open(&database).expect("a connection");
        let (create, grantee) = match owner.engine() {
            Engine::Postgres => ("ROLE", name.clone()),
            _ => ("USER", format!("'{name}'@'%'")),
        };
        let password = if create == "ROLE" {
            "LOGIN PASSWORD"
        } else {
            "IDENTIFIED BY"
        };
        let mut statements = vec![format!("CREATE {create} {grantee} {password} 'secret'")];
        let grants = grants.into_iter();
        statements.extend(grants.map(|grant| format!("GRANT {grant} TO {grantee}")));
        owner
            .batch_execute(&statements.join(";"))
            .expect("the user is created");
        Self {
            cli: Cli {
                url: as_user(&cli.url, &name),
            },
            name,
            owner,
            settings: None,
        }
    }

    /// The user in a GRANT or ALTER.
    pub(crate) fn grantee(&self) -> String {
        match self.owner.engine() {
            Engine::Postgres => self.name.clone(),
            _ => format!("'{}'@'%'", self.name),
        }
    }

    /// Executes statements as the owner of the database.
    pub(crate) fn by_owner(&mut self, statements: &str) {
        self.owner.batch_execute(statements).expect(statements);
    }

    /// The value that a setting has in the sessions of this user, until the next call.
    pub(crate) fn set(&mut self, setting: &str, value: &str) {
        let name = self.name.clone();
        if self.owner.engine() == Engine::Postgres {
            return self.by_owner(&format!(
                "ALTER ROLE {name} RESET ALL; ALTER ROLE {name} SET {setting} = {value}"
            ));
        }
        if self.settings.is_none() {
            self.settings = Some(SETTINGS.lock().unwrap_or_else(PoisonError::into_inner));
        }
        let setting = format!(
            "SET {setting} = IF(SUBSTRING_INDEX(USER(), \"@\", 1) = \"{name}\", {value}, @@{setting})"
        );
        self.by_owner(&format!("SET GLOBAL init_connect = '{setting}'"));
    }
}

impl Drop for User {
    fn drop(&mut self) {
        let grantee = self.grantee();
        let mut statements = if self.owner.engine() == Engine::Postgres {
            format!("DROP OWNED BY {grantee}; DROP ROLE {grantee}")
        } else {
            format!("DROP USER {grantee}")
        };
        if self.settings.is_some() {
            statements = format!("SET GLOBAL init_connect = ''; {statements}");
        }
        let dropped = self.owner.batch_execute(&statements);
        if !std::thread::panicking() {
            dropped.expect("the user can be dropped");
        }
    }
}

/// The URL of another user of the same database.
pub(crate) fn as_user(url: &str, user: &str) -> String {
    let (scheme, rest) = url.split_once("://").expect("a URL");
    let address = rest.split_once('@').map_or(rest, |(_, address)| address);
    format!("{scheme}://{user}:secret@{address}")
}
