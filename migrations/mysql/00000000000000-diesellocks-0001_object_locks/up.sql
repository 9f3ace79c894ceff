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

-- Objects for whose exclusive lock a session asks again and again while others hold the shared lock. Until this time, in
-- microseconds since 1970-01-01 UTC, the shared lock is granted to none that holds nothing: readers that overlap would keep
-- the writer waiting forever. A table of its own: a reader has locked the row of its object.
CREATE TABLE IF NOT EXISTS diesel_locks_wanted (
    id VARBINARY(1020) NOT NULL PRIMARY KEY,
    until_us BIGINT NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
