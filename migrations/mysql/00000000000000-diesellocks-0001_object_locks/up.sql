-- Each statement commits by itself. A migration that was interrupted between two statements can be run again.

-- Object locks: one row per locked object. A transient row is inserted and deleted in one transaction. A kept row is
-- committed.
-- VARBINARY compares ids as bytes. Every collation that MySQL 8 and MariaDB 10.11 share treats 'a' and 'a ' as equal.
-- 255 characters take at most 1020 bytes.
-- There is no other index: with a second one, locks on different ids would block each other.
CREATE TABLE IF NOT EXISTS diesel_locks_objects (
    id VARBINARY(1020) NOT NULL PRIMARY KEY,
    kept BOOLEAN NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
