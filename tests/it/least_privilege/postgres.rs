//! A role of PostgreSQL's.

use crate::support::rights::{ApplicationRole, Role, documented};

crate::core_promises!(ApplicationRole);
crate::many_writers_promises!(ApplicationRole);
crate::session_promises!(ApplicationRole);

#[test]
fn each_documented_right_is_needed() {
    let [grants, _] = documented();
    super::each_right_is_needed(&grants, "SELECT 1", Role::with);
}

#[test]
fn only_the_owner_migrates() {
    let create = "GRANT USAGE, CREATE ON SCHEMA public TO app".to_owned();
    super::only_the_owner_migrates(|empty| Role::with(empty, &[create]));
}
