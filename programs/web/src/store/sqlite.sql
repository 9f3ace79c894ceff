CREATE TABLE IF NOT EXISTS web_documents (
    id TEXT NOT NULL PRIMARY KEY,
    changed_us BIGINT NOT NULL,
    body BLOB NOT NULL
);

CREATE TABLE IF NOT EXISTS web_accounts (
    id BIGINT NOT NULL PRIMARY KEY,
    balance BIGINT NOT NULL
);

CREATE TABLE IF NOT EXISTS web_passes (
    meeting TEXT NOT NULL,
    number BIGINT NOT NULL,
    PRIMARY KEY (meeting, number)
);
