-- Semaphores: one row per slot, numbered from 1 without gaps. A slot is free if expires_us has passed and no
-- transaction has locked its row. Times are in microseconds since 1970-01-01 UTC by the clock of this server.
-- to_timestamp(expires_us / 1e6) converts one. The table is logged, because leases and fences have to survive a crash.
-- COLLATE "C" compares names as bytes.
CREATE TABLE diesel_locks_slots (
    name VARCHAR(1020) COLLATE "C" NOT NULL,
    number INTEGER NOT NULL,
    token BYTEA,                     -- identifies the holder, NULL if the slot is not held
    holder VARCHAR(1020),            -- the text of the last holder
    fence BIGINT NOT NULL,           -- the fence of the last grant
    acquired_us BIGINT NOT NULL,     -- the time of the last grant
    expires_us BIGINT NOT NULL,      -- the end of the lease
    hold_until_us BIGINT NOT NULL,   -- a slot that is released earlier stays unavailable until this time; 0: none
    release_requested_us BIGINT NOT NULL DEFAULT 0,  -- when the holder was asked to release the slot; 0: it was not
    data VARCHAR(1020),              -- what the holder has set, NULL at each grant
    -- A slot has one row. While a session has an old snapshot, the index also keeps the entries of all old versions of
    -- the row. The fence is in the key so that the newest version is the last entry of its number.
    PRIMARY KEY (name, number, fence)
) WITH (vacuum_truncate = off);

-- Finds a free slot among many held slots.
CREATE INDEX diesel_locks_slots_expiry ON diesel_locks_slots (name, expires_us) WHERE number > 100;

-- Finds the largest fence of a semaphore.
CREATE INDEX diesel_locks_slots_fences ON diesel_locks_slots (name, fence);

-- Registered semaphores. The slots up to their number of permits are not purged.
CREATE TABLE diesel_locks_semaphores (
    name VARCHAR(1020) COLLATE "C" PRIMARY KEY,
    permits INTEGER NOT NULL CHECK (permits >= 0)
);

-- The registered number of permits; -1 if another session has the table locked.
CREATE FUNCTION diesel_locks_permits(semaphore TEXT) RETURNS INTEGER
LANGUAGE plpgsql SET lock_timeout = '50ms' AS $$
BEGIN
    RETURN (SELECT permits FROM diesel_locks_semaphores WHERE name = semaphore);
EXCEPTION
    WHEN lock_not_available THEN
        RETURN -1;
    -- As in diesel_locks_try_acquire.
    WHEN query_canceled THEN
        IF clock_timestamp() - statement_timestamp() < '50ms'
            OR clock_timestamp() - statement_timestamp() + '5ms' >= nullif(current_setting('statement_timeout'), '0')::interval
        THEN
            RAISE;
        END IF;
        RETURN -1;
END
$$;

-- One row, with a lower bound: each later grant has a larger fence, and no deleted slot had a larger fence. A session
-- that adds or deletes slots locks the row.
CREATE TABLE diesel_locks_fences (
    id INTEGER PRIMARY KEY,
    fence BIGINT NOT NULL
);

INSERT INTO diesel_locks_fences (id, fence) VALUES (1, 0);

-- Returns an hour for each timeline of the server, in microseconds. Each promotion begins one, so the fences of a new primary are
-- larger than those of an old one, also of grants that were not replicated. Returns 0 on a server that does not show its timeline.
CREATE FUNCTION diesel_locks_timeline_us() RETURNS BIGINT LANGUAGE plpgsql AS $$
BEGIN
    -- pg_control_checkpoint() shows the old timeline until the first checkpoint after a promotion.
    RETURN ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint * 3600000000;
EXCEPTION WHEN OTHERS THEN
    RETURN 0;
END
$$;

-- Returns the number of slots, and whether the lease of one has expired, even if its row is locked. STABLE, so that all
-- its statements have the snapshot of the calling statement: if there is a free slot at every moment, it finds one.
CREATE FUNCTION diesel_locks_look_at_slots(
    semaphore TEXT, permits INTEGER, OUT slots INTEGER, OUT any_free BOOLEAN
) STABLE LANGUAGE plpgsql AS $$
DECLARE
    now_us BIGINT := extract(epoch FROM clock_timestamp()) * 1000000;
    ends_us BIGINT;
