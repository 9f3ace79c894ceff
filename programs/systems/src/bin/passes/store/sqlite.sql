CREATE TABLE IF NOT EXISTS meeting (
    id INTEGER NOT NULL PRIMARY KEY,
    info TEXT NOT NULL
);

CREATE TABLE IF NOT EXISTS pass (
    id INTEGER NOT NULL PRIMARY KEY,
    meeting_id INTEGER NOT NULL REFERENCES meeting (id),
    number INTEGER NOT NULL
);

-- Not unique: the gap-free sequence ensures that a number is there once.
CREATE INDEX IF NOT EXISTS pass_number ON pass (meeting_id, number);
