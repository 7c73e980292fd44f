//! The logs of containers: rotated while their containers run, and read for people. A log has lines of CRI's format, which a
//! runtime writes.
