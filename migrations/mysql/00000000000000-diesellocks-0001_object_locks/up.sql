-- Each statement commits by itself, and can be run again: a migration may be ended between two of them.
-- One row per locked object. A transient row lives and dies inside one transaction and is never
-- visible to another; a kept row stays.
-- VARBINARY: ids are compared as bytes; every collation that MySQL 8 and MariaDB 10.11 share would
-- take 'a' and 'a ' for the same. 255 characters are at most 1020 bytes.
-- The id is the only index: a second one would make different ids wait for each other.
CREATE TABLE IF NOT EXISTS diesel_locks_objects (
    id VARBINARY(1020) NOT NULL PRIMARY KEY,
    kept BOOLEAN NOT NULL
) ENGINE = InnoDB;
