-- The first schema of a Headway store in PostgreSQL.
--
-- Text is what providers gave, byte for byte: bytes that a text cannot hold in
-- PostgreSQL are escaped, see text.go. Its order is that of bytes. An instant that is
-- NULL is never. Every name begins with headway_, so that tables of records, and other
-- programs', fit beside these.

-- A connection, its lease, and what has one value for all of it.
CREATE TABLE headway_connections (
    id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name    text COLLATE "C" NOT NULL UNIQUE,
    -- The lease. token rises with each holder and never falls; run is NULL
    -- when nobody holds the connection. expires is by this server's clock, since is
    -- by the holder's.
    token   bigint NOT NULL DEFAULT 0,
    run     text COLLATE "C",
    holder  text NOT NULL DEFAULT '',
    since   timestamptz,
    expires timestamptz,
    -- The advisory lock that the holder's session has, and when the server that gave
    -- it was started. NULL is no lock.
    lock    bigint,
    booted  timestamptz,
    -- The sink's committed position, as the sink gave it, and the sink.
    sink      bytea,
    sink_kind text NOT NULL DEFAULT '',
    sink_path text NOT NULL DEFAULT '',
    -- How far copies of kept records into the connection's sinks have come.
    replays   json NOT NULL DEFAULT '[]',
    -- The learned rate; a NULL version is none.
    pacing_version     bigint,
    pacing_law         text,
    pacing_interval_ms double precision,
    pacing_recorded_at timestamptz,
    pacing_state       bytea,
    -- What parts with limits of their own have learned, and credentials after the first.
    pacing_parts       bytea,
    -- The source-pressure cooldown; NULL is none.
    pressure           json
);

CREATE TABLE headway_runs (
    n          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id         text COLLATE "C" NOT NULL UNIQUE,
    connection bigint NOT NULL REFERENCES headway_connections (id),
    holder     text NOT NULL,
    kind       text NOT NULL,
    state      text NOT NULL,
    reason     text NOT NULL,
    started    timestamptz,
    ended      timestamptz,
    retry_at   timestamptz,
    error      text NOT NULL DEFAULT '',
    progress   json NOT NULL DEFAULT '{}'
);

CREATE INDEX headway_runs_of_connection ON headway_runs (connection, n);

CREATE TABLE headway_events (
    run   bigint NOT NULL REFERENCES headway_runs (n),
    seq   bigint NOT NULL,
    event json NOT NULL,
    PRIMARY KEY (run, seq)
);

CREATE TABLE headway_lanes (
    connection   bigint NOT NULL REFERENCES headway_connections (id),
    stream       text COLLATE "C" NOT NULL,
    kind         text COLLATE "C" NOT NULL,
    cursor       text NOT NULL,
    walking      boolean NOT NULL,
    done         boolean NOT NULL,
    since        text NOT NULL,
    high         text NOT NULL,
    start        timestamptz,
    watermark    text NOT NULL,
    pages        bigint NOT NULL,
    -- The anchor is 64 unsigned bits, kept as the same bits signed.
    trail_anchor bigint NOT NULL,
    trail_steps  bigint NOT NULL,
    trail_limit  bigint NOT NULL,
    PRIMARY KEY (connection, stream, kind)
);

-- One row a stream that has items, so that an item's row is short and the
-- number of items is known without counting them.
CREATE TABLE headway_streams (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    connection bigint NOT NULL REFERENCES headway_connections (id),
    name       text COLLATE "C" NOT NULL,
    items      bigint NOT NULL DEFAULT 0,
    UNIQUE (connection, name)
);

CREATE TABLE headway_items (
    stream      bigint NOT NULL,
    key         text COLLATE "C" NOT NULL,
    fingerprint text NOT NULL,
    children    bytea,
    -- True while the detail is owed through a backlog gap.
    owed        boolean NOT NULL DEFAULT false,
    PRIMARY KEY (stream, key)
);

CREATE INDEX headway_items_owed ON headway_items (stream, key) WHERE owed;

CREATE TABLE headway_gaps (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    connection bigint NOT NULL REFERENCES headway_connections (id),
    stream     text COLLATE "C" NOT NULL,
    key        text COLLATE "C" NOT NULL,
    parent     text COLLATE "C" NOT NULL,
    locator    bytea,
    reason     text NOT NULL,
    status     text NOT NULL,
    attempts   bigint NOT NULL,
    first_seen timestamptz,
    last_seen  timestamptz,
    retry_at   timestamptz,
    last_error text NOT NULL,
    -- When it was last asked for.
    tried      timestamptz,
    -- The order of serving: when it was first seen, or tried last.
    rank       timestamptz NOT NULL,
    -- The token of the lease that it is served to; 0 is none.
    leased     bigint NOT NULL DEFAULT 0,
    -- A backlog gap stands for all items that changed at since or later and
    -- are owed; cursor is how far its list has been walked.
    backlog    boolean NOT NULL,
    since      text NOT NULL,
    cursor     text NOT NULL,
    UNIQUE (connection, stream, key)
);

CREATE INDEX headway_gaps_by_status ON headway_gaps (connection, status, id);
CREATE INDEX headway_gaps_by_rank ON headway_gaps (connection, status, rank, id);

-- How each stream was read when it was last collected, so that an edited connection
-- is noticed.
CREATE TABLE headway_shapes (
    connection bigint NOT NULL REFERENCES headway_connections (id),
    stream     text COLLATE "C" NOT NULL,
    shape      json NOT NULL,
    PRIMARY KEY (connection, stream)
);

-- Sinks that a connection had before the one it has, with their positions.
CREATE TABLE headway_sinks (
    connection bigint NOT NULL REFERENCES headway_connections (id),
    kind       text COLLATE "C" NOT NULL,
    path       text COLLATE "C" NOT NULL,
    position   bytea NOT NULL,
    PRIMARY KEY (connection, kind, path)
);

-- A mark of each write, to find out later whether it was committed: after a crash the
-- server may give the number of a lost transaction to another one.
CREATE TABLE headway_writes (
    token bigint PRIMARY KEY,
    at    timestamptz NOT NULL DEFAULT now()
);
