//! The life cycle of a server: initialise, run workers, stop, initialise again.
