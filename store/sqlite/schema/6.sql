-- What parts of the connection that have limits of their own have learned, and what
-- credentials after the first have, as JSON.
ALTER TABLE connections ADD COLUMN pacing_parts BLOB;
