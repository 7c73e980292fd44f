//! Placeholder until the tables are here.