BEGIN
    SELECT number INTO slots FROM diesel_locks_slots WHERE name = semaphore ORDER BY number DESC LIMIT 1;
    FOR candidate IN 1 .. least(permits, 100) LOOP
        SELECT expires_us INTO ends_us FROM diesel_locks_slots
            WHERE name = semaphore AND number BETWEEN candidate AND candidate
            ORDER BY number DESC, fence DESC LIMIT 1;
        any_free := ends_us <= now_us;
        EXIT WHEN any_free;
    END LOOP;
    any_free := coalesce(any_free, false);
    IF permits > 100 AND NOT any_free THEN
        PERFORM FROM diesel_locks_slots
            WHERE name = semaphore AND number > 100 AND expires_us <= now_us ORDER BY expires_us LIMIT 1;
        any_free := FOUND;
    END IF;
END
$$;

-- Returns the free slots that no other session has locked to acquire them, or to renew an expired lease. Shared locks, of sessions
-- that search or pin their slots, do not conflict. The subtransaction unlocks the rows at once.
CREATE FUNCTION diesel_locks_unlocked(semaphore TEXT) RETURNS INTEGER[] LANGUAGE plpgsql AS $$
DECLARE
    now_us BIGINT := extract(epoch FROM clock_timestamp()) * 1000000;
    numbers INTEGER[];
BEGIN
    numbers := ARRAY(
        SELECT number FROM diesel_locks_slots WHERE name = semaphore AND expires_us <= now_us FOR SHARE SKIP LOCKED);
    RAISE EXCEPTION USING ERRCODE = 'DL002';
EXCEPTION WHEN SQLSTATE 'DL002' THEN
    RETURN numbers;
END
$$;

-- Leases a free slot for lease_us, or, if new_token is NULL, locks a free slot until the transaction ends. Does not
-- wait for sessions that have locked rows. lock_timeout ends the wait for a locked table with an error.
--
-- first: the number of the slot to try first.
-- among: if not NULL, the only slots to try, however many slots there are.
--
-- Returns the fence of the lease, whose last 17 bits are the number of the slot, or the number of the locked slot. A
-- negative number is a refusal:
--   -1             the table is locked (from diesel_locks_acquire_slot_in_transaction only)
--   -2             the transaction is at REPEATABLE READ
--   -3             the transaction is at SERIALIZABLE
--   -4 - 2 * n     there are n slots, and none is free
--   -5 - 2 * n     there are n slots, and one is free, but another session has locked or changed it
-- If n is larger than the number of permits, the answer does not say whether a slot is free.
--
-- The result is one number, because a function with several result columns is called as a table, which takes a tenth of
-- the time of the call. This is a function, because it keeps the plans of its statements for the session, and each
-- statement finds one row. For one statement over all numbers the planner estimates a cost at which the server compiles
-- it (jit) in each call.
CREATE FUNCTION diesel_locks_acquire_slot(
    semaphore TEXT, permits INTEGER, first INTEGER, among INTEGER[], in_transaction BOOLEAN,
    new_token BYTEA, new_holder TEXT, lease_us BIGINT, at_least_us BIGINT
) RETURNS BIGINT LANGUAGE plpgsql SET lock_timeout = '50ms' AS $$
DECLARE
    granted BIGINT;
    slots INTEGER;
    any_free BOOLEAN;
    now_us BIGINT := extract(epoch FROM clock_timestamp()) * 1000000;
    timeline_us BIGINT;
    many BOOLEAN := among IS NULL AND permits > 100;
    candidates INTEGER := coalesce(cardinality(among), least(permits, 100));
    candidate INTEGER;
    row_at TID;
    seen TID;
    -- Row locks last until the end of the transaction, not of this call.
    locks_last BOOLEAN := in_transaction OR new_token IS NULL;
