-- How each stream was read when it was last collected, as JSON, so that an edited
-- connection is noticed.
CREATE TABLE headway_shapes (
    connection INTEGER NOT NULL REFERENCES connections (id),
    stream     TEXT NOT NULL,
    shape      TEXT NOT NULL,
    PRIMARY KEY (connection, stream)
) STRICT, WITHOUT ROWID;

-- The kind of the sink whose position is kept; the empty text is unknown.
ALTER TABLE connections ADD COLUMN sink_kind TEXT NOT NULL DEFAULT '';
