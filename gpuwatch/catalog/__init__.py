"""Facts as data (Xid tables, patterns, default rules, texts) and the pure code that reads them."""
