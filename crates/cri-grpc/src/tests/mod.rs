//! Tests over a real socket.
