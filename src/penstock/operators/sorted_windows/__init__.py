"""Windows over rows sorted by key and time: sessions, counts, calendars, and aggregates that need rows."""
