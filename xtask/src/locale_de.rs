//! German for PostgreSQL: a test has to see that errors are recognised whichever language the server speaks.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{path_lookup, run};

/// The locale's name in `SET lc_messages`.
pub(crate) const LOCALE: &str = "de_DE.UTF-8";
/// What makes a server say [`EXPECTED_MESSAGE`] when it speaks German.
pub(crate) const QUERY: [&str; 2] = ["SET lc_messages = 'de_DE.UTF-8'", "SELECT 1/0"];
/// Part of PostgreSQL's German message for a division by zero.
pub(crate) const EXPECTED_MESSAGE: &str = "Division durch Null";

/// What the locale is made of, from Debian's package `locales`.
const SOURCE: &str = "/usr/share/i18n/locales/de_DE";

/// Whether the locale can be made.
pub(crate) fn can_create_locale() -> bool {
    path_lookup::find("localedef").is_some() && Path::new(SOURCE).exists()
}

/// Makes the locale in `directory`, which is then what `LOCPATH` has to name.
pub(crate) fn create_locale(directory: &Path) -> Result<()> {
    std::fs::create_dir(directory)?;
    let localedef = path_lookup::find("localedef").context("there is no localedef")?;
    let made = directory.join(LOCALE);
    // Its exit code is that of an error for warnings too.
    let (_, _, errors) = run::capture(
        Command::new(localedef)
            .args(["-i", "de_DE", "-f", "UTF-8"])
            .arg(&made),
    )?;
    if !made.join("LC_MESSAGES").exists() {
        bail!(
            "localedef has not made {}: {}",
            made.display(),
            errors.trim_end()
        );
    }
    Ok(())
}

/// Whether this PostgreSQL's German messages are installed.
pub(crate) fn messages_available(postgres_directory: &Path) -> bool {
    messages(postgres_directory).is_some_and(|files| files.iter().any(|file| file.exists()))
}

/// Where they may be.
fn messages(postgres_directory: &Path) -> Option<[PathBuf; 2]> {
    let version = path_lookup::version(&postgres_directory.join("postgres"))?;
    // `postgres (PostgreSQL) 15.20 (Debian 15.20-0+deb12u1)`
    let major: String = version
        .split_once(") ")?
        .1
        .chars()
        .take_while(char::is_ascii_digit)
        .collect();
    let own =
        run::output(Command::new(postgres_directory.join("pg_config")).arg("--localedir")).ok();
    let own = own.map_or_else(
        || PathBuf::from("/usr/share/locale"),
        |path| PathBuf::from(path.trim()),
    );
    let file = format!("de/LC_MESSAGES/postgres-{major}.mo");
    // Ubuntu moves translations into packages and a directory of their own.
    Some([
        own.join(&file),
        Path::new("/usr/share/locale-langpack").join(&file),
    ])
}
