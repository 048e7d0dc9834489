-- Finds and counts the items whose detail a backlog owes.
CREATE INDEX headway_items_owed ON items (stream, key) WHERE owed = 1;
