-- Where the sink writes, as the connection names it; the empty text is nowhere in
-- particular, such as standard output.
ALTER TABLE connections ADD COLUMN sink_path TEXT NOT NULL DEFAULT '';

-- The kind of a position from before kinds were kept shows in its form.
UPDATE connections SET sink_kind = CASE
    WHEN json_type(CAST(sink AS TEXT), '$.files') = 'object' THEN 'jsonl'
    WHEN json_type(CAST(sink AS TEXT), '$.sqlite') = 'object' THEN 'state'
    ELSE '' END
WHERE sink_kind = '' AND json_valid(CAST(sink AS TEXT));

-- Sinks that a connection had before the one it has, with their positions, so that
-- it can go back to one.
CREATE TABLE headway_sinks (
    connection INTEGER NOT NULL REFERENCES connections (id),
    kind       TEXT NOT NULL,
    path       TEXT NOT NULL,
    position   BLOB NOT NULL,
    PRIMARY KEY (connection, kind, path)
) STRICT, WITHOUT ROWID;
