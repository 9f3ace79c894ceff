CREATE TABLE IF NOT EXISTS collate_lists (
    id BIGINT NOT NULL PRIMARY KEY,
    hour TEXT,
    items INTEGER NOT NULL,
    state INTEGER NOT NULL,
    fence BIGINT NOT NULL
);

CREATE INDEX IF NOT EXISTS collate_lists_state ON collate_lists (state);

CREATE TABLE IF NOT EXISTS collate_files (
    name TEXT NOT NULL PRIMARY KEY,
    hour TEXT,
    list_id BIGINT
);

CREATE INDEX IF NOT EXISTS collate_files_list ON collate_files (list_id);

CREATE TABLE IF NOT EXISTS collate_hours (
    hour TEXT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    line_count BIGINT NOT NULL,
    fence BIGINT NOT NULL
);
