-- The first schema of a Headway store.
--
-- Instants are text in UTC with nine digits of fraction, so that they sort and
-- read well; the empty text is "never". Cursors, watermarks and keys are what
-- the provider gave, byte for byte.

-- A connection, its lease, and what has one value for all of it.
CREATE TABLE connections (
    id      INTEGER PRIMARY KEY,
    name    TEXT NOT NULL UNIQUE,
    -- The lease. token rises with each holder and never falls; run is NULL
    -- when nobody holds the connection.
    token   INTEGER NOT NULL,
    run     TEXT,
    holder  TEXT NOT NULL,
    since   TEXT NOT NULL,
    expires TEXT NOT NULL,
    -- The sink's committed position, as the sink gave it.
    sink    BLOB,
    -- The learned rate; a NULL version is none.
    pacing_version     INTEGER,
    pacing_law         TEXT,
    pacing_interval_ms REAL,
    pacing_recorded_at TEXT,
    pacing_state       BLOB,
    -- The source-pressure cooldown, as JSON; NULL is none.
    pressure           TEXT
) STRICT;

CREATE TABLE runs (
    n          INTEGER PRIMARY KEY AUTOINCREMENT,
    id         TEXT NOT NULL UNIQUE,
    connection INTEGER NOT NULL REFERENCES connections (id),
    holder     TEXT NOT NULL,
    state      TEXT NOT NULL,
    reason     TEXT NOT NULL,
    started    TEXT NOT NULL,
    ended      TEXT NOT NULL DEFAULT '',
    retry_at   TEXT NOT NULL DEFAULT '',
    error      TEXT NOT NULL DEFAULT '',
    -- The counters, as JSON.
    progress   TEXT NOT NULL DEFAULT '{}'
) STRICT;

CREATE INDEX runs_of_connection ON runs (connection, n);

CREATE TABLE events (
    run   INTEGER NOT NULL REFERENCES runs (n),
    seq   INTEGER NOT NULL,
    event TEXT NOT NULL,
    PRIMARY KEY (run, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE lanes (
    connection   INTEGER NOT NULL REFERENCES connections (id),
    stream       TEXT NOT NULL,
    kind         TEXT NOT NULL,
    cursor       TEXT NOT NULL,
    walking      INTEGER NOT NULL,
    done         INTEGER NOT NULL,
    since        TEXT NOT NULL,
    high         TEXT NOT NULL,
    start        TEXT NOT NULL,
    watermark    TEXT NOT NULL,
    pages        INTEGER NOT NULL,
    -- The anchor is 64 unsigned bits, kept as the same bits signed.
    trail_anchor INTEGER NOT NULL,
    trail_steps  INTEGER NOT NULL,
    trail_limit  INTEGER NOT NULL,
    PRIMARY KEY (connection, stream, kind)
) STRICT, WITHOUT ROWID;

-- One row a stream that has items, so that an item's row is short and the
-- number of items is known without counting them.
CREATE TABLE streams (
    id         INTEGER PRIMARY KEY,
    connection INTEGER NOT NULL REFERENCES connections (id),
    name       TEXT NOT NULL,
    items      INTEGER NOT NULL DEFAULT 0,
    UNIQUE (connection, name)
) STRICT;

CREATE TABLE items (
    stream      INTEGER NOT NULL REFERENCES streams (id),
    key         TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    children    BLOB,
    -- 1 while the detail is owed through a backlog gap.
    owed        INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (stream, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE gaps (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    connection INTEGER NOT NULL REFERENCES connections (id),
    stream     TEXT NOT NULL,
    key        TEXT NOT NULL,
    parent     TEXT NOT NULL,
    locator    BLOB,
    reason     TEXT NOT NULL,
    status     TEXT NOT NULL,
    attempts   INTEGER NOT NULL,
    first_seen TEXT NOT NULL,
    last_seen  TEXT NOT NULL,
    retry_at   TEXT NOT NULL,
    last_error TEXT NOT NULL,
    -- When it was last asked for; the empty text is never.
    tried      TEXT NOT NULL DEFAULT '',
    -- The order of serving: when it was first seen, or tried last.
    rank       TEXT NOT NULL DEFAULT '',
    -- The token of the lease that it is served to; 0 is none.
    leased     INTEGER NOT NULL DEFAULT 0,
    -- A backlog gap stands for all items that changed at since or later and
    -- are owed; cursor is how far its list has been walked.
    backlog    INTEGER NOT NULL DEFAULT 0,
    since      TEXT NOT NULL DEFAULT '',
    cursor     TEXT NOT NULL DEFAULT '',
    UNIQUE (connection, stream, key)
) STRICT;

-- Serves pages in order of id and, since it covers reason, the counts.
CREATE INDEX gaps_by_status ON gaps (connection, status, id, reason);

-- Serves gaps in fair order.
CREATE INDEX gaps_by_rank ON gaps (connection, status, rank, id);

-- Next version.

-- Finds and counts the items whose detail a backlog owes.
CREATE INDEX headway_items_owed ON items (stream, key) WHERE owed = 1;

-- Next version.

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

-- Next version.

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

-- Next version.

-- What a record of runs stands for: the empty text is a collection, replay a copy of
-- kept records into another sink.
ALTER TABLE runs ADD COLUMN kind TEXT NOT NULL DEFAULT '';

-- How far copies of kept records into the connection's sinks have come, as JSON.
ALTER TABLE connections ADD COLUMN replays TEXT NOT NULL DEFAULT '[]';

-- Next version.

-- What parts of the connection that have limits of their own have learned, and what
-- credentials after the first have, as JSON.
ALTER TABLE connections ADD COLUMN pacing_parts BLOB;
