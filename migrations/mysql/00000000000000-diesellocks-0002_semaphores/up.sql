-- Each statement commits by itself, and can be run again: a migration may be ended between two of them.
-- One row per slot of a semaphore, numbered from 1 without gaps. A slot is free when expires_us has passed
-- and no transaction has its row locked. All times are microseconds since 1970 UTC by this server's clock;
-- FROM_UNIXTIME(expires_us / 1e6) shows one.
-- VARBINARY: names are compared as bytes.
CREATE TABLE IF NOT EXISTS diesel_locks_slots (
    name VARBINARY(1020) NOT NULL,
    number INTEGER NOT NULL,
    token VARBINARY(16),             -- of the holder; NULL when nobody holds the slot
    holder VARBINARY(1020),          -- what the last holder called itself
    fence BIGINT NOT NULL,           -- of the last grant
    acquired_us BIGINT NOT NULL,
    expires_us BIGINT NOT NULL,
    hold_until_us BIGINT NOT NULL,         -- a release before that keeps the slot until then
    upper_expires_us BIGINT GENERATED ALWAYS AS (CASE WHEN number > 100 THEN expires_us END) STORED,
    upper_fence BIGINT GENERATED ALWAYS AS (CASE WHEN number > 100 THEN fence END) STORED,
    PRIMARY KEY (name, number),
    -- For semaphores with too many rows to read them all: the entries of the first 100 never change, as each
    -- change of an entry costs as much as half an update. This one finds a free slot among many that are held.
    KEY diesel_locks_slots_expiry (name, upper_expires_us),
    -- Finds the largest fence.
    KEY diesel_locks_slots_fences (name, upper_fence)
) ENGINE = InnoDB;

-- Semaphores that applications have registered, whose slots stay.
CREATE TABLE IF NOT EXISTS diesel_locks_semaphores (
    name VARBINARY(1020) NOT NULL PRIMARY KEY,
    permits INTEGER NOT NULL
) ENGINE = InnoDB;

-- One row: each grant has a larger fence, and no slot that was removed had one. Locked by whoever adds or
-- removes slots.
CREATE TABLE IF NOT EXISTS diesel_locks_fences (
    id INTEGER NOT NULL PRIMARY KEY,
    fence BIGINT NOT NULL
) ENGINE = InnoDB;

INSERT IGNORE INTO diesel_locks_fences (id, fence) VALUES (1, 0);
