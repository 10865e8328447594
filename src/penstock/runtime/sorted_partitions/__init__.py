"""Windows that panes cannot hold: rows wait, then lie key by key in order of time. A window is a frame, a range of a lane's rows."""
