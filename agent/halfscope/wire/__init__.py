"""The contract between agent and server: messages, codec, sans-I/O sessions, errors. No torch, no numpy."""
