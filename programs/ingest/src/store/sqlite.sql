CREATE TABLE IF NOT EXISTS ingest_documents (
    seq INTEGER NOT NULL PRIMARY KEY,
    id TEXT NOT NULL,
    timestamp TIMESTAMP NOT NULL,
    digest BLOB NOT NULL,
    body BLOB NOT NULL
);

-- Not unique: the object lock ensures that an id is stored once.
CREATE INDEX IF NOT EXISTS ingest_documents_id ON ingest_documents (id);
