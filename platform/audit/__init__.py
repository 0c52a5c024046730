"""Who did what to which thing: events that are written once and never changed."""
