//! `migrate`, and `migrations write`.

use std::path::Path;

use diesel::SqliteConnection;
use diesel_locks::migrations::write_to;
use serde_json::json;

use crate::database::{AnyConnection, Engine};
use crate::failure::Failure;
use crate::output::{Report, counted};

pub(crate) fn migrate(conn: &mut AnyConnection) -> Result<Report, Failure> {
    let ran = diesel_locks::migrate(conn)?;
    let text = if ran.is_empty() {
        "nothing to do: the tables are those of this version".to_owned()
    } else {
        format!(
            "ran {}: {}",
            counted(ran.len(), "migration"),
            ran.join(", ")
        )
    };
    Ok(Report::new(text, json!({ "ran": ran })))
}

pub(crate) fn write(engine: Engine, directory: &Path) -> Result<Report, Failure> {
    let written = match engine {
        #[cfg(feature = "postgres")]
        Engine::Postgres => write_to::<diesel::PgConnection>(directory)?,
        #[cfg(feature = "mysql")]
        Engine::Mysql => write_to::<diesel::MysqlConnection>(directory)?,
        Engine::Sqlite => write_to::<SqliteConnection>(directory)?,
        #[cfg(not(all(feature = "postgres", feature = "mysql")))]
        _ => {
            return Err(Failure::Usage(
                "this program was built without that engine".to_owned(),
            ));
        }
    };
    let paths: Vec<_> = written
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    let text = if paths.is_empty() {
        format!(
            "nothing to do: {} has the migrations of this version",
            directory.display()
        )
    } else {
        format!(
            "wrote {}:\n  {}",
            counted(paths.len(), "file"),
            paths.join("\n  ")
        )
    };
    Ok(Report::new(text, json!({ "written": paths })))
}
