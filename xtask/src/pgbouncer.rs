//! A PgBouncer that tells the prepared statements of its clients apart: 1.21 or newer.

use std::env;
use std::path::{Path, PathBuf};

use crate::path_lookup;
use crate::unpacked::Unpacked;

/// The variable with its path, for the tests that need it.
pub(crate) const VARIABLE: &str = "DIESEL_LOCKS_TEST_PGBOUNCER";

const OLDEST: (u32, u32) = (1, 21);

/// Of a release, so that it changes little.
const UNPACKED: Unpacked = Unpacked {
    name: "pgbouncer",
    suite: "trixie",
    packages: &["pgbouncer"],
    bin: "usr/sbin",
    programs: &["pgbouncer"],
};

/// The one of the variable, the machine's own, or one of Debian's packages, which is unpacked for it.
pub(crate) fn path() -> Option<PathBuf> {
    if let Some(given) = env::var_os(VARIABLE) {
        return Some(given.into());
    }
    let installed = path_lookup::find("pgbouncer").filter(|program| is_new(program));
    if installed.is_some() {
        return installed;
    }
    let reason = if !UNPACKED.is_available() {
        "this machine has no apt-get, or not the package debian-archive-keyring".to_owned()
    } else if let Err(error) = UNPACKED.fetch() {
        format!("{error:#}")
    } else {
        return Some(UNPACKED.bin().join("pgbouncer"));
    };
    println!("xtask: no PgBouncer 1.21 or newer, without which some tests will fail: {reason}");
    println!("xtask: (install it, or set {VARIABLE} to its path)");
    None
}

fn is_new(program: &Path) -> bool {
    path_lookup::version(program).is_some_and(|text| version(&text) >= Some(OLDEST))
}

/// `(1, 18)` for `PgBouncer 1.18.0`.
fn version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.strip_prefix("PgBouncer ")?.split('.');
    let mut next = || numbers.next()?.parse().ok();
    Some((next()?, next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        assert_eq!(version("PgBouncer 1.18.0"), Some((1, 18)));
        assert!(version("PgBouncer 1.9.0") < Some(OLDEST));
        assert!(version("PgBouncer 1.21.0") >= Some(OLDEST));
        assert!(version("PgBouncer 2.0.0") >= Some(OLDEST));
        assert_eq!(version("pgbouncer: not found"), None);
    }
}
