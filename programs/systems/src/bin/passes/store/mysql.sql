-- The index on the numbers is not unique: the gap-free sequence ensures that a number is there once.
CREATE TABLE IF NOT EXISTS meeting (
    id BIGINT NOT NULL PRIMARY KEY,
    info VARCHAR(50) NOT NULL
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS pass (
    id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    meeting_id BIGINT NOT NULL,
    number BIGINT NOT NULL,
    INDEX pass_number (meeting_id, number),
    FOREIGN KEY (meeting_id) REFERENCES meeting (id)
) ENGINE = InnoDB;
