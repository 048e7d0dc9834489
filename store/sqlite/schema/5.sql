-- What a record of runs stands for: the empty text is a collection, replay a copy of
-- kept records into another sink.
ALTER TABLE runs ADD COLUMN kind TEXT NOT NULL DEFAULT '';

-- How far copies of kept records into the connection's sinks have come, as JSON.
ALTER TABLE connections ADD COLUMN replays TEXT NOT NULL DEFAULT '[]';
