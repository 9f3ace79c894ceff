-- Each statement commits by itself. A migration that was interrupted between two statements can be run again.

-- Semaphores: one row per slot, numbered from 1 without gaps. A slot is free if expires_us has passed and no
-- transaction has locked its row. Times are in microseconds since 1970-01-01 UTC by the clock of this server.
-- FROM_UNIXTIME(expires_us / 1e6) converts one.
-- VARBINARY compares names as bytes.
CREATE TABLE IF NOT EXISTS diesel_locks_slots (
    name VARBINARY(1020) NOT NULL,
    number INTEGER NOT NULL,
    token VARBINARY(16),             -- identifies the holder, NULL if the slot is not held
    holder VARBINARY(1020),          -- the text of the last holder
    fence BIGINT NOT NULL,           -- the fence of the last grant
    acquired_us BIGINT NOT NULL,     -- the time of the last grant
    expires_us BIGINT NOT NULL,      -- the end of the lease
    hold_until_us BIGINT NOT NULL,   -- a slot that is released earlier stays unavailable until this time; 0: none
    release_requested_us BIGINT NOT NULL DEFAULT 0,  -- when the holder was asked to release the slot; 0: it was not
    data VARBINARY(1020),            -- what the holder has set, NULL at each grant
    -- NULL for the first 100 slots. For the two indexes below: MariaDB has no indexes on expressions, and its dumps of a
    -- MySQL that has generated columns can't be restored (error 3105).
    /*M!100100
    upper_expires_us BIGINT GENERATED ALWAYS AS (CASE WHEN number > 100 THEN expires_us END) STORED,
    upper_fence BIGINT GENERATED ALWAYS AS (CASE WHEN number > 100 THEN fence END) STORED,
    */
    PRIMARY KEY (name, number),
    -- For semaphores of more than 100 permits. A grant or release of one of the first 100 slots does not change these
    -- indexes: to change an index entry costs as much as half an update.
    -- Finds a free slot among many held slots.
    KEY diesel_locks_slots_expiry
        (name, /*M!100100 upper_expires_us *//*!80013 (CASE WHEN number > 100 THEN expires_us END) */),
    -- Finds the largest fence.
    KEY diesel_locks_slots_fences
        (name, /*M!100100 upper_fence *//*!80013 (CASE WHEN number > 100 THEN fence END) */)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- Registered semaphores. The slots up to their number of permits are not purged.
CREATE TABLE IF NOT EXISTS diesel_locks_semaphores (
    name VARBINARY(1020) NOT NULL PRIMARY KEY,
    permits INTEGER NOT NULL CHECK (permits >= 0)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- One row, with a lower bound: each later grant has a larger fence, and no deleted slot had a larger fence. A session
-- that adds or deletes slots locks the row.
CREATE TABLE IF NOT EXISTS diesel_locks_fences (
    id INTEGER NOT NULL PRIMARY KEY,
    fence BIGINT NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

INSERT IGNORE INTO diesel_locks_fences (id, fence) VALUES (1, 0);
