//! Group Replication with several primaries.

use diesel_locks::{Error, migrate};

use crate::nodes::{Nodes, Tests, number};
use crate::writers::locks_are_refused_on_several_writers;

pub(crate) const TESTS: Tests = &[
    ("migrate_is_refused", migrate_is_refused),
    (
        "locks_are_refused_on_several_writers",
        locks_are_refused_on_several_writers,
    ),
];

fn migrate_is_refused(nodes: &Nodes) {
    let database = nodes.database();
    for node in 0..nodes.len() {
        let error = migrate(&mut database.on(node)).expect_err("several primaries");
        assert!(matches!(error, Error::SeveralWriters { .. }), "{error:?}");
    }
    let mut conn = database.on(0);
    let tables = "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE()";
    assert_eq!(number(&mut conn, tables), 0);
}
