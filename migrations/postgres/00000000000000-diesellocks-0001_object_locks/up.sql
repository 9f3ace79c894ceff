-- One row per locked object. A transient row lives and dies inside one transaction and is never
-- visible to another; a kept row stays. The table is unlogged: nothing in it has to survive a crash,
-- and a transaction that wrote nothing else need not wait for the log to reach the disk.
-- COLLATE "C": ids are compared as bytes.
CREATE UNLOGGED TABLE diesel_object_locks (
    id VARCHAR(255) COLLATE "C" PRIMARY KEY,
    kept BOOLEAN NOT NULL
);

-- Locks the objects, in the order given, until the transaction ends; waits for those that are held.
-- NULL when it has, the transaction's isolation level when that level could not see what the last
-- holder committed. In a function because PostgreSQL then keeps the plans of both statements for the
-- session, whichever way the call arrives, and because one call is one round trip.
CREATE FUNCTION diesel_locks_acquire(object_ids TEXT[], keep BOOLEAN) RETURNS TEXT
LANGUAGE plpgsql AS $$
DECLARE
    object_id TEXT;
    row_at TID;
BEGIN
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RETURN current_setting('transaction_isolation');
    END IF;
    FOREACH object_id IN ARRAY object_ids LOOP
        IF keep THEN
            PERFORM 1 FROM diesel_object_locks WHERE id = object_id FOR UPDATE;
            CONTINUE WHEN FOUND;
        END IF;
        -- Waits for another's uncommitted row as a plain INSERT does, but does not fail, nor write to
        -- the server's log, when a kept row is there: the row is then locked and nothing written.
        INSERT INTO diesel_object_locks AS held (id, kept) VALUES (object_id, keep)
            ON CONFLICT (id) DO UPDATE SET kept = held.kept WHERE false
            RETURNING ctid INTO row_at;
        -- Deleted by its place and not by its id: the index may hold many dead entries for a hot id.
        IF FOUND AND NOT keep THEN
            DELETE FROM diesel_object_locks WHERE ctid = row_at;
        END IF;
    END LOOP;
    RETURN NULL;
END
$$;

-- The same without waiting: 'locked', 'held', or the isolation level as above. All or none: the block
-- with EXCEPTION is a subtransaction, and its rollback frees those that it had got. An INSERT has no
-- NOWAIT; 10 ms is long enough for the server's own short waits (a table being extended) not to be
-- taken for a holder.
CREATE FUNCTION diesel_locks_try_acquire(object_ids TEXT[], keep BOOLEAN) RETURNS TEXT
LANGUAGE plpgsql SET lock_timeout = '10ms' AS $$
BEGIN
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RETURN current_setting('transaction_isolation');
    END IF;
    PERFORM 1 FROM diesel_object_locks WHERE id = ANY (object_ids) FOR UPDATE NOWAIT;
    PERFORM diesel_locks_acquire(object_ids, keep);
    RETURN 'locked';
EXCEPTION WHEN lock_not_available THEN
    RETURN 'held';
END
$$;
