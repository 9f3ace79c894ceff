-- Readers and the writer do not block each other. Kept in the file.
PRAGMA journal_mode = WAL;

CREATE TABLE IF NOT EXISTS ingest_documents (
    seq INTEGER NOT NULL PRIMARY KEY,
    id TEXT NOT NULL,
    timestamp TIMESTAMP NOT NULL,
    digest BLOB NOT NULL,
    body BLOB NOT NULL,
    generated BOOLEAN NOT NULL
);

-- Not unique: that an id is stored once is up to the object lock.
CREATE INDEX IF NOT EXISTS ingest_documents_id ON ingest_documents (id);
