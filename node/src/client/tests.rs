//! The client against servers that misbehave, over real sockets.
