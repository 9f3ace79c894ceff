CREATE TABLE IF NOT EXISTS collate_lists (
    id BIGINT NOT NULL PRIMARY KEY,
    hour VARCHAR(13),
    items INTEGER NOT NULL,
    state INTEGER NOT NULL,
    fence BIGINT NOT NULL,
    INDEX collate_lists_state (state)
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS collate_files (
    name VARCHAR(255) NOT NULL PRIMARY KEY,
    hour VARCHAR(13),
    list_id BIGINT,
    INDEX collate_files_list (list_id)
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS collate_hours (
    hour VARCHAR(13) NOT NULL PRIMARY KEY,
    name VARCHAR(255) NOT NULL,
    line_count BIGINT NOT NULL,
    fence BIGINT NOT NULL
) ENGINE = InnoDB;
