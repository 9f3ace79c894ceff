//! Databases of PostgreSQL that tests make and drop. Of `tests/cancel/support` too.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use diesel::connection::SimpleConnection;
use diesel::prelude::*;

use super::urls::{fresh_name, with_database};

pub(crate) struct Database {
    pub(crate) server: String,
    pub(crate) name: String,
    admin: Mutex<PgConnection>,
    _template: Option<Arc<Self>>,
}

impl Database {
    pub(crate) fn empty_on(server: &str) -> Self {
        Self::copy_of("template0", server, None)
    }

    /// A copy of one with these tables, which stays while there is a copy of it: to migrate each takes longer than many tests.
    pub(crate) fn with_tables_on(
        server: &str,
        make_tables: impl FnOnce(&mut PgConnection),
    ) -> Self {
        static TEMPLATE: Mutex<Weak<Database>> = Mutex::new(Weak::new());

        let mut known = TEMPLATE.lock().unwrap_or_else(PoisonError::into_inner);
        let template = known.upgrade().unwrap_or_else(|| {
            let made = Arc::new(Self::empty_on(server));
            make_tables(&mut PgConnection::establish(&made.url()).expect("a connection"));
            *known = Arc::downgrade(&made);
            made
        });
        drop(known);
        let name = template.name.clone();
        Self::copy_of(&name, server, Some(template))
    }

    fn copy_of(original: &str, server: &str, template: Option<Arc<Self>>) -> Self {
        let name = fresh_name();
        let admin = PgConnection::establish(server);
        let mut admin = admin.unwrap_or_else(|error| panic!("{server}: {error}"));
        admin
            .batch_execute(&format!("CREATE DATABASE {name} TEMPLATE {original}"))
            .expect("create a database");
        Self {
            server: server.to_owned(),
            name,
            admin: Mutex::new(admin),
            _template: template,
        }
    }

    pub(crate) fn url(&self) -> String {
        with_database(&self.server, &self.name)
    }

    /// A connection to the server's own database.
    pub(crate) fn admin(&self) -> MutexGuard<'_, PgConnection> {
        // A test may have failed.
        self.admin.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let drop = format!("DROP DATABASE {} WITH (FORCE)", self.name);
        let dropped = self.admin().batch_execute(&drop).or_else(|error| {
            // The server may have been restarted.
            let mut admin = PgConnection::establish(&self.server).map_err(|_| error)?;
            admin.batch_execute(&drop)
        });
        // Not beside another panic, which it would hide.
        if !std::thread::panicking() {
            dropped.expect("drop the database");
        }
    }
}