BEGIN
    -- With the snapshot of a transaction at a higher level, the search could miss a change. A statement outside a
    -- transaction has a new snapshot at any level.
    IF in_transaction AND current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RETURN CASE current_setting('transaction_isolation') WHEN 'repeatable read' THEN -2 ELSE -3 END;
    END IF;
    IF among IS NULL THEN
        -- Usually there is no row above the number of permits, and the search reads nothing. A search for the last
        -- number would read the old versions of its row.
        PERFORM FROM diesel_locks_slots WHERE name = semaphore AND number > permits ORDER BY number DESC LIMIT 1;
        IF FOUND THEN
            RETURN -4 - 2 * (permits::bigint + 1);
        END IF;
    END IF;
    FOR step IN 0 .. candidates + CASE WHEN many THEN 1 ELSE -1 END LOOP
        candidate := CASE
            WHEN among IS NOT NULL THEN among[1 + (first - 1 + step) % candidates]
            WHEN step = 0 THEN first
            WHEN NOT many THEN 1 + (first - 1 + step) % candidates
            -- Before the candidates up to 100, the free slot above 100 whose lease ended first.
            WHEN step > 1 THEN 1 + (first + step - 2) % candidates
        END;
        -- The last index entry of a number is that of its row. The entries before it are of old versions, which are
        -- many while another session has an old snapshot. Skips a row that another session has locked or was granted.
        -- BETWEEN, because with an equality the planner may choose the index that has no number.
        IF candidate IS NULL AND NOT locks_last THEN
            SELECT ctid INTO row_at FROM diesel_locks_slots
                WHERE name = semaphore AND number > 100 AND expires_us <= now_us
                ORDER BY expires_us LIMIT 1 FOR UPDATE SKIP LOCKED;
            EXIT WHEN row_at IS NOT NULL;
        ELSIF locks_last THEN
            IF candidate IS NULL THEN
                -- Of the rows that the search locks and another session has changed meanwhile, none stays locked.
                BEGIN
                    SELECT ctid INTO seen FROM diesel_locks_slots
                        WHERE name = semaphore AND number > 100 AND expires_us <= now_us
                        ORDER BY expires_us LIMIT 1 FOR UPDATE SKIP LOCKED;
                    RAISE EXCEPTION USING ERRCODE = 'DL002';
                EXCEPTION WHEN SQLSTATE 'DL002' THEN
                    NULL;
                END;
            ELSE
                SELECT newest.at INTO seen
                    FROM (
                        SELECT ctid AS at, expires_us FROM diesel_locks_slots
                        WHERE name = semaphore AND number BETWEEN candidate AND candidate
                        ORDER BY number DESC, fence DESC LIMIT 1
                    ) AS newest
                    WHERE newest.expires_us <= now_us;
            END IF;
            CONTINUE WHEN seen IS NULL;
            SELECT ctid INTO row_at FROM diesel_locks_slots
                WHERE ctid = seen AND expires_us <= now_us FOR UPDATE SKIP LOCKED;
            EXIT WHEN row_at IS NOT NULL;
            -- A row that another session has changed since is locked before expires_us is read again, and stays locked. The
            -- caller has to roll back, and try again: its holder could not renew or release the slot.
            PERFORM FROM diesel_locks_slots WHERE ctid = seen;
            IF NOT FOUND AND new_token IS NULL THEN
                RETURN -5 - 2 * permits::bigint;
            ELSIF NOT FOUND THEN
                RAISE EXCEPTION 'a slot has changed' USING ERRCODE = 'DL001';
            END IF;
        ELSE
            SELECT free.at INTO row_at
                FROM (
                    SELECT ctid AS at FROM diesel_locks_slots
                    WHERE name = semaphore AND number BETWEEN candidate AND candidate
                    ORDER BY number DESC, fence DESC LIMIT 1
                ) AS newest,
                LATERAL (
                    SELECT ctid AS at FROM diesel_locks_slots
                    WHERE ctid = newest.at AND expires_us <= now_us FOR UPDATE SKIP LOCKED
                ) AS free;
            EXIT WHEN row_at IS NOT NULL;
        END IF;
    END LOOP;
    IF row_at IS NULL THEN
        SELECT * INTO slots, any_free FROM diesel_locks_look_at_slots(semaphore, permits);
        -- Row-level security hides rows from FOR UPDATE that a SELECT sees, as if they were locked.
        IF any_free AND row_security_active('diesel_locks_slots') THEN
            FOR seen IN SELECT ctid FROM diesel_locks_slots
                WHERE name = semaphore AND number <= permits AND expires_us <= now_us LIMIT 10
            LOOP
                BEGIN
                    PERFORM FROM diesel_locks_slots WHERE ctid = seen FOR UPDATE NOWAIT;
                    IF FOUND THEN
                        -- It is unlocked with the subtransaction.
                        RAISE lock_not_available;
                    END IF;
                    -- If another session has changed the row, this version is not found either.
                    PERFORM FROM diesel_locks_slots WHERE ctid = seen;
                    IF FOUND THEN
                        RAISE insufficient_privilege
                            USING MESSAGE = 'diesel_locks: a row can''t be read or changed: diesel_locks_slots';
                    END IF;
                EXCEPTION WHEN lock_not_available THEN
                    NULL;
                END;
            END LOOP;
        END IF;
        RETURN -4 - 2 * coalesce(slots, 0)::bigint - any_free::integer;
    ELSIF new_token IS NULL THEN
        SELECT number INTO granted FROM diesel_locks_slots WHERE ctid = row_at;
        -- Removes the token of an expired lease, which its holder must not renew after another has held the slot.
        UPDATE diesel_locks_slots SET token = NULL WHERE ctid = row_at AND token IS NOT NULL;
        IF NOT FOUND THEN
            PERFORM FROM diesel_locks_slots WHERE ctid = row_at AND token IS NOT NULL;
            IF FOUND THEN
                RAISE insufficient_privilege
                    USING MESSAGE = 'diesel_locks: a row can''t be read or changed: diesel_locks_slots';
            END IF;
        END IF;
    ELSE
        timeline_us := diesel_locks_timeline_us();
        -- Not before the time at which the slot was free, if the clock was set back since.
        now_us := greatest(now_us, extract(epoch FROM clock_timestamp()) * 1000000);
        -- The fence is larger than those of all existing and all deleted slots.
        UPDATE diesel_locks_slots SET
            token = new_token,
            holder = new_holder,
            fence = (greatest((now_us + timeline_us) / 64, (greatest(
                fence,
                (SELECT newest.fence FROM diesel_locks_slots AS newest
                    WHERE newest.name = semaphore ORDER BY newest.fence DESC LIMIT 1),
                (SELECT removed.fence FROM diesel_locks_fences AS removed WHERE removed.id = 1)
            ) >> 17) + 1) << 17) | number,
            acquired_us = now_us,
            expires_us = now_us + lease_us,
            hold_until_us = CASE WHEN at_least_us > 0 THEN now_us + at_least_us ELSE 0 END,
            release_requested_us = 0,
            data = NULL
            WHERE ctid = row_at
            RETURNING fence INTO granted;
        IF NOT FOUND THEN
            RAISE insufficient_privilege
                USING MESSAGE = 'diesel_locks: a row can''t be read or changed: diesel_locks_slots';
        END IF;
    END IF;
    RETURN granted;
END
$$;

-- Calls diesel_locks_acquire_slot in an open transaction. If the table is locked, returns -1, and the transaction stays
-- usable. A separate function, because EXCEPTION starts a subtransaction.
CREATE FUNCTION diesel_locks_acquire_slot_in_transaction(
    semaphore TEXT, permits INTEGER, first INTEGER, among INTEGER[],
    new_token BYTEA, new_holder TEXT, lease_us BIGINT, at_least_us BIGINT
) RETURNS BIGINT LANGUAGE plpgsql AS $$
BEGIN
    RETURN diesel_locks_acquire_slot(
        semaphore, permits, first, among, true, new_token, new_holder, lease_us, at_least_us);
EXCEPTION
    WHEN lock_not_available THEN
        RETURN -1;
    -- As in diesel_locks_try_acquire.
    WHEN query_canceled THEN
        IF clock_timestamp() - statement_timestamp() < '50ms'
            OR clock_timestamp() - statement_timestamp() + '5ms' >= nullif(current_setting('statement_timeout'), '0')::interval
        THEN
            RAISE;
        END IF;
        RETURN -1;
    WHEN SQLSTATE 'DL001' THEN
        -- The rows are unlocked.
        RETURN -5 - 2 * permits::bigint;
END
$$;
