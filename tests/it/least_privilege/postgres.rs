//! A role of PostgreSQL's.

use crate::support::Backend;
use crate::support::postgres::{Postgres, knows_no_german};
use crate::support::privileges::{ApplicationRole, Role, documented_grants};

crate::core_tests!(ApplicationRole);
crate::many_writers_tests!(ApplicationRole);
crate::session_tests!(ApplicationRole);

#[test]
fn each_documented_privilege_is_needed() {
    let [grants, _] = documented_grants();
    super::each_privilege_is_needed(&grants, "SELECT 1", "permission denied", Role::with);
}

#[test]
fn missing_privilege_is_named_in_german() {
    if knows_no_german() {
        return;
    }
    let [grants, _] = documented_grants();
    // Not set by itself: a role may not.
    let german = |database: &Postgres, grants: &[String]| {
        let role = Role::with(database, grants);
        let set = format!("ALTER ROLE {} SET lc_messages = 'de_DE.UTF-8'", role.name);
        Postgres::sql(&mut database.connect(), &set);
        role
    };
    super::each_privilege_is_needed(&grants, "SELECT 1", "keine Berechtigung", german);
}

#[test]
fn only_the_owner_migrates() {
    let create = "GRANT USAGE, CREATE ON SCHEMA public TO app".to_owned();
    super::only_the_owner_migrates(|empty| Role::with(empty, &[create]));
}
